"""A process that has imported the servers of the sandbox, and forks one of them on request.

Servers import for seconds: moto alone takes two. One sandbox needs each of them once, and starts
them as processes of their own. The tests start many: they run a nursery, and name its socket in
the environment, where `children.Child` finds it.

A client connects to the socket (SOCK_SEQPACKET) and sends one packet, `{"module", "arguments",
"environment", "folder"}`, with its standard output and standard error. It gets `{"pid"}`, and
`{"code"}` at the end of the server; in between it may send `{"signal"}`. A server whose client
leaves gets SIGTERM. A Lambda service sends `{"layers", "clients"}` with its end of a connection to
the base of its functions: services with the same layers share one base.
"""

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

VARIABLE = "LEEWAY_SANDBOX_NURSERY"
"""Has the path of the socket, if there is a nursery."""

SERVERS = frozenset(f"leeway_sandbox.{one}" for one in ("aws", "kubernetes", "lambda_service"))
_PACKET = 2**18

COMMON = {"LANG": "en_US.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin", "TZ": ":UTC"}
"""The environment that all functions have."""
_ZYGOTE = Path(__file__).with_name("lambda_service") / "zygote.py"


@contextmanager
def nursery() -> Iterator[None]:
    """Run a nursery while the context lasts, for this process and those that it starts."""
    with TemporaryDirectory(prefix="leeway-nursery-") as folder:
        path = str(Path(folder) / "socket")
        command = [sys.executable, "-m", "leeway_sandbox.nursery", path]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes, start_new_session=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline(), "it does not listen"
            os.environ[VARIABLE] = path
            try:
                yield
            finally:
                del os.environ[VARIABLE]
                process.communicate()


def start_base(
    layers: Sequence[str], clients: Sequence[str], end: socket.socket
) -> "subprocess.Popen[bytes]":
    """Start the process that forks the zygotes of functions with these layers (`zygote.py`), with
    its end of a connection."""
    return subprocess.Popen(
        [
            # A zygote that has threads forks only to start a new process.
            *(sys.executable, "-P", "-W", "ignore:This process:DeprecationWarning"),
            *(str(_ZYGOTE), str(end.fileno())),
            *(json.dumps(layers), json.dumps(clients)),
        ],
        stdin=subprocess.DEVNULL,
        # The standard output of the Lambda service is only for its ready line.
        stdout=sys.stderr.fileno(),
        env=COMMON,
        pass_fds=[end.fileno()],
        # Ctrl-C in the terminal goes to the sandbox, which stops its workers itself.
        start_new_session=True,
    )


def share_base(
    nursery: str, layers: Sequence[str], clients: Sequence[str], end: socket.socket
) -> None:
    """Give the base of a nursery one more connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(nursery)
        request = {"layers": list(layers), "clients": list(clients)}
        socket.send_fds(connection, [json.dumps(request).encode()], [end.fileno()])


class Forked:
    """A server of a nursery, with the methods of `subprocess.Popen` that the sandbox uses."""

    def __init__(
        self, nursery: str, module: str, arguments: Sequence[str], stderr: BinaryIO
    ) -> None:
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(nursery)
        read, write = os.pipe()
        self.stdout: BinaryIO = os.fdopen(read, "rb")
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": dict(os.environ),
            "folder": str(Path.cwd()),
        }
        packet = json.dumps(request).encode()
        socket.send_fds(self._connection, [packet], [write, stderr.fileno()])
        os.close(write)
        self.pid = int(json.loads(self._connection.recv(_PACKET))["pid"])

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has exited, and return its exit status.

        Raises:
            subprocess.TimeoutExpired: it has not exited after `timeout` seconds.
        """
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                packet = self._receive()
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from error
            self.returncode = json.loads(packet)["code"] if packet else -signal.SIGKILL
            self._connection.close()
        return self.returncode

    def _receive(self) -> bytes:
        try:
            return self._connection.recv(_PACKET)
        except ConnectionResetError:  # the nursery left a signal unread; the status comes next
            return self._connection.recv(_PACKET)

    def poll(self) -> int | None:
        """Return its exit status, None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ConnectionError):  # it has just ended
                self._connection.send(json.dumps({"signal": number}).encode())


class _Nursery:
    """Forks servers, and tells each client of the end of its server."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._clients: dict[int, socket.socket] = {}
        self._bases: dict[str, socket.socket] = {}
        self._running: list[subprocess.Popen[bytes]] = []
        self._selector = selectors.DefaultSelector()

    def serve(self) -> Mapping[str, Any]:
        """Fork a server for each client until standard input ends. Returns only in a server, with
        its request."""
        woken, waking = socket.socketpair()
        waking.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(woken, selectors.EVENT_READ, lambda: self._reap(woken))
        self._selector.register(sys.stdin, selectors.EVENT_READ, sys.exit)
        while True:
            for key, _ in self._selector.select():
                if request := key.data():
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for one in (woken, waking, self._selector):
                        one.close()
                    return request  # type: ignore[no-any-return]

    def _accept(self) -> Mapping[str, Any] | None:
        client, _ = self._listener.accept()
        packet, descriptors, _, _ = socket.recv_fds(client, _PACKET, 2)
        if not packet:
            client.close()
            return None
        request: Mapping[str, Any] = json.loads(packet)
        if "layers" in request:
            client.close()
            self._share(request, descriptors[0])
            return None
        _load(request["module"])
        pid = os.fork()
        if pid == 0:
            others = (*self._clients.values(), *self._bases.values())
            for one in (client, self._listener, *others):
                one.close()
            os.setsid()
            for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *descriptors)):
                os.dup2(descriptor, number)
                os.close(descriptor)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        _tell(client, {"pid": pid})
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ, partial(self._command, pid))
        return None

    def _share(self, request: Mapping[str, Any], descriptor: int) -> None:
        key = json.dumps(request)
        if key not in self._bases:
            self._bases[key], end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with end:
                self._running.append(start_base(request["layers"], request["clients"], end))
        socket.send_fds(self._bases[key], [b"{}"], [descriptor])
        os.close(descriptor)

    def _command(self, pid: int) -> None:
        if pid not in self._clients:  # its server has ended in the same moment
            return
        packet = b""
        with suppress(ConnectionError):  # it has left without reading
            packet = self._clients[pid].recv(_PACKET)
        os.kill(pid, json.loads(packet)["signal"] if packet else signal.SIGTERM)
        if not packet:
            self._forget(pid)

    def _reap(self, woken: socket.socket) -> None:
        woken.recv(_PACKET)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if client := self._clients.get(pid):
                    _tell(client, {"code": os.waitstatus_to_exitcode(status)})
                    self._forget(pid)

    def _forget(self, pid: int) -> None:
        client = self._clients.pop(pid)
        self._selector.unregister(client)
        client.close()


def _tell(client: socket.socket, message: Mapping[str, int]) -> None:
    with suppress(ConnectionError):  # it has left
        client.send(json.dumps(message).encode())


def _load(module: str) -> None:
    """Import a server, whose objects all stay. The server itself reports an error."""
    gc.disable()
    with suppress(Exception):
        entry = import_module(f"{module}.__main__")
        if load := getattr(entry, "load", None):
            load()
    gc.freeze()
    gc.enable()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError(f"{module} starts threads on import, which a fork would lose")


def main() -> None:
    """Serve at the socket whose path is the argument."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(sys.argv[1])
        listener.listen(128)
        print("listening", flush=True)
        request = _Nursery(listener).serve()
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    sys.argv[1:] = request["arguments"]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
