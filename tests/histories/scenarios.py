"""The retirements whose histories are stored. Together they run every kind of step."""

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
    """Cordon, detach, drain, terminate, without a wait."""
    return surrounding(pods=[POD], blocks=False), ORDER


def rebalance() -> tuple[Surrounding, AttemptId]:
    """Wait while the cluster is paused, then wait for the replacement."""
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
    """Pods of a Deployment, with names and UIDs of realistic length."""
    name, uid = "payments-api-7d9c5b6f8-{:05x}", "0b9f1c52-6c1e-4b8e-9a55-{:012x}"
    return [
        Pod("checkout", name.format(n), uid.format(n), "Running", 30, None) for n in range(pods)
    ]


def blocked(hours: float = 0.2, pods: int = 0) -> tuple[Surrounding, AttemptId]:
    """A budget blocks the drain, which suspends and keeps its hook waiting with heartbeats."""
    # A lifecycle action waits for 100 heartbeat timeouts at most.
    timeout = max(600, round(hours * 36) + 1)
    there = crowd(pods) if pods else [POD]
    world = surrounding(NoticeKind.TERMINATE_HOOK, pods=there, timeout=timeout)
    deadline = NOTICED + timedelta(hours=hours)
    world.record = world.record.model_copy(update={"deadline": deadline})
    return world, ORDER


def undone() -> tuple[Surrounding, AttemptId]:
    """A scheduled change is cancelled while its retirement waits."""
    world = surrounding(NoticeKind.SCHEDULED_CHANGE)
    announced = {"after": 60, "event": world.record.event}
    change = undo(world.record, notice(NoticeKind.SCHEDULED_CHANGE, "n-2", **announced))
    assert change is not None
    world.record = change.record
    return world, AttemptId(ORDER.instance, ORDER.cluster, 2)


def crowded() -> tuple[Surrounding, AttemptId]:
    """The same with more pods, one of which ends by itself during the drain."""
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
