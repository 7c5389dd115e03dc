"""`leeway view` as a process, for a cluster of the sandbox with a kubeconfig alone."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from leeway_cli.errors import BadInputError
from leeway_cli.explain.capacity import Source
from leeway_cli.output import kept_warnings
from leeway_cli.view.command import SHORTEST, _Costs, _Log, _show
from leeway_cli.view.recording import read_recording

from tests.cli.conftest import drop_clients
from tests.sandbox.kubernetes.live import PODS, bare_pod, running_cluster
from tests.view.pictures import PICTURE


def test_the_page_follows_the_cluster_until_ctrl_c(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    environment = {key: value for key, value in os.environ.items() if "AWS_" not in key}
    environment |= {"AWS_EC2_METADATA_DISABLED": "true"}
    with ExitStack() as cluster:
        live = cluster.enter_context(running_cluster(tmp_path))
        first, second = live.add_nodes(1, 2)
        live.create(PODS, bare_pod("web", nodeName=first))
        given = ["--kubeconfig", str(live.kubeconfig()), "--every", "1s", "--record", str(record)]
        with subprocess.Popen(
            [sys.executable, "-m", "leeway_cli", "view", *given],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                address = process.stdout.readline().strip()
                assert address.startswith("http://127.0.0.1:"), process.stderr.read()
                with httpx.stream("GET", f"{address}events", timeout=60, trust_env=False) as page:
                    events = (line[6:] for line in page.iter_lines() if line.startswith("data: "))
                    picture = json.loads(next(events))
                    assert picture["nodes"].keys() == {first, second}
                    assert picture["pods"]["default/web"][0] == first
                    assert picture["plan"] is None
                    live.create(PODS, bare_pod("db", nodeName=second))
                    came = until(events, "pods")
                    assert came == {"default/db": [second, 0, 0]}
                    cluster.close()
                    assert "The API server did not answer" in until(events, "problem")
            finally:
                process.send_signal(signal.SIGINT)
                errors = process.stderr.read()
            assert process.wait() == 0, errors
    assert address not in errors, "the token is in no log"
    assert len(read_recording(record).splitlines()) > 2


def test_a_port_that_is_used_leaves_no_record(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BadInputError, match=f"--port: expected a port .* got {port}"):
            _show(iter([PICTURE]), port, record, SHORTEST)
    assert not record.exists()


def test_what_cannot_be_read_is_warned_of_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is searched each two seconds, costs each five minutes: a page may be read between."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "LEEWAY_TABLE": "leeway",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("leeway.wiring.clients.DEFAULT_TRIES", 1)
    monkeypatch.setattr("leeway_cli.view.command.LOG_EVERY", 60.0)
    drop_clients()
    source = Source((), (), "prod", None, None, False, None, "leeway", optional=True)
    log, costs = _Log(source), _Costs(source)
    said = []
    for _ in range(3):
        with kept_warnings() as warnings:
            log.new_lines()
            costs.hours()
        said.append(warnings)
    assert ["the log of dec" in said[0][0], "the prices of bef" in said[0][1]] == [True, True]
    assert said[1:] == said[:1] * 2
    drop_clients()


def until(events: Any, field: str) -> Any:
    """Return a field of the next event that has it."""
    some = islice(map(json.loads, events), 60)
    return next(found[field] for found in some if field in found)
