"""A healthy deployment has no finding; each broken thing has just its own."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.reasons import Reason, ReasonCode
from leeway_cli.cluster_setup.ports import ScalingGroup
from leeway_cli.cluster_setup.settings import GroupHook, GroupTag, Mode
from leeway_cli.doctor import reasons
from leeway_cli.doctor.checks.second_handlers import KARPENTER, TERMINATION_HANDLER
from leeway_cli.doctor.examine import CHECKS, examine
from leeway_cli.doctor.facts import (
    AlarmFacts,
    AliasFacts,
    CatalogFacts,
    Concurrency,
    ConfigurationFacts,
    ConsumerFacts,
    Facts,
    MissingRight,
    PoolFacts,
    QueueFacts,
    RoleFacts,
    RuleFacts,
    WorkloadFacts,
)
from leeway_cli.doctor.finding import Finding
from leeway_cli.doctor.names import EVENTS

from tests.doctor.cases import (
    HOOKS,
    NOW,
    OBJECTS,
    STACK,
    TAGS,
    arn,
    cluster,
    group,
    healthy,
    rule,
    spot,
    was_read,
)


def found(facts: Facts) -> list[tuple[str, str]]:
    return [(one.severity.value, one.reason.code) for one in examine(facts)]


def only(facts: Facts) -> Finding:
    (one,) = examine(facts)
    return one


def test_a_healthy_deployment_has_no_finding() -> None:
    assert examine(healthy()) == ()


FUNCTIONS = was_read(healthy().functions)
SCHEDULES = was_read(healthy().schedules)


def first_function(**changes: Any) -> dict[str, Any]:
    return {"functions": (replace(FUNCTIONS[0], **changes), *FUNCTIONS[1:])}


def first_schedule(**changes: Any) -> dict[str, Any]:
    return {"schedules": (replace(SCHEDULES[0], **changes), *SCHEDULES[1:])}


def first_rule(**changes: Any) -> dict[str, Any]:
    return {"rules": (rule(EVENTS[0], **changes), *map(rule, EVENTS[1:]))}


def in_cluster(**changes: Any) -> dict[str, Any]:
    return {"clusters": (cluster(**changes),)}


def configured(**changes: Any) -> dict[str, Any]:
    return in_cluster(configuration=ConfigurationFacts(pools=("general",), **changes))


def with_pool(**changes: Any) -> dict[str, Any]:
    pool = PoolFacts("general", "nodes", launched=True)
    return in_cluster(pools=(replace(pool, **changes),))


def with_groups(**changes: Any) -> dict[str, Any]:
    return in_cluster(groups=(group(**changes),))


def with_hooks(*hooks: GroupHook) -> dict[str, Any]:
    return in_cluster(scaling_groups=(ScalingGroup("web", TAGS, hooks),))


def stack(**changes: Any) -> dict[str, Any]:
    return {"stack": replace(STACK, **changes)}


DRAIN, ADMIT = HOOKS
THEIRS = rule(EVENTS[0], name="theirs", targets=(arn("sqs", "notices"),))
HANDLER = WorkloadFacts("DaemonSet", "kube-system", "nth", TERMINATION_HANDLER)
KARPENTERS = WorkloadFacts("Deployment", "karpenter", "karpenter", KARPENTER, "notices")

ONE_THING: dict[str, tuple[dict[str, Any], str, str]] = {
    "the stack failed": (stack(status="UPDATE_ROLLBACK_FAILED"), "fails", "StackNotSettled"),
    "the stack changes": (stack(status="UPDATE_IN_PROGRESS"), "warns", "StackNotSettled"),
    "an older stack": (stack(version="0.0.9"), "warns", "VersionsDiffer"),
    "a stack without version": (stack(version=""), "warns", "VersionsDiffer"),
    "a missing function": (first_function(state=""), "fails", "FunctionMissing"),
    "a failed function": (first_function(state="Failed"), "fails", "FunctionNotActive"),
    "an idle function": (first_function(state="Inactive"), "warns", "FunctionNotActive"),
    "a failed update": (first_function(update="Failed"), "fails", "FunctionNotActive"),
    "a stopped function": (first_function(reserved=0), "fails", "FunctionStopped"),
    "a capped function": (first_function(reserved=2), "warns", "FunctionCapped"),
    "a deleted alias": (
        {"aliases": (AliasFacts("leeway-retire-node", "live", ""),)},
        "fails",
        "AliasMissing",
    ),
    "an alias of no version": (
        {"aliases": (AliasFacts("leeway-retire-node", "live", "$LATEST"),)},
        "fails",
        "AliasNotPublished",
    ),
    "a queue that is not read": ({"consumers": ()}, "fails", "ConsumerMissing"),
    "a disabled mapping": (
        {"consumers": (ConsumerFacts("leeway-provision-nodes", "uuid", "Disabled"),)},
        "fails",
        "ConsumerNotEnabled",
    ),
    "a disabled rule": (first_rule(enabled=False), "fails", "NoticesNotReceived"),
    "a rule without target": (first_rule(targets=()), "fails", "NoticesNotReceived"),
    "a narrowed rule": (
        first_rule(pattern={**rule(EVENTS[0]).pattern, "resources": ["x"]}),
        "fails",
        "NoticesNotReceived",
    ),
    "a deleted rule": ({"rules": tuple(map(rule, EVENTS[1:]))}, "fails", "NoticesNotReceived"),
    "a disabled schedule": (first_schedule(enabled=False), "fails", "ScheduleDisabled"),
    "a deleted schedule": ({"schedules": SCHEDULES[1:]}, "fails", "ScheduleMissing"),
    "a schedule of others": (
        first_schedule(target=arn("lambda", "function:other")),
        "fails",
        "ScheduleOfOtherTarget",
    ),
    "failures": ({"queues": (QueueFacts("leeway-F", "https://q", 2),)}, "warns", "FailuresWait"),
    "an alarm": (
        {"alarms": (AlarmFacts("leeway-A", "ALARM", "x", notifies=True),)},
        "warns",
        "AlarmIsOn",
    ),
    "silent alarms": (
        {"alarms": (AlarmFacts("leeway-A", "OK", "", notifies=False),)},
        "warns",
        "AlarmsNotifyNobody",
    ),
    "no alarms": ({"alarms": ()}, "warns", "AlarmsMissing"),
    "no concurrency": ({"concurrency": Concurrency(10, 5)}, "fails", "ConcurrencyTooLow"),
    "little room in a quota": (
        {"quotas": {"L-34B43A08": 21.0}, "instances": spot(9)},
        "warns",
        "VcpuQuotaNear",
    ),
    "no room in a quota": ({"quotas": {"L-34B43A08": 7.0}}, "fails", "VcpuQuotaReached"),
    "no catalog": ({"catalog": CatalogFacts(None)}, "fails", "CatalogAbsent"),
    "an old catalog": (
        {"catalog": CatalogFacts({"types": NOW - timedelta(days=2)})},
        "warns",
        "CatalogOld",
    ),
    "a slow clock": ({"ahead": timedelta(seconds=40)}, "warns", "ClockOff"),
    "a fast clock": ({"ahead": timedelta(seconds=-40)}, "warns", "ClockOff"),
    "no access entry": (
        in_cluster(entries=was_read(cluster().entries)[1:]),
        "fails",
        "AccessEntryMissing",
    ),
    "no role": (in_cluster(objects=OBJECTS[1:]), "warns", "ClusterObjectMissing"),
    "a missing right": (
        in_cluster(rights=(MissingRight("leeway:drain", "get", "nodes"),)),
        "fails",
        "RightMissing",
    ),
    "no tag": (
        in_cluster(scaling_groups=(ScalingGroup("web", {}, HOOKS),)),
        "fails",
        "GroupTagMissing",
    ),
    "no terminate hook": (with_hooks(ADMIT), "warns", "GroupHookMissing"),
    "a hook of others": (
        with_hooks(*HOOKS, replace(DRAIN, name="theirs", target=arn("sqs", "x"))),
        "warns",
        "HookOfOthers",
    ),
    "another short hook": (
        with_hooks(*HOOKS, replace(DRAIN, name="short", timeout=60)),
        "warns",
        "HookTooShort",
    ),
    "another long hook": (
        with_hooks(*HOOKS, replace(DRAIN, name="long", timeout=7200)),
        "warns",
        "HookTooLong",
    ),
    "another hook that abandons": (
        with_hooks(*HOOKS, replace(ADMIT, name="strict", default="ABANDON")),
        "warns",
        "HookAbandons",
    ),
    "a full group": (with_groups(desired=6), "warns", "GroupHasNoRoom"),
    "one zone": (with_groups(zones=("us-east-1a",)), "warns", "GroupOfOneZone"),
    "one type": (with_groups(types=("m5.large",)), "warns", "GroupOfOneType"),
    "the type of a template": (with_groups(types=()), "warns", "GroupOfOneType"),
    "a launch configuration": (
        with_groups(launch_configuration="old"),
        "warns",
        "GroupWithLaunchConfiguration",
    ),
    "no launches": (
        with_groups(suspended=frozenset({"Launch", "AZRebalance"})),
        "fails",
        "GroupLaunchesSuspended",
    ),
    "no terminations": (
        with_groups(suspended=frozenset({"Terminate"})),
        "warns",
        "GroupProcessesSuspended",
    ),
    "rebalancing": (with_groups(capacity_rebalance=True), "warns", "GroupRebalances"),
    "a termination handler": (in_cluster(workloads=(HANDLER,)), "warns", "SecondHandlerInCluster"),
    "a queue of others": (
        {"rules": (THEIRS, *map(rule, EVENTS))},
        "warns",
        "SecondHandlerRule",
    ),
    "a pause": (configured(paused=True), "warns", "ClusterIsPaused"),
    "a dry run": (configured(dry_run=True), "warns", "ClusterInDryRun"),
    "a pool without limits": (configured(unlimited=("web",)), "warns", "PoolWithoutLimits"),
    "a damaged manifest": (configured(problems=("x",)), "fails", "ManifestHasErrors"),
    "a paused pool": (with_pool(paused=Reason("X", "Three failed.")), "fails", "PoolIsPaused"),
    "a pool without subnets": (
        with_pool(unlaunchable=Reason("X", "No subnets.")),
        "fails",
        "PoolNotLaunchable",
    ),
    "a new pool": (with_pool(launched=False), "warns", "PoolNeverLaunched"),
    "a foreign role": (
        {
            **with_pool(role="other"),
            "clusters": (
                cluster(
                    pools=(PoolFacts("general", "other", launched=True),),
                    roles=(RoleFacts("other", exists=False),),
                ),
            ),
        },
        "fails",
        "NodeRoleMissing",
    ),
}


@pytest.mark.parametrize(("changes", "severity", "code"), ONE_THING.values(), ids=list(ONE_THING))
def test_each_broken_thing_has_just_its_finding(
    changes: dict[str, Any], severity: str, code: str
) -> None:
    assert found(healthy(**changes)) == [(severity, code)]


def test_every_code_of_a_check_is_tested() -> None:
    declared = {
        one.name for one in vars(reasons).values() if isinstance(one, ReasonCode) and one.runbook
    }
    tested = {code for _, _, code in ONE_THING.values()}
    elsewhere = {
        "PartNotRead",
        "DoctorFoundFailures",
        "StackWithoutClusters",
        "StartsTooSlow",
        "TerminationsLimited",
        "KarpenterReadsNotices",
        "ManagedGroupsTaken",
        "NodeRoleNotAllowed",
        "NodeRoleWithoutPolicy",
        "ClusterNotActive",
        # test_check_answers.py
        "ClusterRefusesFunction",
        "FunctionWithoutRights",
        "ProbeUnclear",
        "ProbesNotAnswered",
        "ServiceNotReached",
        "StatementMissing",
    }
    assert declared - tested == elsewhere


def test_a_stack_without_clusters_fails() -> None:
    given = {**stack(clusters=()), "clusters": ()}
    assert found(healthy(**given)) == [("fails", "StackWithoutClusters")]


def test_a_cluster_that_the_stack_does_not_manage_fails() -> None:
    one = only(healthy(**stack(clusters=("other",))))
    assert (one.reason.code, one.command) == ("ClusterNameMissing", "leeway adopt prod")


@pytest.mark.parametrize(
    ("count", "unreserved", "severity"),
    [(900, 1000, None), (5000, 1000, "warns"), (20000, 1000, "fails"), (20000, 30000, None)],
)
def test_concurrency_is_compared_with_the_spot_instances(
    count: int, unreserved: int, severity: str | None
) -> None:
    facts = healthy(
        instances=spot(count), concurrency=Concurrency(unreserved, unreserved), quotas={}
    )
    named = {code: how for how, code in found(facts)}
    assert named.get("ConcurrencyTooLow") == severity


@pytest.mark.parametrize(("count", "severity"), [(2700, None), (3000, "warns"), (18300, "fails")])
def test_starts_are_compared_with_the_spot_instances(count: int, severity: str | None) -> None:
    facts = healthy(instances=spot(count), concurrency=Concurrency(10**6, 10**6), quotas={})
    named = {code: how for how, code in found(facts)}
    assert named.get("StartsTooSlow") == severity


def test_terminations_are_limited_only_in_groups_without_a_terminate_hook() -> None:
    many = spot(101)
    assert found(healthy(instances=many)) == []
    codes = [code for _, code in found(healthy(instances=many, **with_hooks(ADMIT)))]
    assert codes == ["TerminationsLimited", "GroupHookMissing"]


def test_quotas_count_all_instances_of_the_account_and_judge_only_those_of_clusters() -> None:
    others = spot(400, cluster="", group="")
    quota = {"L-34B43A08": 810.0}
    assert found(healthy(instances=spot(3) + others, quotas=quota)) == [("warns", "VcpuQuotaNear")]
    assert found(healthy(instances=others, quotas=quota)) == []
    gpus = spot(1, instance_type="g5.xlarge", vcpus=4)
    assert found(healthy(instances=gpus, quotas={"L-3819A6DF": 4.0})) == [
        ("fails", "VcpuQuotaReached")
    ]


def test_karpenter_is_no_second_handler_of_its_own_nodes() -> None:
    workloads = in_cluster(workloads=(KARPENTERS,))
    assert found(healthy(**workloads, rules=(THEIRS, *map(rule, EVENTS)))) == []
    taken = cluster(
        workloads=(KARPENTERS,),
        configuration=ConfigurationFacts(takes=("karpenter",), pools=("general",)),
    )
    assert found(healthy(clusters=(taken,))) == [("warns", "KarpenterReadsNotices")]


def test_managed_groups_are_a_finding_only_if_leeway_takes_them() -> None:
    managed = group(managed="ng", maximum=3, zones=("a",))
    groups = (ScalingGroup("web", {}, (), node_group="ng"),)
    left = cluster(groups=(managed,), scaling_groups=groups)
    assert found(healthy(clusters=(left,))) == []
    taken = replace(
        left,
        configuration=ConfigurationFacts(takes=("managed-node-group",), pools=("general",)),
    )
    assert found(healthy(clusters=(taken,))) == [("warns", "ManagedGroupsTaken")]


def test_a_topic_or_a_log_group_is_no_second_handler() -> None:
    told = replace(THEIRS, targets=(arn("sns", "mail"), arn("logs", "log-group:x")))
    counted = RuleFacts("counts", True, {"source": ["aws.ec2"], "detail-type": ["x"]}, ("arn:x",))
    disabled = replace(THEIRS, enabled=False)
    assert found(healthy(rules=(told, counted, disabled, *map(rule, EVENTS)))) == []


def test_a_role_that_may_not_be_passed_fails_and_one_without_policies_warns() -> None:
    role = RoleFacts("other", arn="arn:aws:iam::123456789012:role/other")
    facts = cluster(pools=(PoolFacts("general", "other", launched=True),), roles=(role,))
    last = examine(healthy(clusters=(facts,)))[-1]
    assert last.command == (
        "aws iam attach-role-policy --role-name other "
        "--policy-arn arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryPullOnly"
    )
    codes = found(healthy(clusters=(facts,)))
    assert codes == [
        ("fails", "AccessEntryMissing"),
        ("fails", "NodeRoleNotAllowed"),
        ("warns", "NodeRoleWithoutPolicy"),
        ("warns", "NodeRoleWithoutPolicy"),
    ]


def test_a_cluster_that_is_not_active_fails() -> None:
    eks = was_read(cluster().eks)
    facts = cluster(eks=replace(eks, status="DELETING"))
    assert found(healthy(clusters=(facts,))) == [("fails", "ClusterNotActive")]


def test_a_private_endpoint_fails_for_functions_outside_of_its_network() -> None:
    eks = was_read(cluster().eks)
    hidden = replace(eks, endpoint=replace(eks.endpoint, public=False))
    assert found(healthy(clusters=(cluster(eks=hidden),))) == [("fails", "EndpointNotPublic")]


def test_a_mode_without_access_entries_fails_with_each_missing_entry() -> None:
    eks = was_read(cluster().eks)
    old = replace(eks, mode=Mode.CONFIG_MAP)
    codes = [code for _, code in found(healthy(clusters=(cluster(eks=old, entries=()),)))]
    assert codes == ["ModeWithoutAccessEntries", "AccessEntryMissing", "AccessEntryMissing"]


def test_an_account_without_the_role_for_spot_is_a_warning_if_leeway_launches_nodes() -> None:
    assert found(healthy(spot_role=False)) == [("warns", "SpotRoleMissing")]
    launches_none = in_cluster(pools=(), roles=())
    assert ("warns", "SpotRoleMissing") not in found(healthy(spot_role=False, **launches_none))


def test_a_foreign_tag_fails() -> None:
    tags = {"eks:cluster-name": GroupTag("web", "other")}
    groups = (ScalingGroup("web", tags, HOOKS),)
    assert found(healthy(**in_cluster(scaling_groups=groups))) == [("fails", "GroupTagDiffers")]


def test_checks_are_made_once_each() -> None:
    assert len(set(CHECKS)) == len(CHECKS)
