"""A healthy deployment has no finding; each broken thing has just its own."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.launch.reservations import CapacityReservation
from leeway.manifests.in_cluster import KARPENTER_IS_RUNNING
from leeway.reasons import ReasonCode
from leeway.selection.offers.reservations import ReservedCapacity
from leeway_cli.adopt.settings.access import Mode
from leeway_cli.adopt.settings.groups import GroupHook, GroupTag
from leeway_cli.adopt.settings.objects import cluster_objects
from leeway_cli.doctor import reasons
from leeway_cli.doctor.checks.second_handlers import KARPENTER, TERMINATION_HANDLER
from leeway_cli.doctor.examine import CHECKS, examine
from leeway_cli.doctor.facts import (
    AlarmFacts,
    AliasFacts,
    ConfigurationFacts,
    ConsumerFacts,
    Facts,
    PoolFacts,
    QueueFacts,
    RoleFacts,
    RuleFacts,
    WorkloadFacts,
)
from leeway_cli.doctor.finding import Finding
from leeway_cli.doctor.names import EVENTS
from leeway_cli.doctor.rights import Right

from tests.doctor.cases import (
    BINDING,
    HOOKS,
    NOW,
    OBJECTS,
    ROLE,
    STACK,
    arn,
    cluster,
    group,
    healthy,
    rule,
    spot,
    was_read,
)


def found(facts: Facts) -> list[tuple[str, str]]:
    return [(one.severity.value, one.code) for one in examine(facts)]


def said(facts: Facts, *words: str) -> list[str]:
    """The severities of the findings, whose sentences have these words, in this order."""
    findings = examine(facts)
    assert len(findings) == len(words), findings
    assert all(each in one.reason for each, one in zip(words, findings, strict=True)), findings
    return [one.severity.value for one in findings]


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


def reservation(
    free: int = 0, block: bool = False, ends: datetime | None = None
) -> CapacityReservation:
    """A reservation of two instances."""
    capacity = ReservedCapacity("cr-1", block)
    place = ("123456789012", "m5.large", "us-east-1a")
    return CapacityReservation(capacity, *place, free=free, total=2, ends=ends)


def with_groups(**changes: Any) -> dict[str, Any]:
    return in_cluster(groups=(group(**changes),))


def with_hooks(*hooks: GroupHook) -> dict[str, Any]:
    return with_groups(hooks=hooks)


def stack(**changes: Any) -> dict[str, Any]:
    return {"stack": replace(STACK, **changes)}


DRAIN, ADMIT = HOOKS
THEIRS = rule(EVENTS[0], name="theirs", targets=(arn("sqs", "notices"),))
HANDLER = WorkloadFacts("DaemonSet", "kube-system", "nth", TERMINATION_HANDLER)
KARPENTERS = WorkloadFacts("Deployment", "karpenter", "karpenter", KARPENTER, "notices")

ONE_THING: dict[str, tuple[dict[str, Any], str]] = {
    "the stack failed": (
        stack(status="UPDATE_ROLLBACK_FAILED"),
        "fails StackNotSettled: so its resources may be of two versions",
    ),
    "the stack changes": (
        stack(status="UPDATE_IN_PROGRESS"),
        "warns StackNotSettled: so its resources may be of two versions",
    ),
    "an older stack": (
        stack(version="0.0.9"),
        "warns VersionsDiffer: and this command line is of 0.1.0",
    ),
    "a stack without version": (
        stack(version=""),
        "warns VersionsDiffer: and this command line is of 0.1.0",
    ),
    "a missing function": (first_function(state=""), "fails FunctionNotRunnable: has no function"),
    "a failed function": (
        first_function(state="Failed"),
        "fails FunctionNotRunnable: Lambda gives no reason",
    ),
    "an idle function": (
        first_function(state="Inactive"),
        "warns FunctionNotRunnable: Lambda gives no reason",
    ),
    "a failed update": (
        first_function(update="Failed"),
        "fails FunctionNotRunnable: Lambda gives no reason",
    ),
    "a stopped function": (
        first_function(reserved=0),
        "fails FunctionNotRunnable: The reserved concurrency of function",
    ),
    "a capped function": (
        first_function(reserved=2),
        "warns FunctionNotRunnable: may run 2 times at once, and 3",
    ),
    "a deleted alias": (
        {"aliases": (AliasFacts("leeway-retire-node", "live", ""),)},
        "fails FunctionNotRunnable: has no alias live",
    ),
    "an alias of no version": (
        {"aliases": (AliasFacts("leeway-retire-node", "live", "$LATEST"),)},
        "fails FunctionNotRunnable: points to $LATEST",
    ),
    "a queue that is not read": (
        {"consumers": ()},
        "fails FunctionNotInvoked: has no event source mapping",
    ),
    "a disabled mapping": (
        {"consumers": (ConsumerFacts("uuid", "Disabled"),)},
        "fails FunctionNotInvoked: is Disabled",
    ),
    "a disabled rule": (
        first_rule(enabled=False),
        "fails FunctionNotInvoked: No rule of EventBridge sends events",
    ),
    "a rule without target": (
        first_rule(targets=()),
        "fails FunctionNotInvoked: No rule of EventBridge sends events",
    ),
    "a narrowed rule": (
        first_rule(pattern={**rule(EVENTS[0]).pattern, "resources": ["x"]}),
        "fails FunctionNotInvoked: No rule of EventBridge sends events",
    ),
    "a deleted rule": (
        {"rules": tuple(map(rule, EVENTS[1:]))},
        "fails FunctionNotInvoked: No rule of EventBridge sends events",
    ),
    "a disabled schedule": (
        first_schedule(enabled=False),
        "fails FunctionNotInvoked: is disabled, so that nothing invokes",
    ),
    "a deleted schedule": (
        {"schedules": SCHEDULES[1:]},
        "fails FunctionNotInvoked: EventBridge Scheduler has no schedule",
    ),
    "a schedule of others": (
        first_schedule(target=arn("lambda", "function:other")),
        "fails FunctionNotInvoked: function:other instead of",
    ),
    "failures": (
        {"queues": (QueueFacts("leeway-F", "https://q", 2),)},
        "warns FailuresWait: holds 2 messages",
    ),
    "an alarm": (
        {"alarms": (AlarmFacts("leeway-A", "ALARM", "x", notifies=True),)},
        "warns AlarmIsOn: Alarm leeway-A is on: x.",
    ),
    "silent alarms": (
        {"alarms": (AlarmFacts("leeway-A", "OK", "", notifies=False),)},
        "warns AlarmsNotifyNobody: 1 alarm notifies nobody",
    ),
    "no alarms": ({"alarms": ()}, "warns AlarmsNotifyNobody: has no alarms"),
    "no concurrency": ({"concurrency": 5}, "fails QuotaTooLow: may run 5 at once"),
    "little room in a quota": (
        {"quotas": {"L-34B43A08": 21.0}, "instances": spot(9)},
        "warns QuotaTooLow: use 18 of 21 vCPUs",
    ),
    "no room in a quota": (
        {"quotas": {"L-34B43A08": 7.0}},
        "fails QuotaTooLow: so EC2 launches no m5.large",
    ),
    "no catalog": ({"catalog": {}}, "fails CatalogOld: has no catalog"),
    "an old catalog": (
        {"catalog": {"types": NOW - timedelta(days=2)}},
        "warns CatalogOld: 48 h old",
    ),
    "a slow clock": ({"ahead": timedelta(seconds=40)}, "warns ClockOff: is 40 s"),
    "a fast clock": ({"ahead": timedelta(seconds=-40)}, "warns ClockOff: is 40 s"),
    "no access entry": (
        in_cluster(entries=was_read(cluster().entries)[1:]),
        "fails ClusterSettingDiffers: has no access entry for",
    ),
    "no role": (
        in_cluster(objects=OBJECTS[1:]),
        "warns ClusterSettingDiffers: has no ClusterRole leeway-drain",
    ),
    "no admission policies": (
        in_cluster(policies=False),
        "warns AdmissionPoliciesMissing: older than Kubernetes 1.30",
    ),
    "a missing right": (
        in_cluster(rights=(Right("leeway:drain", "get", "", "nodes"),)),
        "fails RightMissing: may not get nodes",
    ),
    "no tag": (
        with_groups(tags={}),
        "fails ClusterSettingDiffers: has no tag eks:cluster-name",
    ),
    "no terminate hook": (
        with_hooks(ADMIT),
        "warns ClusterSettingDiffers: has no lifecycle hook leeway-drain",
    ),
    "a hook of others": (
        with_hooks(*HOOKS, replace(DRAIN, name="theirs", target=arn("sqs", "x"))),
        "warns HookUnsafe: notifies somebody else",
    ),
    "another short hook": (
        with_hooks(*HOOKS, replace(DRAIN, name="short", timeout=60)),
        "warns HookUnsafe: waits 60 s",
    ),
    "another long hook": (
        with_hooks(*HOOKS, replace(DRAIN, name="long", timeout=7200)),
        "warns HookUnsafe: for 7200 s",
    ),
    "another hook that abandons": (
        with_hooks(*HOOKS, replace(ADMIT, name="strict", default="ABANDON")),
        "warns HookUnsafe: abandons instances",
    ),
    "a full group": (
        with_groups(desired=6),
        "warns GroupLimitsReplacement: is at its maximum of 6",
    ),
    "one zone": (
        with_groups(zones=("us-east-1a",)),
        "warns GroupLimitsReplacement: has one zone, us-east-1a",
    ),
    "one type": (
        with_groups(types=("m5.large",)),
        "warns GroupLimitsReplacement: of one type, m5.large",
    ),
    "the type of a template": (
        with_groups(types=()),
        "warns GroupLimitsReplacement: of one type, m5.large",
    ),
    "a launch configuration": (
        with_groups(launch_configuration="old"),
        "warns GroupLimitsReplacement: uses launch configuration old",
    ),
    "no launches": (
        with_groups(suspended=frozenset({"Launch", "AZRebalance"})),
        "fails GroupLimitsReplacement: Process Launch of group web is suspended",
    ),
    "no terminations": (
        with_groups(suspended=frozenset({"Terminate"})),
        "warns GroupLimitsReplacement: are suspended: Terminate",
    ),
    "rebalancing": (
        with_groups(capacity_rebalance=True),
        "warns GroupLimitsReplacement: Capacity Rebalancing is on",
    ),
    "a termination handler": (
        in_cluster(workloads=(HANDLER,)),
        "warns SecondHandler: runs aws-node-termination-handler",
    ),
    "a queue of others": (
        {"rules": (THEIRS, *map(rule, EVENTS))},
        "warns SecondHandler: Rule theirs sends events",
    ),
    "a pause": (configured(paused=True), "warns ClusterInactive: is paused"),
    "a Karpenter that runs": (
        in_cluster(
            launch_block=KARPENTER_IS_RUNNING(cluster="prod", namespace="kube-system", at="now")
        ),
        "warns KarpenterIsRunning: launches nothing from them",
    ),
    "a dry run": (configured(dry_run=True), "warns ClusterInactive: is in dry run"),
    "a pool without limits": (
        configured(unlimited=("web",)),
        "warns PoolWithoutLimits: has no spec.limits",
    ),
    "a damaged manifest": (configured(problems=("x",)), "fails ManifestHasErrors: x."),
    "a paused pool": (with_pool(paused="Three failed."), "fails PoolNotLaunchable: Three failed."),
    "a pool without subnets": (
        with_pool(unlaunchable="No subnets."),
        "fails PoolNotLaunchable: No subnets.",
    ),
    "a reservation that nobody uses": (
        with_pool(reservations=(reservation(free=2),)),
        "warns ReservationUnused: Nothing runs in capacity reservation cr-1 (2 m5.large",
    ),
    "a reservation that the pool does not allow": (
        with_pool(reservations=(reservation(free=2),), not_reserved=True),
        "warns ReservationUnused: does not allow the capacity type reserved",
    ),
    "a reservation of another cluster": (
        with_pool(not_used=("Its tags name cluster other.",)),
        "warns ReservationUnused: Its tags name cluster other.",
    ),
    "a reservation that ends": (
        with_pool(reservations=(reservation(ends=NOW + timedelta(days=6)),)),
        "warns ReservationEnds: ends at 2026-11-28 15:00 UTC: its nodes are on-demand",
    ),
    "a Capacity Block that ends": (
        with_pool(reservations=(reservation(block=True, ends=NOW + timedelta(days=1)),)),
        "warns ReservationEnds: Leeway drains its nodes before",
    ),
    "a new pool": (with_pool(launched=False), "warns PoolNeverLaunched: has ever joined"),
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
        "fails PoolNotLaunchable: IAM has no role other",
    ),
}


@pytest.mark.parametrize(("changes", "expected"), ONE_THING.values(), ids=list(ONE_THING))
def test_each_broken_thing_has_just_its_finding(changes: dict[str, Any], expected: str) -> None:
    one = only(healthy(**changes))
    about, _, said = expected.partition(": ")
    assert f"{one.severity} {one.code}" == about
    assert said in one.reason


def test_a_reservation_that_is_used_and_lasts_is_no_finding() -> None:
    lasting = (reservation(free=1), reservation(ends=NOW + timedelta(days=8)))
    assert examine(healthy(**with_pool(reservations=lasting))) == ()


def test_every_code_of_a_check_is_tested() -> None:
    declared = {
        one.name for one in vars(reasons).values() if isinstance(one, ReasonCode) and one.runbook
    }
    tested = {expected.split()[1].rstrip(":") for _, expected in ONE_THING.values()}
    elsewhere = {
        "PartNotRead",
        "StackWithoutClusters",
        "EndpointNotReachable",
        "ProbeNotAnswered",  # test_check_answers.py
        "ReadinessGateMissing",  # test_targets.py
        "TargetsCutOff",
    }
    assert declared - tested == elsewhere


def test_a_rule_of_the_stack_is_found_by_the_name_that_cloudformation_gives() -> None:
    """It shortens the name of the stack, as in a StackSet, and the logical ID of the rule."""
    arn = (
        "arn:aws:cloudformation:us-east-1:123456789012:stack/"
        "StackSet-nodes-1a2b3c4d-0000-4000-8000-1a2b3c4d5e6f/0123"
    )
    ours = rule(
        EVENTS[0], name="StackSet-nodes-1a2b3c4d-0-ReceiveNoticeFunctionWarn-1ABC", targets=()
    )
    others = (
        rule(EVENTS[0], name="leeway-of-others", targets=()),
        rule(
            EVENTS[0], name="StackSet-other-1a2b3c4d-0-ReceiveNoticeFunctionWarn-1ABC", targets=()
        ),
    )
    deployed = stack(arn=arn)

    def reason(*rules: RuleFacts) -> str:
        given = (*rules, *map(rule, EVENTS[1:]))
        return only(healthy(rules=given, **deployed)).reason

    assert reason(*others, ours).endswith(f": rule {ours.name} has no such target.")
    assert reason(*others).endswith(": there is no such rule.")


def test_a_stack_without_clusters_fails() -> None:
    given = {**stack(clusters=()), "clusters": ()}
    assert found(healthy(**given)) == [("fails", "StackWithoutClusters")]


def test_a_cluster_that_the_stack_does_not_manage_fails() -> None:
    one = only(healthy(**stack(clusters=("other",))))
    assert (one.code, one.command) == ("ClusterSettingDiffers", "leeway adopt prod")
    assert "ClusterNames of stack leeway does not have prod" in one.reason


def severity_of(words: str, facts: Facts) -> str | None:
    return next((one.severity.value for one in examine(facts) if words in one.reason), None)


@pytest.mark.parametrize(
    ("count", "unreserved", "severity"),
    [(900, 1000, None), (5000, 1000, "warns"), (20000, 1000, "fails"), (20000, 30000, None)],
)
def test_concurrency_is_compared_with_the_spot_instances(
    count: int, unreserved: int, severity: str | None
) -> None:
    facts = healthy(instances=spot(count), concurrency=unreserved, quotas={})
    assert severity_of("The functions of this account", facts) == severity


@pytest.mark.parametrize(("count", "severity"), [(2700, None), (3000, "warns"), (18300, "fails")])
def test_starts_are_compared_with_the_spot_instances(count: int, severity: str | None) -> None:
    facts = healthy(instances=spot(count), concurrency=10**6, quotas={})
    assert severity_of("Lambda starts 300 durable executions a second", facts) == severity


def test_terminations_are_limited_only_in_groups_without_a_terminate_hook() -> None:
    many = spot(101)
    assert found(healthy(instances=many)) == []
    words = "101 Spot instances are in groups without a terminate hook", "has no lifecycle hook"
    assert said(healthy(instances=many, **with_hooks(ADMIT)), *words) == ["warns", "warns"]


def test_quotas_count_all_instances_of_the_account_and_judge_only_those_of_clusters() -> None:
    others = spot(400, cluster="", group="")
    quota = {"L-34B43A08": 810.0}
    assert found(healthy(instances=spot(3) + others, quotas=quota)) == [("warns", "QuotaTooLow")]
    assert found(healthy(instances=others, quotas=quota)) == []
    gpus = spot(1, instance_type="g5.xlarge", vcpus=4)
    assert found(healthy(instances=gpus, quotas={"L-3819A6DF": 4.0})) == [("fails", "QuotaTooLow")]


def test_karpenter_is_no_second_handler_of_its_own_nodes() -> None:
    workloads = in_cluster(workloads=(KARPENTERS,))
    assert found(healthy(**workloads, rules=(THEIRS, *map(rule, EVENTS)))) == []
    taken = cluster(
        workloads=(KARPENTERS,),
        configuration=ConfigurationFacts(takes=("karpenter",), pools=("general",)),
    )
    assert found(healthy(clusters=(taken,))) == [("warns", "SecondHandler")]
    assert only(healthy(clusters=(taken,))).reason.startswith("Karpenter in namespace karpenter")


def test_managed_groups_are_a_finding_only_if_leeway_takes_them() -> None:
    managed = group(tags={}, hooks=(), node_group="ng", maximum=3, zones=("a",))
    left = cluster(groups=(managed,))
    assert found(healthy(clusters=(left,))) == []
    taken = replace(
        left,
        configuration=ConfigurationFacts(takes=("managed-node-group",), pools=("general",)),
    )
    assert found(healthy(clusters=(taken,))) == [("warns", "SecondHandler")]
    assert "lets Leeway take managed node groups" in only(healthy(clusters=(taken,))).reason


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
    severities = said(
        healthy(clusters=(facts,)),
        "has no access entry for",
        "NodeRoleArns of stack leeway does not name role other",
        "AmazonEKSWorkerNodePolicy: kubelet cannot join",
        "AmazonEC2ContainerRegistryPullOnly: nodes cannot pull images from ECR",
    )
    assert severities == ["fails", "fails", "warns", "warns"]


def test_a_cluster_that_is_not_active_fails() -> None:
    eks = was_read(cluster().eks)
    facts = cluster(eks=replace(eks, status="DELETING"))
    assert said(healthy(clusters=(facts,)), "Cluster prod is DELETING.") == ["fails"]


def test_a_private_endpoint_fails_for_functions_outside_of_its_network() -> None:
    eks = was_read(cluster().eks)
    hidden = replace(eks, endpoint=replace(eks.endpoint, public=False))
    assert found(healthy(clusters=(cluster(eks=hidden),))) == [("fails", "EndpointNotReachable")]


def test_a_mode_without_access_entries_fails_with_each_missing_entry() -> None:
    eks = was_read(cluster().eks)
    old = replace(eks, mode=Mode.CONFIG_MAP)
    facts = healthy(clusters=(cluster(eks=old, entries=()),))
    entry = "has no access entry for"
    assert said(facts, "the authentication mode CONFIG_MAP", entry, entry) == ["fails"] * 3


def test_an_account_without_the_role_for_spot_is_a_warning_if_leeway_launches_nodes() -> None:
    words = "AWSServiceRoleForEC2Spot"
    assert said(healthy(spot_role=False), words) == ["warns"]
    launches_none = in_cluster(pools=(), roles=())
    assert severity_of(words, healthy(spot_role=False, **launches_none)) is None


def test_a_foreign_tag_fails() -> None:
    tags = {"eks:cluster-name": GroupTag("web", "other")}
    words = "The tag eks:cluster-name of group web is 'other'"
    assert said(healthy(**with_groups(tags=tags)), words) == ["fails"]


def test_checks_are_made_once_each() -> None:
    assert len(set(CHECKS)) == len(CHECKS)


def test_without_policies_the_rights_that_only_they_limit_are_findings() -> None:
    rights = {**ROLE, "metadata": {"name": "leeway-headroom-buffer"}}
    given = cluster_objects([ROLE, BINDING, rights])
    facts = replace(healthy(), wanted_objects=given)
    assert said(replace(facts, **in_cluster(objects=given))) == []
    old = replace(facts, **in_cluster(policies=False, objects=given))
    said_of_old = ("has no admission policies", "lets leeway:headroom write any Deployment")
    assert sorted(said(old, *reversed(said_of_old))) == ["fails", "warns"]
    gone = replace(facts, **in_cluster(policies=False, objects=OBJECTS))
    assert said(gone, "has no admission policies") == ["warns"]
