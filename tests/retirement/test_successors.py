"""Successors: their zones, when they count as Ready, and the fallback without one."""

from dataclasses import replace
from datetime import timedelta

import pytest
from leeway.catalog.unavailable import Offering
from leeway.instances.facts import GroupFacts
from leeway.policy.rules import SUCCESSOR_TIMEOUT
from leeway.ports.aws import CloudUnavailable, Launched
from leeway.ports.kubernetes_objects import Attachment, Node
from leeway.retirement.group_successors import choose_zones
from leeway.retirement.outcome import RetirementResult
from leeway.retirement.reasons import SUCCESSOR_FOUND

from tests.fakes.failing import failing
from tests.fakes.groups import SUCCESSOR, ZONES
from tests.fakes.retirement import HOOKED, POD, RetirementFakes, rebalanced, retire
from tests.retirement.retirements import FACTS, NOTICED

IN_AN_HOUR = NOTICED + timedelta(hours=1)
UNSUPPORTED = {"launch_unsupported": "mixes On-Demand and Spot Instances"}


def test_heartbeats_keep_a_hook_open_while_the_retirement_waits_for_a_successor() -> None:
    fakes = rebalanced(overrides=UNSUPPORTED, notifies_hooks=True, timeout=60, starts_in=200)
    outcome = retire(fakes)
    assert fakes.actions.order_of("terminate", "evict") == ["terminate", "evict"]
    evicted = next(at for what, at in fakes.actions.done if what == "evict")
    assert evicted - NOTICED >= timedelta(seconds=200)
    assert len([at for at in fakes.groups.heartbeats if at < evicted]) >= 4
    assert (outcome.result, fakes.actions.ended) == (RetirementResult.DRAINED, [*HOOKED])


def test_the_status_says_why_a_successor_cannot_be_read() -> None:
    fakes = rebalanced(hooks=(), overrides=UNSUPPORTED)
    early = NOTICED + timedelta(seconds=60)
    error = CloudUnavailable("RequestLimitExceeded")
    failing(fakes.instances, "launched_in", error, lambda: fakes.clock.time < early)
    assert retire(fakes).result is RetirementResult.DRAINED
    told = {state.problem.code for state in fakes.fast.states if state.problem}
    assert "SuccessorNotRead" in told


def test_the_successor_of_another_retirement_does_not_count() -> None:
    fakes = rebalanced(starts_in=100)
    other = "i-0another0000000000"
    node = fakes.cluster.node

    def node_named(name: str) -> Node | None:
        if name == other:
            return Node(name, "uid-3", f"aws:///z/{other}", False, True, {})
        return node(name)

    fakes.cluster.node = node_named  # type: ignore[method-assign]
    launched = FACTS.model_copy(update={"instance": other, "private_dns_name": other})
    fakes.instances.launched_in = lambda group, since: [launched]  # type: ignore[method-assign]
    outcome = retire(fakes)
    evicted = next(at for what, at in fakes.actions.done if what == "evict")
    assert evicted - NOTICED >= timedelta(seconds=100)
    assert [one.instance for one in outcome.successors] == [SUCCESSOR]


def test_a_retirement_waits_for_all_instances_that_its_group_launched() -> None:
    fakes = rebalanced(starts_in=120, overrides=UNSUPPORTED)
    other = "i-0another0000000000"
    node, launched_in = fakes.cluster.node, fakes.instances.launched_in
    launched = FACTS.model_copy(update={"instance": other, "private_dns_name": other})

    def node_named(name: str) -> Node | None:
        if name == other:
            return Node(name, "uid-3", f"aws:///z/{other}", False, True, {})
        return node(name)

    fakes.cluster.node = node_named  # type: ignore[method-assign]
    fakes.instances.launched_in = lambda group, since: [launched, *launched_in(group, since)]  # type: ignore[method-assign]
    outcome = retire(fakes)
    evicted = next(at for what, at in fakes.actions.done if what == "evict")
    assert evicted - NOTICED >= timedelta(seconds=120), "another instance is not Ready"
    assert "is ready for pods" in outcome.replacement_reason.message


@pytest.mark.parametrize("state", ["Warmed:Pending:Wait", "Terminating"])
def test_an_instance_that_a_group_keeps_out_of_service_is_no_successor(state: str) -> None:
    fakes = rebalanced(starts_in=30, overrides={"launch_unsupported": "has a warm pool"})
    launched_in = fakes.instances.launched_in
    other = FACTS.model_copy(update={"instance": "i-0warm000000000000a"})
    fakes.instances.launched_in = lambda group, since: [other, *launched_in(group, since)]  # type: ignore[method-assign]
    fakes.groups.lifecycle_states_ = {other.instance: state, SUCCESSOR: "InService"}
    outcome = retire(fakes)
    evicted = next(at for what, at in fakes.actions.done if what == "evict")
    assert evicted - NOTICED < timedelta(minutes=2)
    assert "is ready for pods" in outcome.replacement_reason.message


def test_the_reason_for_a_zone_names_the_pods_that_need_it() -> None:
    tied = replace(POD, bound_to_zone="topology spread")
    db = replace(POD, name="db-0", uid="u-2", claims=("shop/data",))
    fakes = rebalanced(pods=[db, tied])
    fakes.cluster.attachments_on = lambda node: [Attachment("pv-1", "shop/data")]  # type: ignore[method-assign]
    [choice, *_] = choose_zones(fakes.attempt(), fakes.record, facts_of(fakes))
    assert choice.zone == "us-east-1a"
    assert choice.why == SUCCESSOR_FOUND(
        "This is the instance's own zone: pod shop/db-0 needs it "
        "because of a volume, and 1 more of its pods need it."
    )


def facts_of(fakes: RetirementFakes) -> GroupFacts:
    facts = fakes.groups.facts(FACTS.instance)
    assert facts is not None
    return facts


def test_a_zone_without_capacity_is_marked_and_the_next_zone_is_tried_at_once() -> None:
    fakes = rebalanced(full={"us-east-1a"})
    outcome = retire(fakes)
    assert [one.zone for one in outcome.successors] == ["us-east-1f"]
    assert "because us-east-1a has no capacity now" in outcome.replacement_reason.message
    [marked] = fakes.offerings.marked
    assert (marked.instance_type, marked.zone, marked.capacity_type) == (
        "m5.large",
        "us-east-1a",
        "spot",
    )
    assert (fakes.steps.operations, fakes.groups.desired) == (retire_operations(), 3)


def retire_operations() -> int:
    fakes = rebalanced()
    retire(fakes)
    return fakes.steps.operations


def test_a_zone_that_is_marked_as_unavailable_is_not_tried() -> None:
    fakes = rebalanced(full={"us-east-1a"})
    fakes.offerings.mark(Offering("us-east-1", "m5.large", "us-east-1a", "spot"), "", IN_AN_HOUR)
    assert [one.zone for one in retire(fakes).successors] == ["us-east-1f"]
    assert len(fakes.groups.launched) == 1


@pytest.mark.parametrize("known", [False, True])
def test_without_capacity_in_any_zone_the_group_replaces_the_instance_itself(
    known: bool,
) -> None:
    fakes = rebalanced(full={*ZONES}, notifies_hooks=True)
    for zone in ZONES if known else ():
        fakes.offerings.mark(Offering("us-east-1", "m5.large", zone, "spot"), "", IN_AN_HOUR)
    outcome = retire(fakes)
    assert outcome.replacement == "terminate-in-group"
    fact = "no zone of group ng has" if known else "InsufficientInstanceCapacity for m5.large in"
    assert fact in outcome.replacement_reason.message
    assert fakes.actions.order_of("launch", "terminate", "evict") == ["terminate", "evict"]
    assert (fakes.groups.desired, fakes.record.must_restore_capacity) == (3, False)


def test_a_group_that_refuses_launch_instances_replaces_the_instance_itself() -> None:
    fakes = rebalanced(
        launch_error="AccessDenied: autoscaling:LaunchInstances", notifies_hooks=True
    )
    outcome = retire(fakes)
    assert outcome.replacement == "terminate-in-group"
    assert "AccessDenied: autoscaling:LaunchInstances" in outcome.replacement_reason.message


@pytest.mark.parametrize("overrides", [{}, UNSUPPORTED], ids=["by the API", "by its group"])
def test_a_retirement_waits_until_its_successor_has_no_startup_taint(
    overrides: dict[str, str],
) -> None:
    fakes = rebalanced(
        starts_in=60, settles_in=120, settled_labels={}, overrides=overrides, notifies_hooks=True
    )
    assert retire(fakes).result is RetirementResult.DRAINED
    evicted = next(at for what, at in fakes.actions.done if what == "evict")
    assert timedelta(seconds=180) <= evicted - NOTICED < SUCCESSOR_TIMEOUT


def test_a_retirement_waits_for_the_replacement_of_a_failed_successor() -> None:
    fakes = rebalanced(successor_dies=True, starts_in=None)

    @fakes.steps.at("check-successor-9")
    def recover() -> None:
        fakes.cluster.starts_in = 0

    outcome = retire(fakes)
    assert (
        f"Successor {SUCCESSOR} left group ng before it was Ready"
        in outcome.replacement_reason.message
    )
    assert "is ready for pods" in outcome.replacement_reason.message
    assert fakes.actions.order_of("launch") == ["launch"], "the group launches the next one itself"
    assert fakes.groups.desired == 3


def test_a_successor_that_does_not_join_is_terminated_and_replaced_by_its_group() -> None:
    fakes = rebalanced(starts_in=None)
    end = fakes.groups.terminate_in_group

    def ends(instance: str, decrement: bool = False) -> None:
        end(instance, decrement)
        fakes.cluster.starts_in = 60

    fakes.groups.terminate_in_group = ends  # type: ignore[method-assign]
    outcome = retire(fakes)
    assert "had no node after 5 minutes and was terminated" in outcome.replacement_reason.message
    assert fakes.actions.order_of(
        "launch", "end successor", "evict", "terminate and decrement"
    ) == [
        "launch",
        "end successor",
        "evict",
        "terminate and decrement",
    ]
    assert fakes.groups.desired == 3


def test_a_successor_with_an_unexpected_node_name_is_not_terminated() -> None:
    fakes = rebalanced(starts_in=None)
    joined = Node("other", "uid-2", f"aws:///z/{SUCCESSOR}", False, True, {})
    fakes.cluster.node_of = lambda instance, names: joined  # type: ignore[method-assign]
    told = retire(fakes).replacement_reason.message
    assert "No successor was ready for pods within 10 minutes" in told
    assert fakes.actions.order_of("end successor") == []


def test_a_weighted_group_launches_as_many_units_as_the_instance_has() -> None:
    fakes = rebalanced(
        overrides={"units": 4, "desired": 12, "minimum": 0, "maximum": 16}, maximum=16
    )
    launch, requested = fakes.groups.launch, []

    def launches(group: str, zone: str, units: int, token: str) -> Launched:
        requested.append((zone, units, token))
        return launch(group, zone, units, token)

    fakes.groups.launch = launches  # type: ignore[method-assign]
    assert retire(fakes).result is RetirementResult.DRAINED
    assert requested == [("us-east-1a", 4, f"{FACTS.instance}-1-us-east-1a")]


def test_a_record_does_not_grow_with_its_group() -> None:
    fakes = rebalanced()
    retire(fakes)
    assert len(fakes.record.model_dump_json()) < 2500
