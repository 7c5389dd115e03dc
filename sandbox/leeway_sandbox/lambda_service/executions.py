"""Durable executions: the state machine of AWS's testing library, on the sandbox's workers."""

import asyncio
import hashlib
import json
import logging
import re
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aws_durable_execution_sdk_python.execution import DurableExecutionInvocationInput
from aws_durable_execution_sdk_python_testing.checkpoint.processor import CheckpointProcessor
from aws_durable_execution_sdk_python_testing.execution import Execution, ExecutionStatus
from aws_durable_execution_sdk_python_testing.executor import Executor
from aws_durable_execution_sdk_python_testing.invoker import InvokeResponse, LambdaInvoker
from aws_durable_execution_sdk_python_testing.model import StartDurableExecutionInput
from aws_durable_execution_sdk_python_testing.scheduler import Scheduler
from aws_durable_execution_sdk_python_testing.stores.memory import InMemoryExecutionStore
from aws_durable_execution_sdk_python_testing.threads import DaemonThreadPool

from leeway_sandbox.control import Journal
from leeway_sandbox.lambda_service.definitions import Functions, ServiceError, Target
from leeway_sandbox.lambda_service.invocation import Invocation, Lineage
from leeway_sandbox.lambda_service.pools import Pools

_log = logging.getLogger(__name__)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# The timeout of a worker ends an invocation, so the timeout of the library must be longer.
_NEVER_SECONDS = 10**6


class Store(InMemoryExecutionStore):
    """The store of the library, which can also delete executions."""

    def forget(self, arn: str) -> None:
        """Delete an execution."""
        with self._lock:
            self._store.pop(arn, None)


class InvocationFailedError(Exception):
    """An invocation ended without an answer; the execution is invoked again."""


class WorkerInvoker(LambdaInvoker):
    """Runs the handler of an execution on a worker of its function."""

    def __init__(self, pools: Pools, functions: Functions, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(lambda_client=None)
        self._pools = pools
        self._functions = functions
        self._loop = loop
        self.names: dict[str, str] = {}
        self.lineages: dict[str, Lineage] = {}

    def invoke(
        self,
        function_name: str,
        input: DurableExecutionInvocationInput,  # noqa: A002 - the library's own name
        *_: Any,
        **__: Any,
    ) -> InvokeResponse:
        """Run the handler once and wait for its answer. A thread of the executor calls this."""
        running = asyncio.run_coroutine_threadsafe(self._run(function_name, input), self._loop)
        return running.result()

    async def _run(
        self, name: str, invocation_input: DurableExecutionInvocationInput
    ) -> InvokeResponse:
        target = self._functions.resolve(name)
        pool = self._pools.find(target.function.name)
        if pool is None:
            raise InvocationFailedError(f"The function {name} does not exist any more")
        arn = invocation_input.durable_execution_arn
        invocation = Invocation(
            target,
            json.dumps(invocation_input.to_json_dict()).encode(),
            execution=self.names.get(arn),
            execution_arn=arn,
            lineage=self.lineages.get(arn, {}),
        )
        outcome = await pool.run(invocation)
        if outcome.ending != "ok":
            raise InvocationFailedError(outcome.error)
        return InvokeResponse.from_payload(outcome.payload, invocation.request_id)


@dataclass(frozen=True)
class Started:
    """A started execution."""

    arn: str
    payload: str
    version: str


class Executions(Executor):
    """All durable executions. Starts, checkpoints and reads block: call them in a thread."""

    def __init__(
        self,
        invoker: WorkerInvoker,
        journal: Journal,
        *,
        region: str,
        retry_delay: float,
        concurrency: int,
        kept: int,
    ) -> None:
        store = Store()
        scheduler = Scheduler()
        scheduler.start()  # type: ignore[no-untyped-call]
        super().__init__(
            store=store,
            scheduler=scheduler,
            invoker=invoker,
            checkpoint_processor=CheckpointProcessor(store, scheduler),
            invocation_timeout_seconds=_NEVER_SECONDS,
            region=region,
        )
        self.RETRY_BACKOFF_SECONDS = retry_delay  # type: ignore[assignment]
        # Every running invocation needs a thread, and the library allows only 32.
        self._invocation_pool = DaemonThreadPool(concurrency, "durable-invocation")
        self._names, self._lineages = invoker.names, invoker.lineages
        self._journal = journal
        self._executions = store
        self._kept = kept
        self._past: deque[str] = deque()
        self._checkpoints: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._started: dict[tuple[str, str], Started] = {}
        self._when_ended: dict[str, Callable[[ExecutionStatus], None]] = {}
        self._starting = threading.Lock()

    def start(
        self,
        target: Target,
        name: str | None,
        payload: str,
        when_ended: Callable[[ExecutionStatus], None],
        lineage: Lineage | None = None,
    ) -> Started:
        """Start an execution, or return the existing one of this name.

        All its invocations continue the chain of requests of its start. A thread calls
        ``when_ended`` at the end of a new execution.

        Raises:
            ServiceError: the name is malformed, or was used with another payload or version.
        """
        if name is not None and not _NAME.fullmatch(name):
            raise ServiceError.invalid(
                f"Value '{name}' at 'durableExecutionName' failed to satisfy constraint: "
                f"Member must satisfy regular expression pattern: {_NAME.pattern}"
            )
        wanted = name or str(uuid.uuid4())
        with self._starting:
            known = self._started.get((target.function.name, wanted))
            if known is None:
                return self._start_new(target, wanted, payload, when_ended, lineage or {})
        if known.version != target.version or known.payload != _digest(payload):
            message = f"Execution already started: {known.arn}"
            raise ServiceError(409, "DurableExecutionAlreadyStartedException", message)
        return known

    def name_of(self, arn: str) -> str | None:
        """Return the name of the execution with this ARN."""
        return self._names.get(arn)

    def number_checkpoint(self, arn: str, size: int) -> int:
        """Return the number of a checkpoint request in its execution, from 1; count its bytes."""
        self._checkpoints[arn] += 1
        self._written[arn] += size
        return self._checkpoints[arn]

    def counts(self) -> dict[str, int]:
        """Return the number of executions of each status."""
        counts = dict.fromkeys((status.value for status in ExecutionStatus), 0)
        for execution in self._store.list_all():
            counts[execution.current_status().value] += 1
        return counts

    def close(self) -> None:
        """Start no more invocations."""
        self.shutdown()
        self._scheduler.stop()  # type: ignore[no-untyped-call]

    def _start_new(
        self,
        target: Target,
        name: str,
        payload: str,
        when_ended: Callable[[ExecutionStatus], None],
        lineage: Lineage,
    ) -> Started:
        function = target.function
        execution = self._create_execution(
            StartDurableExecutionInput(
                account_id=function.account,
                function_name=function.name,
                function_qualifier=target.version,
                execution_name=name,
                execution_timeout_seconds=function.execution_timeout,
                execution_retention_period_days=14,
                invocation_id=str(uuid.uuid4()),
                input=payload,
            )
        )
        arn = execution.durable_execution_arn
        started = Started(arn, _digest(payload), target.version)
        self._started[function.name, name] = started
        self._when_ended[arn] = when_ended
        self._names[arn] = name
        self._lineages[arn] = lineage
        self._journal.add(
            "execution-started", function=function.name, execution=name, execution_arn=arn
        )
        self._launch_execution(execution, function.execution_timeout)
        return started

    def _create_execution(
        self,
        input: StartDurableExecutionInput,  # noqa: A002 - the library's own name
        parent_execution_arn: str | None = None,
    ) -> Execution:
        """Create an execution with an ARN in the format of Lambda.

        The SDK reads the input of an execution from the operation of the ARN's last part.
        """
        prefix = f"arn:aws:lambda:{self._region}:{input.account_id}:function:{input.function_name}"
        execution = Execution(
            f"{prefix}:{input.function_qualifier}/durable-execution/"
            f"{input.execution_name}/{input.invocation_id}",
            input,
            [],
        )
        execution.region = self._region
        execution.parent_execution_arn = parent_execution_arn
        execution.start(now=self._clock.now())
        self._store.save(execution)
        return execution

    def _fire_due_operations(self, execution_arn: str) -> bool:
        """Complete waits and retries that are due, and invoke the execution.

        The library invokes it later from a coroutine. An invocation that ends at this moment sets
        the timer again and cancels that coroutine, and then the execution would never continue.
        """
        if super()._fire_due_operations(execution_arn):
            self._invoke_execution(execution_arn)
        return False

    def _complete_events(self, execution_arn: str) -> None:
        """Handle the end of an execution; the library calls this for every outcome."""
        super()._complete_events(execution_arn)
        when_ended = self._when_ended.pop(execution_arn, None)
        if when_ended is None:
            return
        execution = self._store.load(execution_arn)
        status = execution.current_status()
        self._journal.add(
            "execution-ended",
            function=execution.start_input.function_name,
            execution=execution.start_input.execution_name,
            execution_arn=execution_arn,
            status=status.value,
            operations=len(execution.operations),
            written=self._written[execution_arn],
        )
        when_ended(status)
        self._retire(execution_arn)

    def _retire(self, arn: str) -> None:
        """Keep only the newest ended executions."""
        with self._starting:
            self._past.append(arn)
            while len(self._past) > self._kept:
                self._forget(self._past.popleft())

    def _forget(self, arn: str) -> None:
        started = self._store.load(arn).start_input
        self._started.pop((started.function_name, started.execution_name or ""), None)
        self._executions.forget(arn)
        for counter in (self._checkpoints, self._written):
            counter.pop(arn, None)
        for known in (self._names, self._lineages, self._completion_events):
            known.pop(arn, None)


def _digest(payload: str) -> str:
    return hashlib.sha256(payload.encode()).hexdigest()
