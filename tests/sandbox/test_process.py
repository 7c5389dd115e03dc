"""Processes of the sandbox, forked by a nursery or not: their start, exit, and errors."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from leeway_sandbox.access import new_token
from leeway_sandbox.children import Child
from leeway_sandbox.nursery import VARIABLE, Forked

from tests.sandbox import control_token
from tests.sandbox.lambda_service.conftest import definition, running_service

SERVES = """
import asyncio, os
from leeway_sandbox.process import report_ready, wait_for_stop
report_ready(pid=os.getpid())
asyncio.run(wait_for_stop())
"""
STARTS = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize("text", [signal.SIGTERM, signal.SIGINT])
def test_it_exits_cleanly_on_sigterm(text: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVES], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"ready": True, "pid": process.pid}
        _until_it_listens(process.pid)
        process.send_signal(text)

        assert process.wait(60) == 0


def test_it_exits_when_its_parent_process_is_killed() -> None:
    command = [sys.executable, "-c", STARTS, SERVES]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert json.loads(parent.stdout.readline())["pid"] != parent.pid
        parent.kill()

        assert parent.stdout.read() == b"", "the pipe ends when nobody holds it any more"


@pytest.mark.parametrize("part", ["aws", "kubernetes", "lambda_service"])
def test_a_process_that_cannot_start_exits_with_one_line(tmp_path: Path, part: str) -> None:
    token = tmp_path / "token"
    new_token(token)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        in_use = started(tmp_path, part, "--port", str(port), "--control-token", str(token))
    missing = started(tmp_path, part, "--control-token", str(tmp_path / "none"))

    assert in_use[0] == 1
    assert in_use[1].startswith(f"Port {port} of 127.0.0.1 is already in use. Stop the process")
    assert missing[1].startswith("The control token cannot be read from")


def test_access_rules_that_cannot_be_read_end_the_cluster_with_one_line(tmp_path: Path) -> None:
    token = tmp_path / "token"
    new_token(token)
    rules = tmp_path / "rules.yaml"
    arguments = ("--control-token", str(token), "--rbac", str(rules))

    missing = started(tmp_path, "kubernetes", *arguments)
    rules.write_text("kind: Pod")
    other_kind = started(tmp_path, "kubernetes", *arguments)

    assert missing[1].startswith(f"The access rules in {rules} cannot be")
    assert other_kind[1].startswith(f"{rules}: the kind 'Pod' is not")


def _until_it_listens(pid: int) -> None:
    """Wait until it catches SIGTERM."""
    until = time.monotonic() + 60
    while not _caught(pid) >> (signal.SIGTERM - 1) & 1:
        assert time.monotonic() < until
        time.sleep(0.01)


def _caught(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(mask, 16)


def started(folder: Path, part: str, *arguments: str) -> tuple[int, str]:
    """Run a process that cannot start; return its exit status and the last line of its stderr."""
    child = Child.start(f"leeway_sandbox.{part}", arguments, folder / "log")
    try:
        code = child.process.wait(60)
    finally:
        child.stop()
    log = child.log.read_text()
    assert "Traceback" not in log
    return code, log.splitlines()[-1]


SERVER = "leeway_sandbox.kubernetes"
LEAVES = f"""
import sys, time
from pathlib import Path
from leeway_sandbox.children import Child
child = Child.start("{SERVER}", sys.argv[1:], Path("/dev/null"))
child.ready(60)
print(child.process.pid, flush=True)
time.sleep(60)
"""
READS = """
import importlib, os, pkgutil, sys
from pathlib import Path

found = []

class Environment(type(os.environ)):
    def __getitem__(self, name):
        frame = sys._getframe()
        while frame.f_code.co_filename in (__file__, "<frozen os>", "<frozen _collections_abc>"):
            frame = frame.f_back
        found.append((frame.f_globals["__name__"], name))
        return super().__getitem__(name)

os.environ.__class__ = Environment
import leeway
for one in pkgutil.walk_packages(leeway.__path__, "leeway."):
    if not one.name.startswith("leeway.wiring"):
        importlib.import_module(one.name)
print(*(f"{module}:{name}" for module, name in found if module.startswith("leeway.")))
"""


@contextmanager
def server(folder: Path, *options: str) -> Iterator[Child]:
    child = Child.start(SERVER, [*control_token.OPTIONS, *options], folder / "log")
    try:
        yield child
    finally:
        child.stop()


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def _state(pid: int) -> str:
    return _stat(pid)[0]


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_servers_are_processes_of_their_own_that_exit_on_sigterm(tmp_path: Path) -> None:
    with server(tmp_path) as first, server(tmp_path) as second:
        assert isinstance(first.process, Forked)
        assert first.ready(60)["port"] != second.ready(60)["port"]
        assert parent_of(first.process.pid) == parent_of(second.process.pid) != os.getpid()
        assert first.process.poll() is None
        first.terminate()
        assert first.process.wait(60) == 0
        assert second.process.poll() is None


def test_a_server_that_is_killed_says_so(tmp_path: Path) -> None:
    with server(tmp_path) as child:
        child.ready(60)
        child.process.kill()
        assert child.process.wait(60) == -signal.SIGKILL
        child.process.kill()


def test_a_server_that_ends_while_signals_are_on_their_way_tells_its_exit_status(
    tmp_path: Path,
) -> None:
    with server(tmp_path) as child:
        child.ready(60)
        nursery = parent_of(child.process.pid)
        os.kill(nursery, signal.SIGSTOP)
        try:
            child.terminate()
            child.terminate()
            os.kill(child.process.pid, signal.SIGKILL)
            until = time.monotonic() + 60
            while _state(child.process.pid) != "Z":
                assert time.monotonic() < until, "it still runs"
                time.sleep(0.05)
        finally:
            os.kill(nursery, signal.SIGCONT)
        with server(tmp_path) as later:  # by then the nursery has told of the end, and hung up
            later.ready(60)
        assert child.process.wait(60) == -signal.SIGKILL


def test_a_server_that_cannot_start_exits_with_its_error_in_the_log(tmp_path: Path) -> None:
    with server(tmp_path, "--no-such-option") as child:
        assert child.process.wait(60) == 2
    assert "unrecognized arguments: --no-such-option" in (tmp_path / "log").read_text()


def test_a_server_ends_with_the_process_that_asked_for_it() -> None:
    command = [sys.executable, "-c", LEAVES, *control_token.OPTIONS]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        client.kill()
    until = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.05)


def test_a_client_that_leaves_at_once_ends_its_server_and_no_other_one(tmp_path: Path) -> None:
    request = {"module": SERVER, "arguments": ["--no-such-option"], "environment": {}}
    packet = json.dumps({**request, "folder": str(tmp_path)}).encode()
    null = os.open(os.devnull, os.O_RDWR)
    with server(tmp_path) as running:
        running.ready(60)
        for unread in (True, False):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(os.environ[VARIABLE])
                socket.send_fds(client, [packet], [null, null])
                if unread:
                    client.recv(1, socket.MSG_PEEK)
        with server(tmp_path) as later:
            later.ready(60)
        assert running.process.poll() is None
    os.close(null)


def test_lambda_services_share_the_base_of_their_functions() -> None:
    echo = definition("echo", "plain.echo")
    bases = set()
    for colour in ("green", "red"):
        there = definition("environment", "plain.environment", environment={"COLOUR": colour})
        with running_service() as service:
            service.control("PUT", "functions", {"functions": [echo, there]})
            assert service.invoke("environment")["COLOUR"] == colour
            zygote = parent_of(service.invoke("echo")["pid"])
            bases.add(parent_of(zygote))
    assert len(bases) == 1


def test_functions_run_without_a_nursery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    with running_service() as service:
        service.control("PUT", "functions", {"functions": [definition("echo", "plain.echo")]})
        assert service.invoke("echo", {"a": 1})["event"] == {"a": 1}


def test_only_wiring_reads_the_environment_of_a_function_when_it_is_imported(
    tmp_path: Path,
) -> None:
    """What a base imports is the same for all functions."""
    script = tmp_path / "reads.py"
    script.write_text(READS)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=180
    )
    assert done.stdout.split() == []
