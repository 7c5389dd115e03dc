"""Results of steps fit into a checkpoint and are read back unchanged."""

import json
from datetime import UTC, datetime

from aws_durable_execution_sdk_python.constants import CHECKPOINT_SIZE_LIMIT_BYTES
from aws_durable_execution_sdk_python.serdes import SerDesContext
from leeway.execution.durable import Typed
from leeway.retirement.drain import DrainCheckpoint, DrainPassResult
from leeway.retirement.progress import Drain, PodProgress, Stage
from leeway.retirement.reasons import BUDGET_BLOCKS

from tests.histories.scenarios import crowd
from tests.retirement.retirements import interrupted

START = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
CONTEXT = SerDesContext("step", "arn")


def first_pass(pods: int) -> DrainCheckpoint:
    """The result of the first drain pass over a node with this many pods."""
    seen = {
        pod.uid: PodProgress(
            pod.key,
            pod.uid,
            "Deployment checkout/payments-api",
            Stage.BLOCKED,
            BUDGET_BLOCKS(
                answer="The disruption budget payments-api needs 3 healthy pods and has 3"
            ),
            budgets=("payments-api",),
            attempts=2,
            seen_at=START,
            blocked_at=START,
            next_try_at=START,
        )
        for pod in crowd(pods)
    }
    drain = Drain(listed=True, pods=seen)
    return DrainPassResult(drain, interrupted()).checkpoint(Drain(), START)


def test_a_node_of_737_pods_fits_into_a_checkpoint() -> None:
    passed = first_pass(737)
    written = Typed(DrainCheckpoint).serialize(passed, CONTEXT)
    assert len(written.encode()) < CHECKPOINT_SIZE_LIMIT_BYTES / 2
    assert Typed(DrainCheckpoint).deserialize(written, CONTEXT) == passed


def test_a_small_result_is_not_compressed() -> None:
    passed = first_pass(10)
    written = Typed(DrainCheckpoint).serialize(passed, CONTEXT)
    assert len(json.loads(written)["result"]["drain"]["pods"]) == 10
    assert Typed(DrainCheckpoint).deserialize(written, CONTEXT) == passed
