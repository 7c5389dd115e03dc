"""A successor by name: its zone, when it is relied on, and what is done where there is none."""

from dataclasses import replace
from datetime import timedelta

import pytest
from leeway.instances.groups import GroupFacts
from leeway.ports.aws import Launched
from leeway.ports.kubernetes_objects import Attachment, Node
from leeway.ports.table import Offering
from leeway.replacement.launch import SuccessorLaunch
from leeway.retire_node.outcome import RetirementResult

from tests.retire_node.retiring import (
    HOOKED,
    POD,
    SUCCESSOR,
    ZONES,
    Surrounding,
    rebalanced,
    retire,
)
from tests.retirement.retirements import FACTS, NOTICED

BY_ITSELF = {"launch_unsupported": "mixes On-Demand and Spot Instances"}


def test_where_nothing_is_launched_by_name_it_is_detached_and_waits_as_well() -> None:
    world = rebalanced(hooks=(), facts_=BY_ITSELF)
    outcome = retire(world)
    assert world.order_of("detach", "evict") == ["detach", "evict"]
    assert "group ng mixes On-Demand and Spot Instances" in outcome.replacement_reason
    assert f"successor {SUCCESSOR} is Ready" in outcome.replacement_reason
    assert world.ended == ["terminated"]
    assert world.record.ended_at is not None, "reconcile must not take it up again at once"


def test_a_hook_is_kept_waiting_while_the_groups_own_successor_is_waited_for() -> None:
    world = rebalanced(facts_=BY_ITSELF, tells_of_hooks=True, timeout=60, starts_in=200)
    outcome = retire(world)
    assert world.order_of("terminate", "evict") == ["terminate", "evict"]
    evicted = next(at for what, at in world.done if what == "evict")
    assert evicted - NOTICED >= timedelta(seconds=200)
    assert len([at for at in world.beaten if at < evicted]) >= 4
    assert (outcome.result, world.ended) == (RetirementResult.DRAINED, [*HOOKED])


def test_a_successor_that_another_retirement_has_is_not_this_ones() -> None:
    world = rebalanced(starts_in=100)
    theirs = "i-0aneighbours000000"
    node = world.node

    def node_named(name: str) -> Node | None:
        if name == theirs:
            return Node(name, "uid-3", f"aws:///z/{theirs}", False, True, {})
        return node(name)

    world.node = node_named  # type: ignore[method-assign]
    came = FACTS.model_copy(update={"instance": theirs, "private_dns_name": theirs})
    world.launched_in = lambda group, since: [came]  # type: ignore[method-assign]
    outcome = retire(world)
    evicted = next(at for what, at in world.done if what == "evict")
    assert evicted - NOTICED >= timedelta(seconds=100)
    assert [one.instance for one in outcome.successors] == [SUCCESSOR]


def test_what_its_group_launched_for_an_interrupted_instance_is_not_relied_on() -> None:
    world = rebalanced(starts_in=120, facts_=BY_ITSELF)
    theirs = "i-0aneighbours000000"
    node, launched_in = world.node, world.launched_in
    came = FACTS.model_copy(update={"instance": theirs, "private_dns_name": theirs})

    def node_named(name: str) -> Node | None:
        if name == theirs:
            return Node(name, "uid-3", f"aws:///z/{theirs}", False, True, {})
        return node(name)

    world.node = node_named  # type: ignore[method-assign]
    world.launched_in = lambda group, since: [came, *launched_in(group, since)]  # type: ignore[method-assign]
    outcome = retire(world)
    evicted = next(at for what, at in world.done if what == "evict")
    assert evicted - NOTICED >= timedelta(seconds=120), "another one is not Ready"
    assert "is Ready" in outcome.replacement_reason


def test_the_pods_that_need_its_zone_are_the_reason_for_it() -> None:
    tied = replace(POD, bound_to_zone="topology spread")
    db = replace(POD, name="db-0", uid="u-2", claims=("shop/data",))
    world = rebalanced(pods=[db, tied])
    world.attachments_on = lambda node: [Attachment("pv-1", "shop/data")]  # type: ignore[method-assign]
    launching = SuccessorLaunch(world.dependencies.context, world, world.offerings, "us-east-1")
    [choice, *_] = launching.zones_for(world.record, facts_of(world))
    assert choice.zone == "us-east-1a"
    assert choice.why == "shop/db-0 needs us-east-1a (a volume), as 1 more of its pods do"


def facts_of(world: Surrounding) -> GroupFacts:
    facts = world.facts(FACTS.instance)
    assert facts is not None
    return facts


def test_a_zone_without_capacity_is_marked_and_the_next_is_asked_in_the_same_run() -> None:
    world = rebalanced(full={"us-east-1a"})
    outcome = retire(world)
    assert [one.zone for one in outcome.successors] == ["us-east-1f"]
    assert "since us-east-1a has no capacity now" in outcome.replacement_reason
    [marked] = world.offerings.marked
    assert (marked.instance_type, marked.zone, marked.capacity_type) == (
        "m5.large",
        "us-east-1a",
        "spot",
    )
    assert (world.operations, world.desired) == (retire_operations(), 3)


def retire_operations() -> int:
    world = rebalanced()
    retire(world)
    return world.operations


def test_a_zone_that_is_known_to_have_no_capacity_is_not_asked() -> None:
    world = rebalanced(full={"us-east-1a"})
    world.offerings.mark(Offering("us-east-1", "m5.large", "us-east-1a", "spot"), "", NOTICED)
    assert [one.zone for one in retire(world).successors] == ["us-east-1f"]
    assert len(world.launched) == 1


@pytest.mark.parametrize("known", [False, True])
def test_where_no_zone_has_capacity_the_group_replaces_it_and_the_outcome_says_so(
    known: bool,
) -> None:
    world = rebalanced(full={*ZONES}, tells_of_hooks=True)
    for zone in ZONES if known else ():
        world.offerings.mark(Offering("us-east-1", "m5.large", zone, "spot"), "", NOTICED)
    outcome = retire(world)
    assert outcome.replacement == "terminate-in-group"
    said = "no zone of group ng has" if known else "InsufficientInstanceCapacity for m5.large in"
    assert said in outcome.replacement_reason
    assert world.order_of("launch", "terminate", "evict") == ["terminate", "evict"]
    assert (world.desired, world.record.must_restore_capacity) == (3, False)


def test_what_the_group_refuses_is_said_and_it_replaces_the_instance_by_itself() -> None:
    world = rebalanced(refuses="AccessDenied: autoscaling:LaunchInstances", tells_of_hooks=True)
    outcome = retire(world)
    assert outcome.replacement == "terminate-in-group"
    assert "AccessDenied: autoscaling:LaunchInstances" in outcome.replacement_reason


def test_a_successor_that_fails_is_noticed_and_its_group_launches_another_one() -> None:
    world = rebalanced(dies=True, starts_in=None)

    def recover(step: str) -> None:
        if step == "successor-9":
            world.starts_in = 0

    world.before_step = recover
    outcome = retire(world)
    assert f"successor {SUCCESSOR} left group ng before it was Ready" in outcome.replacement_reason
    assert "is Ready" in outcome.replacement_reason
    assert world.order_of("launch") == ["launch"], "its group asks for the next by itself"
    assert world.desired == 3


def test_a_successor_that_does_not_join_is_ended_and_its_group_launches_another_one() -> None:
    world = rebalanced(starts_in=None)
    end = world.terminate_in_group

    def ends(instance: str, decrement: bool = False) -> None:
        end(instance, decrement)
        world.starts_in = 60

    world.terminate_in_group = ends  # type: ignore[method-assign]
    outcome = retire(world)
    assert "had no node in 5 minutes and was ended" in outcome.replacement_reason
    assert world.order_of("launch", "end successor", "evict", "terminate and decrement") == [
        "launch",
        "end successor",
        "evict",
        "terminate and decrement",
    ]
    assert world.desired == 3


def test_a_successor_that_joined_under_another_name_is_not_ended() -> None:
    world = rebalanced(starts_in=None)
    joined = Node("other", "uid-2", f"aws:///z/{SUCCESSOR}", False, True, {})
    world.node_of = lambda instance, names: joined  # type: ignore[method-assign]
    assert "no successor was Ready in 10 minutes" in retire(world).replacement_reason
    assert world.order_of("end successor") == []


def test_of_a_group_that_counts_units_as_many_are_asked_for_as_the_instance_is() -> None:
    world = rebalanced(facts_={"units": 4, "desired": 12, "minimum": 0, "maximum": 16}, maximum=16)
    launch, asked = world.launch, []

    def launches(group: str, zone: str, units: int, token: str) -> Launched:
        asked.append((zone, units, token))
        return launch(group, zone, units, token)

    world.launch = launches  # type: ignore[method-assign]
    assert retire(world).result is RetirementResult.DRAINED
    assert asked == [("us-east-1a", 4, f"{FACTS.instance}-1-us-east-1a")]


def test_a_record_does_not_grow_with_its_group() -> None:
    world = rebalanced()
    retire(world)
    assert len(world.record.model_dump_json()) < 2500
