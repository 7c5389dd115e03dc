"""The start and stop of the service."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.sandbox import control_token

from .conftest import Service, definition, durable, eventually

SERVICE = [sys.executable, "-m", "leeway_sandbox.lambda_service", *control_token.OPTIONS]


def _alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def _with_worker(line: str) -> tuple[Service, int]:
    service = Service(f"http://127.0.0.1:{json.loads(line)['port']}")
    functions = [
        definition("echo", "plain.echo"),
        definition("slow", "plain.slow"),
        durable("waiting", "durable.waiting"),
    ]
    service.control("PUT", "functions", {"functions": functions})
    pid = service.invoke("echo")["pid"]
    service.send("slow", {"seconds": 60})
    service.send("waiting:live", {})
    service.client.close()
    return service, pid


@contextmanager
def _started(*command: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A process and its standard output; it is always stopped after the test."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, process.stdout
        finally:
            process.kill()


def test_it_stops_with_its_workers_on_sigterm() -> None:
    with _started(*SERVICE, "--retry-delay", "0.1") as (process, output):
        _, worker = _with_worker(output.readline())
        process.terminate()

        assert process.wait(60) == 0
        assert output.read() == ""
    eventually(lambda: not _alive(worker))
