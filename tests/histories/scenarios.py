"""The retirements whose histories are kept: between them they take every kind of step."""

from datetime import timedelta

from leeway.drain.pods import Pod
from leeway.notices import NoticeKind
from leeway.orders import Order
from leeway.policies import ClusterPolicy
from leeway.records import undo

from tests.layer.retiring import ORDER, Surrounding, surrounding
from tests.layer.test_records import NOTICED, notice

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)


def interruption() -> tuple[Surrounding, Order]:
    """Cordon, detach, drain, terminate: nothing waits."""
    return surrounding(pods=[POD], blocks=False), ORDER


def rebalance() -> tuple[Surrounding, Order]:
    """Waits for its turn while the cluster is paused, then for its successor."""
    world = surrounding(
        NoticeKind.REBALANCE,
        pods=[POD],
        blocks=False,
        hooks=("leeway-drain",),
        policy=ClusterPolicy(paused=True),
    )

    def resume(step: str) -> None:
        if step == "turn-3":
            world.policy = ClusterPolicy()

    world.before_step = resume
    return world, ORDER


def blocked(hours: float = 0.2) -> tuple[Surrounding, Order]:
    """A budget blocks the drain, which rests, and keeps its hook waiting by heartbeats."""
    # An action waits for a hundred of its timeouts at most.
    timeout = max(600, round(hours * 36) + 1)
    world = surrounding(NoticeKind.TERMINATE_HOOK, pods=[POD], timeout=timeout)
    deadline = NOTICED + timedelta(hours=hours)
    world.record = world.record.model_copy(update={"deadline": deadline})
    return world, ORDER


def undone() -> tuple[Surrounding, Order]:
    """A scheduled change is called off while it waits for its turn."""
    world = surrounding(NoticeKind.SCHEDULED_CHANGE)
    news = {"after": 60, "event": world.record.event}
    told = undo(world.record, notice(NoticeKind.SCHEDULED_CHANGE, "n-2", **news))
    assert told is not None
    world.record = told.record
    return world, Order(ORDER.instance, ORDER.cluster, 2)


SCENARIOS = {
    "interruption": interruption,
    "rebalance": rebalance,
    "blocked": blocked,
    "undone": undone,
}
