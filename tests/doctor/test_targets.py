"""Findings about load balancers: pods and nodes that end while these keep connections to them."""

import shlex
from dataclasses import replace
from typing import Any

import pytest
from leeway_cli.doctor.examine import examine
from leeway_cli.doctor.facts import ConfigurationFacts, Facts, NodeTargets, PodTargets, TargetFacts
from leeway_cli.doctor.finding import Finding
from leeway_cli.doctor.read.targets import sleep_of

from tests.doctor.cases import cluster, healthy

ARN = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/k8s-web/0123456789abcdef"
PODS = PodTargets(ARN, 300, "shop", "deployment/web", container="web", gated=True)


PATCH = (
    '{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":345,"containers":[{"name":"web",'
    '"lifecycle":{"preStop":{"sleep":{"seconds":315}}}}]}}}}'
)


def with_targets(*, spot: bool = False, waits: bool = True, **targets: Any) -> Facts:
    """Facts that are healthy except for the targets of load balancers."""
    configuration = ConfigurationFacts(pools=("general",), waits_for_targets=waits)
    one = cluster(targets=TargetFacts(**targets), configuration=configuration)
    return healthy(clusters=(one,)) if spot else healthy(clusters=(one,), instances=())


def only(facts: Facts) -> Finding:
    (one,) = examine(facts)
    assert one.severity.value == "warns"
    return one


def test_pods_without_a_prestop_need_the_delay_of_their_target_group() -> None:
    one = only(with_targets(pods=(PODS,)))
    assert one.code == "TargetsCutOff"
    assert "keeps connections to the pods of deployment/web in namespace shop for 300 s" in (
        one.reason
    )
    assert "They need a preStop sleep of 315 s" in one.reason
    assert "terminationGracePeriodSeconds of 345." in one.reason
    assert shlex.split(one.command) == [
        "kubectl",
        "patch",
        "deployment/web",
        "--namespace=shop",
        "-p",
        PATCH,
    ]


@pytest.mark.parametrize(
    ("delay", "sleeps", "grace", "said"),
    [
        (300, 315, 400, None),
        (300, None, 30, None),
        (300, 314, 400, "preStop sleep of 315 s, and a terminationGracePeriodSeconds of 401"),
        (300, 315, 315, "of 315 s, and a terminationGracePeriodSeconds of 345"),
        (0, 0, 30, "preStop sleep of 15 s"),
        (0, 15, 30, None),
    ],
)
def test_pods_stay_as_long_as_their_target_group_keeps_connections(
    delay: int, sleeps: int | None, grace: int, said: str | None
) -> None:
    pods = replace(PODS, delay=delay, sleeps=sleeps, grace=grace)
    facts = with_targets(pods=(pods,))
    if said is None:
        assert examine(facts) == ()
    else:
        assert said in only(facts).reason


def test_on_spot_nodes_the_delay_is_shortened_to_what_two_minutes_leave() -> None:
    one = only(with_targets(spot=True, pods=(PODS,)))
    assert "shorten the delay to 60 s. They need a preStop sleep of 75 s" in one.reason
    shorten, patch = one.command.splitlines()
    assert shorten == (
        f"aws elbv2 modify-target-group-attributes --target-group-arn {ARN} "
        "--attributes Key=deregistration_delay.timeout_seconds,Value=60"
    )
    assert '"terminationGracePeriodSeconds":105' in patch
    enough = replace(PODS, delay=60, sleeps=75, grace=105)
    assert examine(with_targets(spot=True, pods=(enough,))) == ()


def test_pods_with_several_containers_get_no_command() -> None:
    assert only(with_targets(pods=(replace(PODS, container=""),))).command == ""


def test_a_namespace_without_readiness_gates_is_one_finding() -> None:
    web = replace(PODS, sleeps=315, grace=400, gated=False)
    api = replace(web, workload="deployment/api")
    one = only(with_targets(pods=(web, api)))
    assert one.code == "ReadinessGateMissing"
    assert "Pods of deployment/api, deployment/web in namespace shop" in one.reason
    assert one.command == (
        "kubectl label namespace shop elbv2.k8s.aws/pod-readiness-gate-inject=enabled"
    )


def test_nodes_end_before_their_target_groups_have_drained_them_without_the_setting() -> None:
    nodes = (NodeTargets(ARN, 60),)
    one = only(with_targets(waits=False, nodes=nodes))
    assert "Target group k8s-web keeps connections to a node for 60 s" in one.reason
    assert "without `waitForTargets: true`" in one.reason
    assert examine(with_targets(spot=True, nodes=nodes)) == ()
    assert examine(with_targets(waits=False, nodes=(NodeTargets(ARN, 0),))) == ()


def test_a_delay_that_outlasts_the_warning_of_a_spot_node_is_a_finding() -> None:
    one = only(with_targets(spot=True, nodes=(NodeTargets(ARN, 300),)))
    assert "EC2 ends an interrupted Spot instance 120 s after its warning" in one.reason
    assert one.command.endswith("Key=deregistration_delay.timeout_seconds,Value=90")
    assert examine(with_targets(nodes=(NodeTargets(ARN, 300),))) == ()


def test_the_target_groups_of_an_auto_scaling_group_need_no_wait_and_a_short_delay() -> None:
    attached = (NodeTargets(ARN, 300),)
    assert examine(with_targets(waits=False, attached=attached)) == ()
    one = only(with_targets(spot=True, waits=False, attached=attached))
    assert "EC2 ends an interrupted Spot instance 120 s after its warning" in one.reason


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        ({}, 0),
        ({"sleep": {"seconds": 20}}, 20),
        ({"exec": {"command": ["sleep", "25"]}}, 25),
        ({"exec": {"command": ["/bin/sh", "-c", "sleep 20 && nginx -s quit; sleep 1m"]}}, 80),
        ({"exec": {"command": ["/quit.sh"]}}, None),
        ({"httpGet": {"path": "/quit", "port": 80}}, None),
    ],
)
def test_the_sleep_of_a_hook_is_read(hook: dict[str, Any], seconds: int | None) -> None:
    assert sleep_of(hook) == seconds
