"""The progress of drains in DynamoDB, on the sandbox."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from leeway.aws.drain_states import DynamoDrainStates, DynamoDrainStatesReader
from leeway.clock import SystemClock
from leeway.retirement.drain import PodState, summarise
from leeway.retirement.progress import (
    Drain,
    PodProgress,
    RemovalMethod,
    Stage,
)
from leeway.retirement.reasons import (
    BUDGET_BLOCKS,
    POD_EVICTED,
    PODS_NOT_LISTED,
    STATIC_POD,
)

from tests.aws.stored import TABLE
from tests.sandbox.aws.started import Sandbox

BLOCKED = BUDGET_BLOCKS(answer="budget web")
AT = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def drain(*pods: PodProgress) -> Drain:
    return Drain(listed=True, pods={pod.uid: pod for pod in pods})


def test_a_summary_lists_the_pods_to_remove_and_the_method_of_their_removal() -> None:
    state = summarise(
        "i-1",
        2,
        "n1",
        drain(
            PodProgress("a/stays", "1", "", Stage.LEFT, STATIC_POD()),
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


def test_the_latest_state_of_each_drain_is_read(aws: Sandbox) -> None:
    client = partial(aws.client, "dynamodb")
    writer, reader = (
        DynamoDrainStates(client, TABLE),
        DynamoDrainStatesReader(client, TABLE, SystemClock()),
    )
    names = [f"i-{n:017x}" for n in range(120)]
    states = {name: summarise(name, 1, "n", drain(), AT) for name in names}
    for state in states.values():
        writer.put(state)
    newer = summarise(names[0], 2, "n", Drain(problem=PODS_NOT_LISTED(error="503")), AT)
    writer.put(newer)
    assert reader.of([*names, names[0], "i-0ffffffffffffffff"]) == states | {names[0]: newer}


def test_keys_that_a_throttled_table_left_unprocessed_are_retried(aws: Sandbox) -> None:
    def leave_half(params: dict[str, Any], **_: Any) -> None:
        keys = params["RequestItems"][TABLE]["Keys"]
        unprocessed.append(keys[len(keys) // 2 + 1 :])
        params["RequestItems"] = {TABLE: {"Keys": keys[: len(keys) // 2 + 1]}}

    def return_unprocessed(parsed: dict[str, Any], **_: Any) -> None:
        if keys := unprocessed.pop():
            parsed["UnprocessedKeys"] = {TABLE: {"Keys": keys}}

    names = [f"i-1{n:016x}" for n in range(8)]
    states = {name: summarise(name, 1, "n", drain(), AT) for name in names}
    for state in states.values():
        DynamoDrainStates(partial(aws.client, "dynamodb"), TABLE).put(state)
    unprocessed: list[list[Any]] = []
    client = aws._build("dynamodb")
    client.meta.events.register("provide-client-params.dynamodb.BatchGetItem", leave_half)
    client.meta.events.register("after-call.dynamodb.BatchGetItem", return_unprocessed)
    assert DynamoDrainStatesReader(lambda: client, TABLE, SystemClock()).of(names) == states
    client.close()
