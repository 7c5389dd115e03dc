"""The progress of drains in DynamoDB, on the sandbox."""

from datetime import UTC, datetime

from leeway.execution.attempt import AttemptId
from leeway.retirement.context import PodState, summarise
from leeway.retirement.progress import Drain, PodProgress, RemovalMethod, Stage
from leeway.retirement.reasons import BUDGET_BLOCKS, POD_EVICTED, POD_STAYS

BLOCKED = BUDGET_BLOCKS(answer="budget web")
AT = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def drain(*pods: PodProgress) -> Drain:
    return Drain(listed=True, pods={pod.uid: pod for pod in pods})


def test_a_summary_lists_the_pods_to_remove_and_the_method_of_their_removal() -> None:
    state = summarise(
        AttemptId("i-1", "prod", 2),
        "n1",
        drain(
            PodProgress(
                "a/stays",
                "1",
                "",
                Stage.LEFT,
                POD_STAYS("it is a static pod, which the kubelet runs until the machine stops"),
            ),
            PodProgress(
                "a/evicted",
                "2",
                "",
                Stage.GONE,
                POD_EVICTED(),
                method=RemovalMethod.EVICT,
                requested_at=AT,
            ),
            PodProgress("a/blocked", "3", "", Stage.BLOCKED, BLOCKED, method=RemovalMethod.EVICT),
        ),
        AT,
    )
    assert state.pods == (
        PodState("a/evicted", Stage.GONE, RemovalMethod.EVICT, POD_EVICTED()),
        PodState("a/blocked", Stage.BLOCKED, None, BLOCKED),
    )
