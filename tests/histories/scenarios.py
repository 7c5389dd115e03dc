"""The retirements whose histories are stored. Together they run every kind of step."""

from datetime import timedelta

from leeway.execution.attempt import AttemptId
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy
from leeway.ports.kubernetes_objects import Pod

from tests.fakes.retirement import ATTEMPT_ID, RetirementFakes, retirement_fakes
from tests.retirement.retirements import NOTICED

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)


def interruption() -> tuple[RetirementFakes, AttemptId]:
    """Cordon, detach, drain, terminate, without a wait."""
    return retirement_fakes(pods=[POD], blocks=False), ATTEMPT_ID


def rebalance() -> tuple[RetirementFakes, AttemptId]:
    """Wait while the cluster is paused, then wait for the replacement."""
    fakes = retirement_fakes(
        NoticeKind.REBALANCE,
        pods=[POD],
        blocks=False,
        hooks=("leeway-drain",),
        policy=ClusterPolicy(paused=True),
    )
    fakes.steps.at("request-disruption-3")(fakes.policies.resume)
    return fakes, ATTEMPT_ID


def crowd(pods: int) -> list[Pod]:
    """Pods of a Deployment, with names and UIDs of realistic length."""
    name, uid = "payments-api-7d9c5b6f8-{:05x}", "0b9f1c52-6c1e-4b8e-9a55-{:012x}"
    return [
        Pod("checkout", name.format(n), uid.format(n), "Running", 30, None) for n in range(pods)
    ]


def blocked(hours: float = 0.2, pods: int = 0) -> tuple[RetirementFakes, AttemptId]:
    """A budget blocks the drain, which suspends and keeps its hook waiting with heartbeats."""
    # A lifecycle action waits for 100 heartbeat timeouts at most.
    timeout = max(600, round(hours * 36) + 1)
    there = crowd(pods) if pods else [POD]
    fakes = retirement_fakes(NoticeKind.TERMINATE_HOOK, pods=there, timeout=timeout)
    deadline = NOTICED + timedelta(hours=hours)
    fakes.amend(deadline=deadline)
    return fakes, ATTEMPT_ID


def undone() -> tuple[RetirementFakes, AttemptId]:
    """A scheduled change is cancelled while its retirement waits."""
    fakes = retirement_fakes(NoticeKind.SCHEDULED_CHANGE)
    announced = {"after": 60, "event": fakes.record.event}
    fakes.undo(NoticeKind.SCHEDULED_CHANGE, **announced)
    return fakes, AttemptId(ATTEMPT_ID.instance, ATTEMPT_ID.cluster, 2)


def crowded() -> tuple[RetirementFakes, AttemptId]:
    """The same with more pods, one of which ends by itself during the drain."""
    fakes, order = blocked(pods=3)

    @fakes.steps.at("drain-20")
    def leave() -> None:
        fakes.cluster.pods = fakes.cluster.pods[1:]

    return fakes, order


SCENARIOS = {
    "interruption": interruption,
    "rebalance": rebalance,
    "blocked": blocked,
    "crowded": crowded,
    "undone": undone,
}
