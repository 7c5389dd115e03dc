"""The worker processes of one function: started on demand, kept warm, monitored, stopped."""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leeway_sandbox.control import Journal
from leeway_sandbox.lambda_service.definitions import FunctionDefinition
from leeway_sandbox.lambda_service.faults import Faults
from leeway_sandbox.lambda_service.invocation import Ending, Invocation, Outcome

_CHUNK = 65536


class WorkerLog:
    """Reads the pipe of one worker into the journal."""

    def __init__(self, descriptor: int, function: str, stream: str, journal: Journal) -> None:
        self.invocation: Invocation | None = None
        self.stream = stream
        self._descriptor: int | None = descriptor
        self._function = function
        self._journal = journal
        self._rest = b""
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self.drain)

    def drain(self) -> None:
        """Read all available lines, so that the journal has them with the present invocation."""
        while self._descriptor is not None:
            try:
                data = os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._record(line)

    def close(self) -> None:
        """Record an unfinished last line and close the pipe."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            self._record(self._rest)

    def _record(self, line: bytes) -> None:
        # The runtime client separates the lines of a traceback with carriage returns.
        text = line.decode(errors="replace").replace("\r", "\n")
        if not text.strip():
            return
        self._journal.add(
            "logs",
            function=self._function,
            stream=self.stream,
            request_id=self.invocation.request_id if self.invocation else None,
            line=_parsed(text),
        )


def _parsed(text: str) -> Any:
    if text.startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


_log = logging.getLogger(__name__)
_PACKET = 65536
# Lambda's limit; a longer initialization continues within the timeout of the function.
_INIT_SECONDS = 10
# Workers of a function that start at the same time. More would only share the processors, and
# running workers often handle the pending invocations before new ones have started.
_STARTING = os.cpu_count() or 2
# A worker of a replaced function must not get the invocations of a new one.
_numbers = itertools.count(1)


class Worker:
    """One execution environment, with at most one invocation at a time."""

    def __init__(self, identity: str, log: WorkerLog) -> None:
        self.identity = identity
        self.log = log
        self.pid: int | None = None
        self.asked = time.time()
        self.initialised: float | None = None
        self.invocation: Invocation | None = None
        self.next: asyncio.Future[Invocation] | None = None
        self.served = 0
        self.ending: Ending | None = None
        self.timer: asyncio.TimerHandle | None = None

    def kill(self, ending: Ending) -> None:
        """Kill the process; its invocation ends with ``ending``."""
        self.ending = self.ending or ending
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def stop_timer(self) -> None:
        """Cancel the timeout."""
        if self.timer is not None:
            self.timer.cancel()

    def peak_memory(self) -> int | None:
        """Return the peak resident memory in MiB, including pages shared with the zygote."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return round(int(lines[0].split()[1]) / 1024) if lines else None


class WorkerPool:
    """The workers of one function. All methods run in the thread of the event loop."""

    def __init__(
        self,
        function: FunctionDefinition,
        *,
        fork_zygote: Callable[[dict[str, Any]], socket.socket],
        host: str,
        environment: dict[str, str],
        concurrency: int,
        journal: Journal,
        faults: Faults,
    ) -> None:
        self.function = function
        self._fork_zygote = fork_zygote
        self._host = host
        self._environment = environment
        self._concurrency = concurrency
        self.reserved: int | None = None
        self._journal = journal
        self._faults = faults
        self._workers: dict[str, Worker] = {}
        self._idle: list[Worker] = []
        self._waiting: deque[Invocation] = deque()
        self._closed = False
        self._connection: socket.socket | None = None

    def _start(self) -> None:
        """Start the zygote, which imports the handler: with the first invocation, because most
        functions of most sandboxes get none."""
        function = self.function
        self._connection = self._fork_zygote(
            {
                "handler": function.handler,
                "code": list(function.code),
                "durable": function.durable,
                "host": self._host,
                "environment": self._environment,
            }
        )
        loop = asyncio.get_running_loop()
        loop.add_reader(self._connection, self._read_zygote, self._connection)
        self.set_clock()

    def set_clock(self) -> None:
        """Set the clocks of the workers by the faults."""
        if self._connection is not None:
            ahead = self._faults.clock_of(self.function.name)
            with contextlib.suppress(ConnectionError):
                self._connection.send(json.dumps({"clock": ahead}).encode())

    def close(self) -> None:
        """Stop all workers; their invocations end as killed."""
        self._closed = True
        self._end_workers()

    def _end_workers(self) -> None:
        if self._connection is not None:
            asyncio.get_running_loop().remove_reader(self._connection)
            self._connection.close()
            self._connection = None
        for worker in list(self._workers.values()):
            worker.kill("killed")
            self._exited(worker, -signal.SIGKILL)
        while self._waiting:
            self._waiting.popleft().end(_exit_outcome(None, -signal.SIGKILL)[0])

    def status(self) -> dict[str, Any]:
        """Return the numbers of workers and of pending invocations."""
        return {
            "workers": len(self._workers),
            "idle": len(self._idle),
            "running": self._running,
            "waiting": len(self._waiting),
            "accessKey": self.function.access_key,
        }

    @property
    def _running(self) -> int:
        return sum(1 for worker in self._workers.values() if worker.invocation)

    @property
    def saturated(self) -> bool:
        """Whether one more invocation would exceed the function's concurrency."""
        return self._running + len(self._waiting) >= self._limit

    @property
    def _limit(self) -> int:
        return self._concurrency if self.reserved is None else self.reserved

    def reserve(self, concurrency: int | None) -> None:
        """Set the reserved concurrency, None for none. Invocations beyond it wait, as those that
        Lambda throttles and retries."""
        self.reserved = concurrency
        self._assign()

    async def run(self, invocation: Invocation) -> Outcome:
        """Run an invocation on a free worker, or when one is free."""
        if self._closed:
            return _exit_outcome(None, -signal.SIGKILL)[0]
        if self._connection is None:
            self._start()
        self._waiting.append(invocation)
        self._assign()
        return await invocation.outcome

    def find(self, identity: str) -> Worker | None:
        """Return the worker with this identity, or None."""
        return self._workers.get(identity)

    def find_execution(self, execution_arn: str) -> Worker | None:
        """Return the worker that runs a durable execution, or None."""
        for worker in self._workers.values():
            if worker.invocation and worker.invocation.execution_arn == execution_arn:
                return worker
        return None

    async def next(self, worker: Worker) -> Invocation:
        """Wait for the next invocation of a worker."""
        if worker.initialised is None:
            worker.initialised = time.time()
            worker.stop_timer()
        worker.next = asyncio.get_running_loop().create_future()
        self._idle.append(worker)
        self._assign()
        return await worker.next

    def finish(self, worker: Worker, request_id: str, outcome: Outcome) -> bool:
        """Handle the answer of a worker; False if the worker does not run that invocation."""
        invocation = worker.invocation
        if invocation is None or invocation.request_id != request_id or worker.ending:
            return False
        if self._faults.take("after", self.function.name, invocation.execution, None):
            worker.kill("killed")
            return True
        self._settle(worker, outcome)
        return True

    def fail_initialisation(self, worker: Worker, payload: bytes) -> None:
        """Handle an initialization error: the next pending invocation fails with it."""
        worker.initialised = time.time()
        if self._waiting:
            invocation = self._waiting.popleft()
            invocation.begin(self.function.timeout)
            worker.invocation = invocation
            self._settle(worker, Outcome("error", payload))

    def kill_running(self) -> bool:
        """Kill every worker that has an invocation; return whether there was one."""
        running = [worker for worker in self._workers.values() if worker.invocation]
        for worker in running:
            worker.kill("killed")
        return bool(running)

    def _assign(self) -> None:
        while self._waiting and self._idle and self._running < self._limit:
            self._give(self._idle.pop(), self._waiting.popleft())
        # The other workers are starting, or have answered and will request an invocation.
        coming = len(self._workers) - len(self._idle) - self._running
        wanted = len(self._waiting) - coming
        free = self._limit - len(self._workers)
        starting = sum(worker.initialised is None for worker in self._workers.values())
        for _ in range(min(wanted, free, _STARTING - starting)):
            self._fork()

    def _give(self, worker: Worker, invocation: Invocation) -> None:
        loop = asyncio.get_running_loop()
        invocation.begin(self._faults.timeout_of(self.function.name, self.function.timeout))
        worker.invocation = worker.log.invocation = invocation
        worker.timer = loop.call_later(invocation.timeout, worker.kill, "timeout")
        if self._faults.take("before", self.function.name, invocation.execution, None):
            worker.kill("killed")
            return
        if worker.next is not None:
            worker.next.set_result(invocation)

    def _fork(self) -> None:
        if self._connection is None:
            return
        number = next(_numbers)
        identity = f"{self.function.name}-{number}"
        read, write = os.pipe()
        stream = (
            f"{time.strftime('%Y/%m/%d', time.gmtime())}/[{self.function.version}]{number:032x}"
        )
        log = WorkerLog(read, self.function.name, stream, self._journal)
        worker = self._workers[identity] = Worker(identity, log)
        limit = _INIT_SECONDS + self.function.timeout
        worker.timer = asyncio.get_running_loop().call_later(limit, worker.kill, "timeout")
        message = {
            "worker": identity,
            "prefix": f"_runtime/{identity}",
            "environment": {"AWS_LAMBDA_LOG_STREAM_NAME": stream},
        }
        # The closed socket of a zygote that has exited ends the pending invocations.
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self._connection, [json.dumps(message).encode()], [write])
        os.close(write)

    def _read_zygote(self, connection: socket.socket) -> None:
        try:
            packet = connection.recv(_PACKET, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionResetError:
            packet = b""
        if not packet:
            _log.error("The zygote of %s exited unexpectedly", self.function.name)
            self._end_workers()
            return
        message = json.loads(packet)
        if "ready" in message:
            self._report(message["ready"])
        elif worker := self._workers.get(message.get("started") or message.get("exited") or ""):
            if "started" in message:
                worker.pid = message["pid"]
                if worker.ending:
                    worker.kill(worker.ending)
            else:
                self._exited(worker, message["code"])

    def _report(self, report: dict[str, Any]) -> None:
        if report["error"]:
            _log.warning("The import of %s failed: %s", self.function.name, report["error"])
        if report["threads"] > 1:
            _log.warning("%s starts threads on import: its workers start cold", self.function.name)

    def _exited(self, worker: Worker, code: int) -> None:
        self._workers.pop(worker.identity, None)
        if worker in self._idle:
            self._idle.remove(worker)
        if worker.next is not None:
            worker.next.cancel()
        worker.log.drain()
        worker.log.close()
        if worker.invocation is None and worker.initialised is None and self._waiting:
            worker.invocation = self._waiting.popleft()
            worker.invocation.begin(self.function.timeout)
        if worker.invocation is not None:
            outcome, problem = _exit_outcome(worker, code)
            self._settle(worker, outcome, problem)
        self._assign()

    def _settle(self, worker: Worker, outcome: Outcome, problem: str = "") -> None:
        """End the invocation of a worker. `problem` is how its process ended, if it did."""
        invocation, worker.invocation = worker.invocation, None
        worker.stop_timer()
        worker.log.drain()
        worker.log.invocation = None
        if invocation is None:
            return
        worker.served += 1
        entry: dict[str, Any] = {
            "function": self.function.name,
            "stream": worker.log.stream,
            "request_id": invocation.request_id,
            "execution": invocation.execution,
            "outcome": outcome.ending,
            "milliseconds": round((time.time() - invocation.started) * 1000),
            "cold": worker.served == 1,
            "memory": worker.peak_memory(),
        }
        if problem:
            entry["problem"] = problem
        if worker.served == 1 and worker.initialised is not None:
            entry["init_milliseconds"] = round((worker.initialised - worker.asked) * 1000)
        self._journal.add("invocation", **entry)
        invocation.end(outcome)


def _exit_outcome(worker: Worker | None, code: int) -> tuple[Outcome, str]:
    """Return Lambda's error for a process that exited without an answer, and what its log says."""
    invocation = worker.invocation if worker else None
    prefix = f"RequestId: {invocation.request_id} Error: " if invocation else ""
    if worker and invocation and worker.ending == "timeout":
        problem = f"Task timed out after {invocation.timeout:.2f} seconds"
        return Outcome.failed("timeout", "Sandbox.Timedout", prefix + problem), problem
    if code < 0:
        how = f"signal: {signal.Signals(-code).name.removeprefix('SIG').lower()}"
        how = how.replace("signal: kill", "signal: killed")
        problem = f"Runtime exited with error: {how}"
        return Outcome.failed("killed", "Runtime.ExitError", prefix + problem), problem
    problem = "Runtime exited " + (
        f"with error: exit status {code}" if code else "without providing a reason"
    )
    return Outcome.failed("error", "Runtime.ExitError", prefix + problem), problem
