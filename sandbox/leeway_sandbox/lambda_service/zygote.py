"""The base imports the libraries of all functions, and forks a zygote for each function. A zygote
imports the code of its function, and forks a worker per execution environment.

They run as a script outside of the package, so that a worker sees only the code and layers of the
function. They have a single thread, because a fork copies only the thread that forks.

The base gets the settings of each function on a SOCK_SEQPACKET socket, with a socket of the zygote.
A nursery has one base for the Lambda services of many sandboxes, each with a connection of its own.
The zygote's has one JSON object per packet:
- in: ``{"worker": id, "environment": {...}}`` with the write end of the worker's log pipe, or
  ``{"clock": seconds}``: how far the clocks of all workers are ahead from now on
- out: ``{"ready": {"threads", "error"}}``, ``{"started": id, "pid"}``,
  ``{"exited": id, "signal"|"status"}``
"""

import contextlib
import ctypes
import functools
import gc
import importlib
import json
import mmap
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_PACKET = 65536
_SECONDS = struct.Struct("d")
_RUNTIME_MODULES = (
    "concurrent.futures.thread",
    "http.client",
    "awslambdaric.lambda_context",
    "awslambdaric.lambda_runtime_log_utils",
    "awslambdaric.lambda_runtime_marshaller",
)
# Libraries that most functions with AWS clients import. Several of them import their larger parts
# on the first use, which would be in each zygote.
_LIBRARIES = (
    "aws_durable_execution_sdk_python",
    "aws_lambda_powertools",
    "cronsim",
    "httpcore2",
    "httpx2",
    "pydantic.alias_generators",
    "pydantic.dataclasses",
    "pydantic.functional_serializers",
    "pydantic.functional_validators",
    "pydantic.json_schema",
    "pydantic.main",
    "pydantic.type_adapter",
    "pydantic.types",
)
_OF_ONE_FUNCTION = "leeway.wiring"


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _preload(handler: str, durable: bool) -> str | None:
    """Import the modules of every worker of a function; return an error message, or None."""
    try:
        importlib.import_module(handler.rpartition(".")[0].replace("/", "."))
        if durable:
            service = importlib.import_module("aws_durable_execution_sdk_python.lambda_service")
            service.LambdaClient.initialize_client()
    except BaseException as error:  # noqa: BLE001 - a worker meets the same error and reports it
        return f"{type(error).__name__}: {error}"
    return None


def _load_libraries(clients: list[str]) -> None:
    """Import libraries and parse the models of AWS services once for all functions.

    The first client of a service takes 10 to 150 ms of processor time, mostly for its model.
    awslambdaric.lambda_runtime_client is not imported: its native part reads the address of the
    Runtime API once, when it is loaded, and each worker has another address.
    """
    for module in _RUNTIME_MODULES:
        importlib.import_module(module)
    if not clients:
        return
    for library in _LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    boto3 = importlib.import_module("boto3")
    session: Any = importlib.import_module("botocore.session")
    session.create_loader = functools.cache(session.create_loader)
    # The default session would keep these credentials for the functions.
    own = boto3.Session("none", "none", region_name="us-east-1")
    # A built layer has the models of the services that functions call, not of all in their
    # policies.
    known = own.get_available_services()
    for client in clients:
        if client in known:
            own.client(client)
    with contextlib.suppress(ImportError):
        _load_all_of(importlib.import_module("leeway"))


def _load_all_of(package: Any) -> None:
    """Import all modules of a package, but not those that read the environment of their function
    when they are imported."""
    for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if one.name == _OF_ONE_FUNCTION:
            continue
        module = importlib.import_module(one.name)
        if one.ispkg:
            _load_all_of(module)


def serve(handler: str, host: str, prefix: str) -> NoReturn:
    """Run the loop of Lambda's runtime client with ``http://host/prefix``."""
    os.environ["AWS_LAMBDA_RUNTIME_API"] = f"{host}/{prefix}"
    from awslambdaric import bootstrap
    from awslambdaric.lambda_runtime_client import LambdaRuntimeClient

    class Client(LambdaRuntimeClient):  # type: ignore[misc]
        """Adds the prefix to calls that use http.client, which accepts only host and port."""

        def call_rapid(self, http_method: str, endpoint: str, *rest: Any, **named: Any) -> None:
            super().call_rapid(http_method, f"/{prefix}{endpoint}", *rest, **named)

    bootstrap.run(handler, Client(host, use_thread_for_polling_next=True))
    sys.exit(0)


def _use_clock(ahead: mmap.mmap) -> None:
    """Move the clock of this process by the seconds in the shared memory."""
    own, own_ns = time.time, time.time_ns
    time.time = lambda: own() + _SECONDS.unpack(ahead)[0]
    time.time_ns = lambda: own_ns() + int(_SECONDS.unpack(ahead)[0] * 1e9)


class Zygote:
    """Forks workers on request and reports their exits."""

    def __init__(self, connection: socket.socket, settings: dict[str, Any]) -> None:
        self._connection = connection
        self._settings = settings
        self._workers: dict[int, str] = {}
        self._forks_loaded = False
        self._ahead = mmap.mmap(-1, _SECONDS.size)  # forks share it

    def run(self) -> None:
        """Serve until the other end closes. Workers exit with this process."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._load()
        while True:
            readable, _, _ = select.select([self._connection.fileno(), wake_read], [], [])
            if wake_read in readable:
                os.read(wake_read, _PACKET)
                self._reap()
            if self._connection.fileno() in readable:
                packet, descriptors, _, _ = socket.recv_fds(self._connection, _PACKET, 1)
                if not packet:
                    return
                message = json.loads(packet)
                if "clock" in message:
                    self._ahead[:] = _SECONDS.pack(message["clock"])
                else:
                    self._fork(message, descriptors[0])

    def _send(self, message: dict[str, Any]) -> None:
        # The service has ended, and so will this process.
        with contextlib.suppress(ConnectionError):
            self._connection.send(json.dumps(message).encode())

    def _load(self) -> None:
        settings = self._settings
        error = _preload(settings["handler"], settings["durable"])
        threads = _threads()
        self._forks_loaded = threads == 1
        gc.freeze()
        self._send({"ready": {"threads": threads, "error": error}})

    def _fork(self, message: dict[str, Any], log: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._become_worker(message, log)
        os.close(log)
        self._workers[pid] = message["worker"]
        self._send({"started": message["worker"], "pid": pid})

    def _become_worker(self, message: dict[str, Any], log: int) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _die_with_parent()
            self._connection.close()
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            os.environ.update(message["environment"])
            place = (self._settings["handler"], self._settings["host"], message["prefix"])
            if not self._forks_loaded:
                program = [sys.executable, "-P", __file__, "--worker", *place]
                os.execv(sys.executable, [*program, json.dumps(self._settings["code"])])  # noqa: S606
            _use_clock(self._ahead)
            gc.enable()
            serve(*place)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:  # noqa: BLE001 - a worker must not continue with the code of the zygote
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    def _reap(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            worker = self._workers.pop(pid, None)
            code = os.waitstatus_to_exitcode(status)
            self._send({"exited": worker, "code": code})


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def serve_base(connection: socket.socket, layers: list[str], clients: list[str]) -> None:
    """Fork a zygote for each function whose settings come, until the other end closes. A packet
    that is empty JSON brings the connection of one more Lambda service."""
    path = list(sys.path)
    sys.path[:0] = layers
    _load_libraries(clients)
    if _threads() > 1:
        raise RuntimeError("a library of the functions starts threads on import")
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes zygotes that have exited
    services = [connection]
    while connection in services:
        for service in select.select(services, [], [])[0]:
            packet, descriptors, _, _ = socket.recv_fds(service, _PACKET, 1)
            if not packet:
                services.remove(service)
                service.close()
            elif not (settings := json.loads(packet)):
                services.append(socket.socket(fileno=descriptors[0]))
            elif os.fork() == 0:
                for one in services:
                    one.close()
                _die_with_parent()
                sys.path[:] = [*settings["code"], *path]
                os.environ.clear()
                os.environ.update(settings["environment"])
                time.tzset()
                os.chdir(settings["code"][0])
                Zygote(socket.socket(fileno=descriptors[0]), settings).run()
                return
            else:
                os.close(descriptors[0])


def main() -> None:
    """Run ``zygote.py FD LAYERS CLIENTS`` or, for a cold worker, ``--worker … CODE``."""
    if sys.argv[1] == "--worker":
        handler, host, prefix, code = sys.argv[2:6]
        sys.path[:0] = json.loads(code)
        serve(handler, host, prefix)
    _die_with_parent()
    gc.disable()  # imports create objects that stay; each worker enables it
    connection = socket.socket(fileno=int(sys.argv[1]))
    serve_base(connection, json.loads(sys.argv[2]), json.loads(sys.argv[3]))


if __name__ == "__main__":
    main()
