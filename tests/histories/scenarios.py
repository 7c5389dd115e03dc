"""The retirements whose histories are kept: between them they take every kind of step."""

from datetime import timedelta

from leeway.execution.attempt import AttemptId
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.attempts import undo

from tests.retire_node.retiring import ORDER, Surrounding, surrounding
from tests.retirement.retirements import NOTICED, notice

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)


def interruption() -> tuple[Surrounding, AttemptId]:
    """Cordon, detach, drain, terminate: nothing waits."""
    return surrounding(pods=[POD], blocks=False), ORDER


def rebalance() -> tuple[Surrounding, AttemptId]:
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


def crowd(pods: int) -> list[Pod]:
    """Pods of a Deployment, with names and UIDs as long as they are in life."""
    name, uid = "payments-api-7d9c5b6f8-{:05x}", "0b9f1c52-6c1e-4b8e-9a55-{:012x}"
    return [
        Pod("checkout", name.format(n), uid.format(n), "Running", 30, None) for n in range(pods)
    ]


def blocked(hours: float = 0.2, pods: int = 0) -> tuple[Surrounding, AttemptId]:
    """A budget blocks the drain, which rests, and keeps its hook waiting by heartbeats."""
    # An action waits for a hundred of its timeouts at most.
    timeout = max(600, round(hours * 36) + 1)
    there = crowd(pods) if pods else [POD]
    world = surrounding(NoticeKind.TERMINATE_HOOK, pods=there, timeout=timeout)
    deadline = NOTICED + timedelta(hours=hours)
    world.record = world.record.model_copy(update={"deadline": deadline})
    return world, ORDER


def undone() -> tuple[Surrounding, AttemptId]:
    """A scheduled change is called off while it waits for its turn."""
    world = surrounding(NoticeKind.SCHEDULED_CHANGE)
    news = {"after": 60, "event": world.record.event}
    told = undo(world.record, notice(NoticeKind.SCHEDULED_CHANGE, "n-2", **news))
    assert told is not None
    world.record = told.record
    return world, AttemptId(ORDER.instance, ORDER.cluster, 2)


def crowded() -> tuple[Surrounding, AttemptId]:
    """The same with more pods, of which one goes by itself meanwhile."""
    world, order = blocked(pods=3)

    def leave(step: str) -> None:
        if step == "drain-20":
            world.pods = world.pods[1:]

    world.before_step = leave
    return world, order


SCENARIOS = {
    "interruption": interruption,
    "rebalance": rebalance,
    "blocked": blocked,
    "crowded": crowded,
    "undone": undone,
}
