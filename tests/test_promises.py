"""The checks of a scale-up's promises find what breaks them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from leeway.launch.fleets import FleetInstance
from leeway.launch.intent import LaunchIntent

from tests.end_to_end.environment import Entry, Journal
from tests.end_to_end.promises import (
    ALWAYS,
    AT_THE_END,
    Bought,
    Evidence,
    Waiting,
    broken_promises,
)

BEGIN = 1000.0


def answered_intent(name: str, *instances: str) -> LaunchIntent:
    """An intent that launched instances, whose admissions have begun."""
    return LaunchIntent(
        id=name,
        cluster="prod",
        pool="web",
        token="token",
        created_at=datetime.fromtimestamp(BEGIN, UTC),
        request=None,
        instances=tuple(FleetInstance(one, "m5.large", "us-east-1a", "spot") for one in instances),
        admitted=frozenset(instances),
    )


def pod(name: str, node: str = "", owner: str = "ReplicaSet/web", at: float = BEGIN) -> list[Entry]:
    """The entries of a pod that was created two seconds before BEGIN, and bound to a node."""
    facts: Entry = {"uid": name, "owner": owner}
    found = [{"kind": "pod-created", "at": BEGIN - 2, **facts}]
    return [*found, *([{"kind": "pod-bound", "at": at + 9, "node": node, **facts}] if node else [])]


def bought(instance: str, **changes: Any) -> Bought:
    """An instance of the pool `web` that serves pods."""
    of = Bought(instance, "web", f"of-{instance}", BEGIN, BEGIN, node=f"n-{instance}", used=BEGIN)
    return replace(of, **{"used": BEGIN + 9, **changes})


def evidence(*instances: Bought, pods: int = 2, **changes: Any) -> Evidence:
    """What a correct scale-up shows: each pod waits for one node."""
    entries = [e for number in range(pods) for e in pod(f"web-{number}", f"n-{number}")]
    by_name = {one.instance: one for one in instances}
    intents = {one.intent: answered_intent(one.intent, one.instance) for one in instances}
    fields = {"intents": intents, "admitted": set(by_name), **changes}
    return Evidence(Journal(tuple(entries)), by_name, **fields)


def broken(found: Evidence) -> set[str]:
    """The promises that are broken."""
    return {line.partition(":")[0] for line in broken_promises(found, {**ALWAYS, **AT_THE_END})}


def test_a_node_for_each_pod_breaks_no_promise() -> None:
    assert broken(evidence(bought("a"), bought("b"))) == set()


def test_a_node_more_than_pods_is_bought_twice() -> None:
    assert broken(evidence(bought("a"), bought("b"), bought("c"))) == {"bought twice"}


def test_a_node_that_ec2_takes_is_replaced_once() -> None:
    taken, successor = bought("a", until=BEGIN + 5, used=BEGIN + 4), bought("c", at=BEGIN + 6)
    seen = evidence(taken, bought("b"), successor, closed={"a": BEGIN + 5})
    assert broken(seen) == set()


def test_a_node_without_pods_is_bought_for_nothing() -> None:
    empty = evidence(bought("a"), bought("b", used=float("inf")))
    assert broken(empty) == {"bought for nothing"}
    assert broken(replace(empty, spare=("web",))) == set()


def test_an_instance_without_a_node_is_bought_for_nothing() -> None:
    assert broken(evidence(bought("a", node="", used=float("inf")))) == {"bought for nothing"}


def test_pools_keep_their_limits_at_every_moment() -> None:
    both = evidence(bought("a"), bought("b"))
    for limits in ({"nodes": 1}, {"cpu": 3999}):
        assert broken(replace(both, limits={"web": limits})) == {"beyond a limit"}
    ended = evidence(bought("a", ended=BEGIN + 1), bought("b", at=BEGIN + 2))
    assert broken(replace(ended, limits={"web": {"nodes": 1}})) == set()


def test_no_more_than_the_maximum_is_launched_in_ten_minutes() -> None:
    both = evidence(bought("a"), bought("b"), cap=1)
    assert broken(both) == {"beyond a limit"}
    later = evidence(bought("a"), bought("b", simulated_at=BEGIN + 601), cap=1)
    assert broken(later) == set()


def test_an_instance_that_no_intent_or_two_intents_name_is_not_accounted_for() -> None:
    twice = {"of-a": answered_intent("of-a", "a"), "x": answered_intent("x", "a")}
    unnamed = {"of-a": answered_intent("of-a")}
    unknown = {"of-a": answered_intent("of-a", "a", "z")}
    for intents in (twice, unnamed, unknown):
        assert broken(evidence(bought("a"), intents=intents)) == {"not accounted for"}


def test_an_instance_without_an_admission_is_not_accounted_for() -> None:
    assert broken(evidence(bought("a"), admitted=())) == {"not accounted for"}


def test_an_intent_without_an_answer_is_not_accounted_for() -> None:
    seen = evidence(bought("a"))
    (intent,) = seen.intents.values()
    open_intent = intent.model_copy(update={"request": "a request"})
    assert broken(replace(seen, intents={"of-a": open_intent})) == {"not accounted for"}


def test_a_pod_that_fits_is_not_left_pending() -> None:
    for codes, fits in (((), False), (("RequestTooLarge",), True)):
        waiting = [Waiting("default/web-9", frozenset(codes), fits)]
        assert broken(evidence(bought("a"), waiting=waiting)) == {"left pending"}
    excused = [
        Waiting("default/web-8", frozenset({"RequestTooLarge"}), fits=False),
        Waiting("default/web-9", frozenset({"PoolLimitReached"}), fits=True),
    ]
    assert broken(evidence(bought("a"), waiting=excused)) == set()
