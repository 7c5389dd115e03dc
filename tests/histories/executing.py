"""Runs retirements in the test runner of the durable SDK, with simulated time; replays histories.

The runner leaves event loops open, so tests run it in a process of its own.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.execution import (
    DurableExecutionInvocationInputWithClient,
    InitialExecutionState,
)
from aws_durable_execution_sdk_python.lambda_service import (
    CheckpointOutput,
    DurableServiceClient,
    InvocationStatus,
    OperationUpdate,
    StateOutput,
)
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestRunner
from aws_durable_execution_sdk_python_testing.stores.memory import InMemoryExecutionStore
from leeway.execution.attempt import AttemptId, parse_attempt_id
from leeway.execution.durable import DurableSteps
from leeway.retirement.context import Attempt, Ports
from leeway.retirement.retire_node import retire_node

from tests.fakes.retirement import ATTEMPT_ID, RetirementFakes

type Json = dict[str, Any]


@dataclass
class Execution:
    """An execution that has ended: its operations, its answer, the number of its invocations."""

    arn: str
    operations: list[Json]
    answer: Json
    invocations: int

    @property
    def names(self) -> list[str]:
        """The names of its steps and waits, in order."""
        return [operation["Name"] for operation in self.operations if "Name" in operation]

    @property
    def written(self) -> list[int]:
        """The sizes of the results of its steps, in bytes."""
        steps = [operation.get("StepDetails") or {} for operation in self.operations]
        return [len((step.get("Result") or "").encode()) for step in steps]


@dataclass
class _SimulatedTime(DurableSteps):
    """Advances the fake clock at every wait, once: a replay does not wait a second time."""

    context: DurableContext
    fakes: RetirementFakes
    waited: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__(self.context)

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        def begun() -> T:
            self.fakes.steps.begin(name)
            return work()

        return super().run(name, kind, begun)

    def wait(self, name: str, seconds: int) -> None:
        if name not in self.waited:
            self.waited.add(name)
            self.fakes.clock.sleep(seconds)
        super().wait(name, seconds)


def _handler(ports: Ports, steps: Callable[[DurableContext], DurableSteps]) -> Any:
    """Return the function retire_node with these ports."""

    @durable_execution
    def handler(event: Any, context: DurableContext) -> Json:
        outcome = retire_node(Attempt(parse_attempt_id(event), steps(context), ports))
        return outcome.to_dict() if outcome else {"result": "superseded"}

    return handler


def execute(
    fakes: RetirementFakes, order: AttemptId = ATTEMPT_ID, real_seconds: int = 120
) -> Execution:
    """Run a retirement to its end."""
    waited: set[str] = set()
    invocations = 0

    def steps(context: DurableContext) -> DurableSteps:
        nonlocal invocations
        invocations += 1
        return _SimulatedTime(context, fakes, waited)

    store = InMemoryExecutionStore()
    handler = _handler(fakes.ports, steps)
    with DurableFunctionTestRunner(handler, poll_interval=0.05, store=store) as runner:
        # The limit of the runner is in simulated time.
        arn = runner.run_async(json.dumps(asdict(order)), execution_timeout=7 * 86400)
        result = runner.wait_for_result(arn, timeout=real_seconds)
        operations = [dict(kept.to_json_dict()) for kept in store.load(arn).operations]
    assert result.status is InvocationStatus.SUCCEEDED, result.error
    return Execution(arn, operations, json.loads(result.result or "null"), invocations)


class CompleteHistory(DurableServiceClient):
    """The durable service for a replay of a complete history: no call is expected."""

    def checkpoint(
        self,
        durable_execution_arn: str,
        checkpoint_token: str,
        updates: list[OperationUpdate],
        client_token: str | None,
    ) -> CheckpointOutput:
        """Fail: every operation is in the history."""
        raise AssertionError(f"this is not in the history: {updates}")

    def get_execution_state(
        self,
        durable_execution_arn: str,
        checkpoint_token: str,
        next_marker: str,
        max_items: int = 1000,
    ) -> StateOutput:
        """Fail: the replay has the whole history."""
        raise AssertionError("the history has one page")


class FailingPort:
    """A port that must not be called."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the replay calls {name}")


def replay(history: Json) -> Json:
    """Replay a complete history with the current code; return the answer."""
    nothing: Any = FailingPort()
    ports = Ports(**{part.name: nothing for part in fields(Ports)})
    operations = {"Operations": history["operations"], "NextMarker": ""}
    told = DurableExecutionInvocationInputWithClient(
        durable_execution_arn=history["arn"],
        checkpoint_token="token",
        initial_execution_state=InitialExecutionState.from_json_dict(operations),
        service_client=CompleteHistory(),
    )
    context: Any = type("LambdaContext", (), {"aws_request_id": "replay"})()
    answered = _handler(ports, DurableSteps)(told, context)
    assert answered["Status"] == "SUCCEEDED", answered
    answer: Json = json.loads(answered["Result"])
    return answer
