"""Fixtures for tests of built functions: the build, a Docker engine, a sandbox."""

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from leeway_sandbox.containers import addresses_for_containers
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import smoke_scenario

from tests.sam.invocation import Invocation, Invoke

ROOT = Path(__file__).parents[2]
BUILD = ROOT / ".aws-sam" / "build"
ARCHITECTURE = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())
CANNOT = 3
"""The exit status of tools/lambda-image if the machine can neither pull nor build the image."""


@pytest.fixture(scope="session")
def build() -> Path:
    """The output folder of `make build`."""
    if not (BUILD / "template.yaml").exists():
        pytest.fail("nothing is built: these tests are run by `make sam-test`")
    return BUILD


@pytest.fixture(scope="session")
def engine() -> None:
    """A Docker engine with the Lambda image."""
    try:
        info = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no docker client is installed")
    if info.returncode:
        pytest.skip(f"no Docker engine answers: {info.stderr.strip().splitlines()[-1]}")
    made = subprocess.run(
        [ROOT / "tools" / "lambda-image"], capture_output=True, text=True, check=False
    )
    if made.returncode == CANNOT:
        pytest.skip(made.stdout.strip().splitlines()[-1])
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.fixture(scope="session")
def sandbox(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A small cluster at an address that containers and the sandbox's own functions use."""
    host, advertise = addresses_for_containers()
    folder = tmp_path_factory.mktemp("sandbox")
    with Sandbox.start(
        smoke_scenario(), state_dir=folder, host=host, advertise=advertise
    ) as started:
        yield started


@pytest.fixture(scope="session")
def durable_runner(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of the local runner of durable functions."""
    with socket.socket() as free:
        free.bind(("", 0))
        port: int = free.getsockname()[1]
    log = tmp_path_factory.mktemp("durable-runner") / "log"
    runner = Path(sys.executable).parent / "dex-local-runner"
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "sandbox",
        "AWS_SECRET_ACCESS_KEY": "sandbox",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with (
        log.open("w") as sink,
        subprocess.Popen(
            [runner, "start-server", "--port", str(port)],
            env=environment,
            stdout=sink,
            stderr=sink,
        ) as process,
    ):
        yield port
        process.terminate()


@pytest.fixture
def invoke(build: Path, sandbox: Sandbox, durable_runner: int, tmp_path: Path) -> Invoke:
    """Run a function once with `sam local invoke` against the sandbox."""

    def run(function: str, event: Mapping[str, Any]) -> Invocation:
        event_file, environment_file = tmp_path / "event.json", tmp_path / "environment.json"
        event_file.write_text(json.dumps(event))
        environment_file.write_text(json.dumps(sandbox.sam_environment()))
        done = subprocess.run(
            [
                *("sam", "local", "invoke", function, "--skip-pull-image"),
                *("--template", build / "template.yaml", "--event", event_file),
                *("--env-vars", environment_file),
                *("--parameter-overrides", f"Architecture={ARCHITECTURE}"),
            ],
            cwd=ROOT,
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("AWS_")},
                **sandbox.environment(),
                "DURABLE_EXECUTIONS_EXTERNAL_EMULATOR_PORT": str(durable_runner),
            },
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return Invocation(done.stdout, done.stderr)

    return run
