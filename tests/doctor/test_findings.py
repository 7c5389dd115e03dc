"""Unread parts, commands and the output: nothing of others has an effect on a terminal or shell."""

import json
import shlex
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_cli.doctor.examine import as_data, as_view, examine
from leeway_cli.doctor.facts import ClusterFacts, ConfigurationFacts, Facts, Unread
from leeway_cli.doctor.finding import Finding, Severity, aws, causes, shell
from leeway_cli.terminal import terminal
from rich.console import Console

from tests.doctor.cases import cluster, group, healthy

DENIED = "The identity may not call x:Y. Grant it this action."
PLAIN = {"now", "region", "version", "ahead", "wanted_objects", "clusters", "name", "context"}


@pytest.mark.parametrize("part", [one.name for one in fields(Facts) if one.name not in PLAIN])
def test_each_part_of_the_stack_that_is_not_read_is_a_finding(part: str) -> None:
    unread = Unread(f"the {part}", DENIED, Severity.FAILS)
    facts = healthy(**{part: unread})
    codes = [one.code for one in examine(facts) if one.severity is Severity.FAILS]
    assert codes == ["PartNotRead"]
    (one,) = [one for one in examine(facts) if one.code == "PartNotRead"]
    assert one.subject == f"the {part}"
    assert "x:Y" in one.reason


@pytest.mark.parametrize(
    "part", [one.name for one in fields(ClusterFacts) if one.name not in PLAIN]
)
def test_each_part_of_a_cluster_that_is_not_read_is_a_finding(part: str) -> None:
    unread = Unread(f"the {part}", DENIED, Severity.WARNS)
    facts = healthy(clusters=(cluster(**{part: unread}),))
    (one,) = examine(facts)
    assert (one.code, one.severity, one.cluster) == ("PartNotRead", Severity.WARNS, "prod")


def test_with_nothing_read_every_part_is_a_finding_and_no_check_fails() -> None:
    unread = Unread("everything", DENIED, Severity.FAILS)
    of_stack = {one.name: unread for one in fields(Facts) if one.name not in PLAIN}
    of_cluster = {one.name: unread for one in fields(ClusterFacts) if one.name not in PLAIN}
    facts = healthy(**of_stack, clusters=(cluster(**of_cluster),))
    assert {one.code for one in examine(facts)} == {"PartNotRead"}
    assert len(as_data(facts, ())["unread"]) == len(of_stack) + len(of_cluster)


def printed(facts: Facts) -> str:
    console: Console = terminal(width=10_000)
    with console.capture() as captured:
        console.print(as_view(facts, causes(examine(facts))), soft_wrap=True)
    return captured.get()


def test_all_is_well_only_if_everything_was_read() -> None:
    spending = "100.00 USD per hour, the default of spec.launches.usdPerHour"
    shown = f"prod: Leeway's nodes may cost {spending}\nprod: all is well\n"
    assert printed(healthy()) == shown
    unread = Unread("the alarms", DENIED, Severity.WARNS)
    shown = printed(healthy(alarms=unread))
    assert "all is well" not in shown
    assert shown.endswith("prod: 0 failures, 1 warning; 1 part could not be read\n")


def test_limits_of_pools_in_money_are_shown() -> None:
    known = ConfigurationFacts(pools=("web", "gpu"), pool_limits=(("gpu", 2.5),))
    shown = printed(healthy(clusters=(cluster(configuration=known),)))
    assert "prod: the nodes of pool gpu may cost 2.50 USD per hour\n" in shown


def test_findings_that_one_command_mends_are_one_finding() -> None:
    def missing(group: str, command: str) -> Finding:
        what = f"Group {group} may not list pods."
        return Finding(Severity.FAILS, "RightMissing", f"group {group}", what, command, "prod")

    rbac = "kubectl apply --server-side -f rbac/"
    first, second, other = missing("a", rbac), missing("b", rbac), missing("c", "kubectl create")
    joined, alone = causes([first, other, second])
    assert (joined.subjects, joined.command) == (("group a", "group b"), rbac)
    assert joined.reasons == (first.reason, second.reason)
    assert alone.subjects == ("group c",)
    assert len(causes([replace(first, command=""), replace(second, command="")])) == 2
    assert len(causes([first, replace(first, severity=Severity.WARNS, reason="Later.")])) == 2


def test_groups_with_the_same_limit_are_one_finding_with_a_command_each() -> None:
    names = [f"web-{number}" for number in range(8)]
    groups = tuple(group(name=name, desired=6) for name in names)
    facts = healthy(clusters=(cluster(groups=groups),))
    (found,) = [one for one in causes(examine(facts)) if one.code == "GroupLimitsReplacement"]
    assert found.subjects == tuple(f"group {name}" for name in names)
    assert [shlex.split(line)[4] for line in found.command.splitlines()] == names
    shown = printed(facts)
    assert shown.count("is at its maximum of 6") == shown.count("$ aws autoscaling") == 6
    assert "and 2 more commands, which -o json lists" in shown


HOSTILE = "x'; rm -rf ~ #\x1b]0;owned\x07\n$(id)`id`\u202e"


def test_a_hostile_name_has_no_effect_on_a_terminal_or_a_shell() -> None:
    facts = healthy(clusters=(cluster(groups=(group(name=HOSTILE, zones=("a",)),)),))
    shown = printed(facts)
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    finding = next(one for one in examine(facts) if "has one zone" in one.reason)
    words = shlex.split(finding.command)
    assert words[:3] == ["aws", "autoscaling", "describe-auto-scaling-groups"]
    assert len(words) == 5
    assert "\n" not in finding.reason + finding.subject + finding.command
    assert json.loads(json.dumps(as_data(facts, causes([finding]))))["findings"][0]["command"]


@given(st.text(max_size=30))
def test_a_name_of_others_stays_one_word(name: str) -> None:
    command = aws("events enable-rule", name=name)
    if command:
        words = shlex.split(command)
        assert words[:4] == ["aws", "events", "enable-rule", "--name"]
        assert len(words) == 5
    assert len(shlex.split(shell("kubectl", "get", name))) == 3


@pytest.mark.parametrize("name", ["--profile=admin", "-h", "file:///etc/passwd", "https://evil"])
def test_a_name_that_the_aws_cli_would_interpret_gets_no_command(name: str) -> None:
    assert aws("events enable-rule", name=name) == ""


def test_failures_come_first() -> None:
    facts = healthy(consumers=(), clusters=(replace(cluster(), groups=(group(zones=("a",)),)),))
    severities = [one.severity for one in examine(facts)]
    assert severities == [Severity.FAILS, Severity.WARNS]
