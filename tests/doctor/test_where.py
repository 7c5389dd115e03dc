"""The commands of findings act in the account, region, stack and cluster that the doctor read."""

import shlex
from dataclasses import replace
from typing import Any

import pytest
from leeway_cli.doctor.examine import examine
from leeway_cli.doctor.facts import ConfigurationFacts, Facts, PoolFacts, WorkloadFacts
from leeway_cli.doctor.finding import Cause, Severity, causes
from leeway_cli.doctor.where import Where
from leeway_cli.places import Place
from leeway_cli.stack import DEFAULT_STACK

from tests.doctor.cases import cluster, group, healthy, was_read

HERE = Where(Place(), DEFAULT_STACK)
PROD = Where(Place("prod", "eu-west-1"), DEFAULT_STACK)
HANDLER = WorkloadFacts("DaemonSet", "kube-system", "handler", "aws-node-termination-handler")
ARN = "arn:aws:eks:eu-west-1:123456789012:cluster/prod"
DELETE = "kubectl delete daemonset handler --namespace kube-system"


def commands(where: Where, facts: Facts) -> list[str]:
    """The commands of all findings, in their order."""
    placed = [where.placed(one, facts) for one in causes(examine(facts))]
    return [line for one in placed for line in one.command.splitlines()]


def with_handler(**changes: Any) -> Facts:
    return healthy(clusters=(cluster(workloads=(HANDLER,), **changes),))


def test_kubectl_gets_the_context_by_which_the_cluster_was_read() -> None:
    facts = with_handler(context=("--kubeconfig", "/my files/kube", "--context", "of prod"))
    expected = f"{DELETE} --kubeconfig '/my files/kube' --context 'of prod'"
    assert commands(PROD, facts) == [expected]


def test_a_cluster_without_a_context_gets_one_before_kubectl() -> None:
    known = replace(was_read(cluster().eks), arn=ARN)
    update = "aws eks update-kubeconfig --name prod --profile prod --region eu-west-1"
    assert commands(PROD, with_handler(eks=known)) == [update, f"{DELETE} --context {ARN}"]
    assert commands(HERE, with_handler()) == ["aws eks update-kubeconfig --name prod", DELETE]


def test_one_context_is_enough_for_several_commands_of_a_finding() -> None:
    facts = healthy()
    cause = Cause(Severity.WARNS, "X", "prod", "kubectl get a\nkubectl get b", (), ())
    placed = HERE.placed(cause, facts).command.splitlines()
    assert placed == ["aws eks update-kubeconfig --name prod", "kubectl get a", "kubectl get b"]


def test_commands_of_aws_sam_and_leeway_name_the_profile_the_region_and_the_stack() -> None:
    paused = PoolFacts("general", "nodes", launched=True, paused="nodes never joined")
    groups = (group(desired=6),)
    facts = healthy(alarms=(), clusters=(cluster(groups=groups, pools=(paused,)),))
    options = "--profile prod --region eu-west-1"
    maximum = "aws autoscaling update-auto-scaling-group --auto-scaling-group-name web --max-size 7"
    blue = replace(PROD, stack="blue")
    assert commands(blue, facts) == [
        "AWS_PROFILE=prod AWS_REGION=eu-west-1 leeway resume prod --pool general --stack blue",
        f"sam deploy --stack-name leeway {options}",
        f"{maximum} {options}",
    ]


def test_the_place_that_the_environment_sets_needs_no_options() -> None:
    paused = ConfigurationFacts(pools=("general",), paused=True)
    facts = healthy(alarms=(), clusters=(cluster(configuration=paused),))
    assert commands(HERE, facts) == ["sam deploy --stack-name leeway", "leeway resume prod"]
    clock = Cause(Severity.WARNS, "X", "", "timedatectl set-ntp true", (), ())
    assert PROD.placed(clock, facts) == clock
    assert PROD.placed(replace(clock, command=""), facts).command == ""


def test_credentials_of_the_environment_do_not_precede_the_profile() -> None:
    where = Where(Place("my prod"), DEFAULT_STACK, ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"))
    paused = ConfigurationFacts(pools=("general",), paused=True)
    (command,) = commands(where, healthy(clusters=(cluster(configuration=paused),)))
    assert shlex.split(command) == [
        *("env", "-u", "AWS_ACCESS_KEY_ID", "-u", "AWS_SESSION_TOKEN"),
        *("AWS_PROFILE=my prod", "leeway", "resume", "prod"),
    ]


@pytest.mark.parametrize("operation", ["update-stack-set", "update-stack-instances"])
def test_a_stack_set_is_updated_in_its_own_account(operation: str) -> None:
    command = f"aws cloudformation {operation} --stack-set-name Leeway"
    cause = Cause(Severity.WARNS, "X", "", command, (), ())
    assert PROD.placed(cause, healthy()) == cause
