"""A run launches nodes for pods, goes around what EC2 refuses, and says why a pod has none."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Barrier
from typing import Any

import pytest
from leeway.launch.belonging import Subnet
from leeway.launch.images import Image, ImageVariant, parameters_of
from leeway.launch.intent import (
    INTENT,
    INTENT_BY_HAND,
    JOIN_WITHIN,
    REPEAT_WITHIN,
    LaunchOutcome,
)
from leeway.launch.launch_nodes import MOST_ROUNDS, LaunchNodes
from leeway.launch.launch_run import LONGEST_WHY
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.selection.labels import NODEPOOL
from leeway.selection.offers.catalog import ANY, Catalog, Unavailable
from leeway.selection.pods import ExistingNode, Pod, PodSpec, Taint, Toleration
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from tests.fakes.fleets import Shortage
from tests.launch.launching import NOW, ZONES, World, codes, order
from tests.launch.pools import ONE_POD_EACH, node_class, pods, pool, settings, with_class


def test_pods_get_nodes_of_their_pool_and_each_node_is_admitted(
    world: World, catalog: Catalog
) -> None:
    outcome = world.launch_nodes.launch(order(catalog))
    assert outcome.complete
    assert outcome.reasons == ()
    assert len(outcome.launched) == 3
    assert {one.instance.instance for one in outcome.launched} == world.fleets.running.keys()
    assert sorted(world.admitted()) == sorted(world.fleets.running)
    assert [one.pool for one in outcome.launched] == ["web"] * 3
    (request,) = world.fleets.requests
    assert (request.count, request.capacity_type) == (3, "spot")
    assert request.tags["leeway.sh/intent"] == outcome.launched[0].intent
    placed = [pod for one in outcome.placed for pod in one.pods]
    assert sorted(placed) == [f"shop/web-{n}" for n in range(3)]


def test_the_next_run_finds_the_places_that_a_launch_has_named(
    world: World, catalog: Catalog
) -> None:
    some = pods(7, cpu=40_000)
    first = world.launch_nodes.launch(order(catalog, waiting=some))
    again = world.launch_nodes.launch(order(catalog, waiting=some))
    assert again.launched == ()
    assert first.complete
    assert again.complete

    def sizes(outcome: LaunchOutcome) -> list[int]:
        return sorted(len(one.pods) for one in outcome.placed)

    assert sizes(first) == sizes(again)
    assert {one.node for one in first.placed} == world.fleets.running.keys()
    assert sorted(world.admitted()) == sorted(world.fleets.running), "each once"


def test_the_admission_has_the_labels_and_the_deadline_of_the_node(
    world: World, catalog: Catalog
) -> None:
    taint = {"key": "example.com/starting", "effect": "NoSchedule"}
    starting = pool(only=ONE_POD_EACH, template={"startupTaints": [taint]})
    world.launch_nodes.launch(order(catalog, starting, node_class()))
    records = list(world.admissions.values())
    assert len(records) == 3
    for record in records:
        assert record.labels["karpenter.sh/nodepool"] == "web"
        assert record.labels["karpenter.sh/capacity-type"] == "spot"
        assert record.startup_taints == ("example.com/starting",)
        assert record.deadline == NOW + JOIN_WITHIN
        assert record.launch is not None
        assert (record.launch.pool, record.launch.at) == ("web", NOW)
        assert record.launch.intent in {one.id for one in world.table.list(INTENT, cluster="prod")}
        assert record.taints == (), "the user data registers the node with them"
        assert record.facts.zone in ZONES
    named = [one for one in records if one.facts.private_dns_name]
    assert len(named) == 2, "EC2 does not describe one of them yet"


def test_all_new_instances_are_described_by_one_call(world: World, catalog: Catalog) -> None:
    world.launch_nodes.launch(order(catalog))
    assert world.descriptions == [frozenset(world.fleets.running)]


def test_admissions_start_while_ec2_describes_no_instance(world: World, catalog: Catalog) -> None:
    world.undescribed = True
    outcome = world.launch_nodes.launch(order(catalog))
    assert outcome.reasons == ()
    assert sorted(world.admitted()) == sorted(world.fleets.running)
    assert {one.facts.cluster for one in world.admissions.values()} == {"prod"}


def test_a_node_that_has_joined_is_counted_once(world: World, catalog: Catalog) -> None:
    first = world.launch_nodes.launch(order(catalog))
    joined = {one.instance.instance: one.instance.instance for one in first.launched}
    more = pods(1, cpu=90_000, name="more")
    world.launch_nodes.launch(order(catalog, waiting=more, joined=joined))
    assert len(world.fleets.running) == 4


def test_without_spot_capacity_the_same_run_launches_on_demand(
    world: World, catalog: Catalog
) -> None:
    world.fleets.shortages = [Shortage(capacity_type="spot")]
    outcome = world.launch_nodes.launch(order(catalog))
    assert outcome.complete
    assert {one.instance.capacity_type for one in outcome.launched} == {"on-demand"}
    assert codes(outcome) == {"CapacityUnavailable"}
    marked = world.offerings.now("us-east-1", NOW)
    assert marked
    assert {one.capacity_type for one in marked} == {"spot"}
    assert world.offerings.now("us-east-1", NOW + timedelta(minutes=3)) == frozenset()


def test_a_launch_by_hand_writes_nothing_for_other_runs(world: World, catalog: Catalog) -> None:
    world.fleets.shortages = [Shortage(capacity_type="spot")]
    by_hand = replace(world.deps, intents=INTENT_BY_HAND, admit_node=None)
    assert LaunchNodes(by_hand).launch(order(catalog)).complete
    assert world.offerings.now("us-east-1", NOW) == frozenset()
    assert {pk for pk, _ in world.table.items} == {"MANUALLAUNCH#prod"}


def test_a_pool_of_spot_alone_is_not_launched_on_demand(world: World, catalog: Catalog) -> None:
    world.fleets.shortages = [Shortage(capacity_type="spot")]
    outcome = world.launch_nodes.launch(order(catalog, pool(capacity=["spot"]), node_class()))
    assert not world.fleets.running
    assert len(outcome.without_node) == 3
    for pod in outcome.without_node:
        assert pod.reason.code == "PodWithoutNode"
        assert "EC2 has no spot capacity" in pod.reason.message


def test_a_spot_quota_ends_spot_of_its_types_with_one_mark(world: World, catalog: Catalog) -> None:
    world.fleets.shortages = [Shortage("MaxSpotInstanceCountExceeded", capacity_type="spot")]
    outcome = world.launch_nodes.launch(order(catalog))
    assert outcome.complete
    assert codes(outcome) == {"QuotaReached"}
    quota = "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"
    assert world.offerings.now("us-east-1", NOW) == {Unavailable(quota, ANY, "spot")}
    spot, on_demand = world.fleets.requests
    assert (spot.capacity_type, on_demand.capacity_type) == ("spot", "on-demand")


def test_the_spot_quota_of_gpus_leaves_spot_of_other_types(world: World, catalog: Catalog) -> None:
    world.offer_images(*map(partial(ImageVariant, "x86_64"), ("", "nvidia")))
    world.fleets.shortages = [
        Shortage("MaxSpotInstanceCountExceeded", instance_type="g*", capacity_type="spot")
    ]
    gpus = pool("gpus", capacity=["spot"], categories=["g"])
    given = (gpus, pool(only=ONE_POD_EACH), node_class())
    resources = Resources({"cpu": 1000, "memory": 2**30, "pods": 1, "nvidia.com/gpu": 1})
    gpu = Pod("shop/gpu-0", PodSpec(requests=resources))
    for count in (1, 2):
        waiting = [gpu, *pods(count, cpu=90_000)]
        outcome = world.launch_nodes.launch(order(catalog, *given, waiting=waiting))
        (without,) = outcome.without_node
        assert without.pod == gpu.name
        (launched,) = outcome.launched
        assert (launched.pool, launched.instance.capacity_type) == ("web", "spot")
    assert "EC2 has refused or interrupted" in without.reason.message
    refused = [one for one in world.fleets.requests if one.overrides[0].instance_type[0] == "g"]
    assert len(refused) == 1, "the mark ends all types of the quota at once"


def test_a_zone_without_capacity_is_avoided(world: World, catalog: Catalog) -> None:
    world.fleets.shortages = [Shortage(zone="us-east-1a"), Shortage(zone="us-east-1b")]
    outcome = world.launch_nodes.launch(order(catalog))
    assert outcome.complete
    assert {one.instance.zone for one in outcome.launched} == {"us-east-1c"}


def test_a_subnet_that_is_full_is_replaced_by_another_one(world: World, catalog: Catalog) -> None:
    for zone in ZONES:
        name = f"subnet-small-{zone[-1]}"
        world.networks.known[name] = Subnet(name, zone, 500, "vpc-1")
        world.networks.tags = {**world.networks.tags, name: {"discovery": "prod"}}
    world.fleets.free = {f"subnet-{zone[-1]}": 0 for zone in ZONES}
    outcome = world.launch_nodes.launch(order(catalog))
    assert outcome.complete
    assert codes(outcome) >= {"SubnetWithoutAddresses"}
    assert world.offerings.now("us-east-1", NOW) == frozenset(), "no offering is to blame"


def test_subnets_without_addresses_end_the_launch_with_a_reason(
    world: World, catalog: Catalog
) -> None:
    world.fleets.free = {f"subnet-{zone[-1]}": 0 for zone in ZONES}
    outcome = world.launch_nodes.launch(order(catalog))
    assert len(outcome.without_node) == 3
    assert codes(outcome) >= {"SubnetWithoutAddresses"}


def test_another_pool_is_used_if_one_cannot_be_launched_from(
    world: World, catalog: Catalog
) -> None:
    first, broken = with_class(pool("first", weight=10), role=None)
    outcome = world.launch_nodes.launch(order(catalog, first, pool(), broken, node_class()))
    assert outcome.complete
    assert {one.pool for one in outcome.launched} == {"web"}
    assert codes(outcome) == {"PoolSettingWrong"}
    assert "pool first has no node role" in outcome.reasons[0].message


def test_a_pod_of_a_blocked_pool_has_the_reason_of_the_block_and_not_of_other_pools(
    world: World, catalog: Catalog
) -> None:
    documents = (*with_class(pool("a"), role=None), *with_class(pool("b"), userData="x" * 16_400))
    causes = {"a": ["pool a has no node role"], "b": ["the user data of pool b", "16,384 bytes"]}
    for name, told in causes.items():
        terms = (Requirements([Requirement.of(NODEPOOL, "In", [name])]),)
        (pod,) = pods(1)
        waiting = [replace(pod, spec=replace(pod.spec, terms=terms)), *pods(1, name="any")]
        given = (*documents, pool(), node_class())
        outcome = world.launch_nodes.launch(order(catalog, *given, waiting=waiting))
        (without,) = outcome.without_node
        assert (without.pod, without.cause.code) == (pod.name, "PoolSettingWrong")
        assert all(wanted in without.cause.message for wanted in told)
        assert without.reason.message.endswith(without.cause.message)


def test_a_pod_that_fits_no_pool_does_not_have_the_reason_of_a_blocked_one(
    world: World, catalog: Catalog
) -> None:
    huge = pods(1, cpu=900_000, name="huge")
    given = (*with_class(pool("a"), role=None), pool(), node_class())
    outcome = world.launch_nodes.launch(order(catalog, *given, waiting=[*pods(1), *huge]))
    (without,) = outcome.without_node
    assert without.cause.code == "RequestTooLarge"
    assert "node role" not in without.reason.message


def test_the_reason_of_a_pod_quotes_a_part_of_very_long_requirements(
    world: World, catalog: Catalog
) -> None:
    names = [f"ip-10-0-0-{number}.ec2.internal" for number in range(20_000)]
    terms = (Requirements([Requirement.of("example.com/host", "In", names)]),)
    waiting = [replace(pod, spec=replace(pod.spec, terms=terms)) for pod in pods(3)]
    outcome = world.launch_nodes.launch(order(catalog, waiting=waiting))
    assert len(outcome.without_node) == 3
    for without in outcome.without_node:
        assert without.pod in without.reason.message
        assert len(without.reason.message) < LONGEST_WHY + 200


REFUSALS = {"UnauthorizedOperation": "LaunchRefused", "MaxFleetCountExceeded": "QuotaReached"}


@pytest.mark.parametrize("whole", [True, False], ids=["the call", "each override"])
@pytest.mark.parametrize("code", REFUSALS)
def test_a_refused_launch_ends_with_its_reason_on_every_pod(
    world: World, catalog: Catalog, code: str, whole: bool
) -> None:
    if whole:
        world.fleets.refused = code
    else:
        world.fleets.shortages = [Shortage(code)]
    outcome = world.launch_nodes.launch(order(catalog))
    assert not world.fleets.running
    assert codes(outcome) == {REFUSALS[code]}
    assert len(outcome.without_node) == 3
    assert len(world.fleets.requests) <= 2 * MOST_ROUNDS, "the run does not loop"
    expected = next(one.message for one in outcome.reasons)
    assert expected
    if whole:
        assert all(expected in pod.reason.message for pod in outcome.without_node)
        # EC2 also denies a launch whose template was deleted: it is requested once more.
        assert len(world.fleets.requests) == (2 if code == "UnauthorizedOperation" else 1)


def broken_worlds() -> dict[str, tuple[Any, str]]:
    def without_subnets(world: World) -> None:
        world.networks.known.clear()

    def without_cluster(world: World) -> None:
        world.clusters.known.clear()

    return {
        "subnets": (without_subnets, "no subnet matches"),
        "cluster": (without_cluster, "Leeway cannot read from AWS"),
    }


@pytest.mark.parametrize("missing", broken_worlds())
def test_what_is_missing_in_aws_is_the_reason_and_nothing_is_written(
    world: World, catalog: Catalog, missing: str
) -> None:
    break_, wanted = broken_worlds()[missing]
    break_(world)
    outcome = world.launch_nodes.launch(order(catalog))
    (reason,) = outcome.reasons
    assert reason.code in {"PoolSettingWrong", "PoolNotRead"}
    assert wanted in reason.message
    assert len(outcome.without_node) == 3
    assert not world.table.items
    assert not world.fleets.requests


def test_types_without_an_ami_are_left_out_with_a_warning(world: World, catalog: Catalog) -> None:
    arm = parameters_of(settings(node_class()), "1.34", [ImageVariant("arm64")])
    for name in arm.values():
        del world.images.values[name]
    both = pool(arch=["amd64", "arm64"])
    outcome = world.launch_nodes.launch(order(catalog, both, node_class()))
    assert outcome.complete
    assert codes(outcome) == {"PoolSettingWrong"}
    assert "no AMI for arm64" in outcome.reasons[0].message
    for one in outcome.launched:
        machine = catalog.machine(one.instance.instance_type)
        assert machine is not None
        assert not machine.arm


def test_a_launch_that_ec2_never_answers_is_resolved_by_the_next_run(
    world: World, catalog: Catalog
) -> None:
    world.fleets.lost = 100
    outcome = world.launch_nodes.launch(order(catalog))
    assert codes(outcome) == {"LaunchUnanswered"}
    assert len(outcome.without_node) == 3
    assert world.admitted() == []
    world.fleets.lost = 0
    assert world.launch_nodes.launch(order(catalog)).complete
    assert len(world.fleets.running) == 3
    assert len(world.admitted()) == 3


def test_an_answer_with_neither_instances_nor_errors_is_no_answer(
    world: World, catalog: Catalog
) -> None:
    world.fleets.empty = 1
    outcome = world.launch_nodes.launch(order(catalog))
    assert outcome.complete
    assert len(outcome.launched) == len(world.fleets.running) == 3


def test_instances_that_no_answer_names_are_found_by_a_later_run(
    world: World, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fleets.empty = 1000
    monkeypatch.setattr(world.fleets, "launched_by", lambda _: [])  # EC2 shows them late
    outcome = world.launch_nodes.launch(order(catalog))
    assert codes(outcome) == {"LaunchUnanswered"}
    monkeypatch.undo()
    outcome = world.launch_nodes.launch(order(catalog))
    assert outcome.complete
    assert len(outcome.launched) == len(world.fleets.running) == 3
    assert len(world.admitted()) == 3


@pytest.mark.parametrize("passed", [timedelta(0), REPEAT_WITHIN])
def test_nodes_that_join_before_the_answer_of_their_launch_is_had_are_not_launched_twice(
    world: World, catalog: Catalog, passed: timedelta
) -> None:
    world.fleets.lost = 100
    world.launch_nodes.launch(order(catalog))
    world.fleets.lost = 0
    world.time += passed
    starting = (Taint("node.kubernetes.io/not-ready"),)
    room = Resources({"cpu": 94_000, "memory": 2**38, "pods": 100})
    joined = {instance: f"{instance}.internal" for instance in world.fleets.running}
    nodes = [ExistingNode(name, {}, room, taints=starting) for name in joined.values()]
    outcome = world.launch_nodes.launch(order(catalog, nodes=nodes, joined=joined))
    assert outcome.complete
    assert {one.node for one in outcome.placed} == set(joined.values())
    assert len(world.fleets.running) == 3


def test_after_some_minutes_the_instances_of_a_lost_answer_are_found_by_their_tag(
    world: World, catalog: Catalog
) -> None:
    world.fleets.lost = 100
    world.launch_nodes.launch(order(catalog))
    world.fleets.lost = 0
    requests = len(world.fleets.requests)
    world.time = NOW + REPEAT_WITHIN
    outcome = world.launch_nodes.launch(order(catalog))
    assert outcome.complete
    assert len(outcome.launched) == 3
    assert len(world.fleets.requests) == requests
    assert len(world.fleets.running) == 3


def test_an_admission_that_cannot_be_started_is_started_by_the_next_run(
    world: World, catalog: Catalog
) -> None:
    world.starts.failures = 6 * 3
    outcome = world.launch_nodes.launch(order(catalog))
    assert "LaunchedNodeNotAdmitted" in codes(outcome)
    assert len(world.fleets.running) == 3
    world.starts.failures = 0
    world.launch_nodes.launch(order(catalog))
    assert sorted(world.admitted()) == sorted(world.fleets.running)


def test_different_launches_are_requested_side_by_side(world: World, catalog: Catalog) -> None:
    arms = pool("arms", arch=["arm64"], limits={"nodes": 1}, weight=10)
    outcome = world.launch_nodes.launch(order(catalog, arms, pool(), node_class()))
    assert outcome.complete
    assert {one.pool for one in outcome.launched} == {"arms", "web"}
    intents = world.table.list(INTENT, cluster="prod")
    assert len(intents) == len(world.fleets.requests) == 2


@pytest.mark.parametrize(
    ("name", "count"), [("n" * 63 + "/" + "p" * 240, 1500), ("shop/" + "p" * 40, 9000)]
)
def test_equal_nodes_are_several_launches_if_one_item_cannot_name_all_their_pods(
    world: World, catalog: Catalog, name: str, count: int
) -> None:
    (one,) = pods(1, cpu=100, memory=2**27)
    waiting = [replace(one, name=f"{name}-{number}") for number in range(count)]
    outcome = world.launch_nodes.launch(order(catalog, pool(), node_class(), waiting=waiting))
    assert outcome.complete, outcome.without_node[:1]
    assert outcome.reasons == ()
    names = sorted(pod.name for pod in waiting)
    intents = world.table.list(INTENT, cluster="prod")
    assert sorted(pod for each in intents for pod in each.pods) == names
    assert 1 < len(intents) == len(world.fleets.requests) < 10
    assert sorted(pod for each in outcome.placed for pod in each.pods) == names
    assert max(len(each.model_dump_json()) for each in intents) < 300_000


def test_a_launch_that_the_table_refuses_blocks_only_its_pool(
    world: World, catalog: Catalog
) -> None:
    arms = pool("arms", arch=["arm64"], limits={"nodes": 1}, weight=10)
    world.table.fail(CloudRefused("PutItem: ValidationException"), "put", key="#intent-1")
    outcome = world.launch_nodes.launch(order(catalog, arms, pool(), node_class()))
    assert outcome.complete, "the pods of the refused launch have nodes of the other pool"
    assert {one.pool for one in outcome.launched} == {"web"}
    assert sorted(world.admitted()) == sorted(world.fleets.running)
    (reason,) = outcome.reasons
    assert reason.code == "LaunchIntentRefused"
    assert "1 node of pool arms" in reason.message
    assert "ValidationException" in reason.message


def test_a_preview_writes_and_launches_nothing(world: World, catalog: Catalog) -> None:
    preview = world.launch_nodes.preview(order(catalog))
    (prepared,) = preview.prepared
    assert prepared.intent.request is not None
    assert prepared.intent.request.count == 3
    assert prepared.templates
    assert preview.outcome.launched == ()
    assert preview.outcome.complete
    assert not world.table.items
    assert not world.templates.existing
    assert not world.fleets.requests


def test_a_table_that_cannot_be_read_launches_nothing(world: World, catalog: Catalog) -> None:
    world.table.fail(CloudUnavailable("DynamoDB does not answer"))
    with pytest.raises(CloudUnavailable):
        world.launch_nodes.launch(order(catalog))
    assert not world.fleets.requests


def test_a_template_that_was_deleted_is_created_again_in_the_same_run(
    world: World, catalog: Catalog
) -> None:
    world.launch_nodes.launch(order(catalog))
    world.templates.existing.clear()
    more = pods(2, cpu=90_000, name="more")
    outcome = world.launch_nodes.launch(order(catalog, waiting=[*pods(3, cpu=90_000), *more]))
    assert outcome.complete, outcome.without_node
    assert len(world.fleets.running) == 5
    assert codes(outcome) == {"LaunchRepeated"}
    assert world.templates.existing


def test_a_denied_launch_is_repeated_once_after_its_templates_were_read_again(
    world: World, catalog: Catalog
) -> None:
    world.launch_nodes.launch(order(catalog))
    world.templates.existing.clear()
    world.fleets.unknown = "UnauthorizedOperation"
    more = pods(2, cpu=90_000, name="more")
    outcome = world.launch_nodes.launch(order(catalog, waiting=[*pods(3, cpu=90_000), *more]))
    assert outcome.complete, outcome.without_node
    assert len(world.fleets.running) == 5
    assert codes(outcome) == set()


def test_a_missing_permission_blocks_the_pool_for_the_run_and_not_for_the_next_one(
    world: World, catalog: Catalog
) -> None:
    world.fleets.refused = "UnauthorizedOperation"
    outcome = world.launch_nodes.launch(order(catalog))
    assert len(world.fleets.requests) == 2
    assert codes(outcome) == {"LaunchRefused"}
    assert {one.cause.code for one in outcome.without_node} == {"LaunchRefused"}
    world.fleets.refused = ""
    assert world.launch_nodes.launch(order(catalog)).complete


def test_the_taints_of_custom_user_data_are_put_on_by_admission(
    world: World, catalog: Catalog
) -> None:
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    starting = [{"key": "agent", "effect": "NoExecute"}]
    own = pool(
        labels={"own": "x"},
        annotations={"karpenter.sh/do-not-disrupt": "true"},
        template={"taints": taints, "startupTaints": starting},
    )
    terms = [{"id": "ami-1"}]
    world.images.known["ami-1"] = Image("ami-1", "own", "x86_64", NOW, "/dev/xvda")
    custom = node_class(amiFamily="Custom", amiSelectorTerms=terms, userData="#!/bin/sh")
    tolerating = [
        replace(one, spec=replace(one.spec, tolerations=(Toleration(key="team", value="a"),)))
        for one in pods(1, cpu=90_000)
    ]
    outcome = world.launch_nodes.launch(order(catalog, own, custom, waiting=tolerating))
    assert outcome.complete, outcome.without_node
    (record,) = world.admissions.values()
    assert {(one.key, one.value, one.effect) for one in record.taints} == {
        ("team", "a", "NoSchedule"),
        ("agent", "", "NoExecute"),
    }
    assert record.labels["own"] == "x"
    assert record.annotations == {"karpenter.sh/do-not-disrupt": "true"}
    assert record.startup_taints == ("agent",)


class Together:
    """A port whose reads end only when all reads of this name have begun."""

    def __init__(self, port: Any, name: str, barrier: Barrier) -> None:
        self._port, self._name, self._barrier = port, name, barrier

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            self._barrier.wait()
        return getattr(self._port, name)


def test_the_resources_of_a_pool_are_read_side_by_side(catalog: Catalog) -> None:
    world, first, then = World(), Barrier(2, timeout=60), Barrier(3, timeout=60)
    networks = Together(world.networks, "subnets", first)
    ports: dict[str, Any] = {
        "networks": Together(networks, "security_groups", then),
        "profiles": Together(world.profiles, "profiles_of", then),
        "images": Together(world.images, "parameters", then),
        "clusters": Together(world.clusters, "node_cluster", first),
    }
    sources = replace(world.deps.sources, **ports)
    outcome = LaunchNodes(replace(world.deps, sources=sources)).launch(order(catalog))
    assert len(outcome.launched) == 3


def test_refused_offerings_come_before_what_is_left(world: World, catalog: Catalog) -> None:
    world.fleets.shortages = [Shortage()]
    outcome = world.launch_nodes.launch(order(catalog))
    assert {one.cause.code for one in outcome.without_node} == {"OfferingsRefused"}
    for one in outcome.without_node:
        assert "of node pool web that fit the pod" in one.cause.message
        assert "None of" not in one.cause.message
    again = world.launch_nodes.preview(order(catalog)).outcome
    assert {one.cause.code for one in again.without_node} == {"OfferingsRefused"}, "by the marks"


def test_a_run_without_time_says_first_what_ec2_has_refused(
    world: World, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = world.fleets.create

    def slow(*given: Any) -> Any:
        world.time += timedelta(seconds=10)
        return create(*given)

    monkeypatch.setattr(world.fleets, "create", slow)
    world.fleets.shortages = [Shortage(capacity_type="spot")]
    hurried = order(catalog, until=NOW + timedelta(seconds=5))
    outcome = world.launch_nodes.launch(hurried)
    assert {one.cause.code for one in outcome.without_node} == {"CapacityUnavailable"}
    for one in outcome.without_node:
        refused, late = "EC2 has no spot capacity", "the run has no time left"
        assert 0 < one.reason.message.index(refused) < one.reason.message.index(late)
