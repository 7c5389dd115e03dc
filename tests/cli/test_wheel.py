"""The wheel in an environment of its own: the command line runs without a checkout."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.aws.started import Sandbox
from tests.sandbox.kubernetes.live import PODS, bare_pod, running_cluster

ROOT = Path(__file__).parents[2]

type Leeway = Callable[..., str]


def execute(*command: str | Path, **settings: Any) -> str:
    """Run a command that succeeds, and return what it prints."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and with what the wheel requires."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).with_name("uv")
    made = folder / "environment"
    execute(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    execute(uv, "venv", "--python", sys.executable, made)
    pins = ROOT / "requirements" / "dev.txt"
    execute(uv, "pip", "install", "--python", made / "bin" / "python", "-c", pins, wheel)
    return made


@pytest.fixture
def leeway(environment: Path, tmp_path: Path) -> Leeway:
    """Run the command in an empty folder, and return what it prints."""

    def run(*arguments: str | Path) -> str:
        variables = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        variables |= {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        return execute(environment / "bin" / "leeway", *arguments, cwd=tmp_path, env=variables)

    return run


def test_the_help_lists_the_commands(leeway: Leeway) -> None:
    assert {"adopt", "doctor", "drain", "types"} <= set(leeway("--help").split())


def test_types_reads_the_region(leeway: Leeway, aws: Sandbox) -> None:
    found = {one["name"] for one in json.loads(leeway("types", "-o", "json"))["types"]}
    assert "m5.large" in found


def test_drain_evicts_the_pods_of_a_node(leeway: Leeway, tmp_path: Path) -> None:
    with running_cluster(tmp_path) as live:
        (node,) = live.add_nodes(1)
        live.create(PODS, bare_pod("web", nodeName=node, terminationGracePeriodSeconds=1))
        live.until(lambda: live.api.get(f"{PODS}/web").json()["status"].get("phase") == "Running")
        printed = leeway("drain", node, "--force", "--kubeconfig", live.kubeconfig())
        assert printed == f"node/{node} drained\n"
        assert live.api.get(f"{PODS}/web").status_code == 404


def test_a_command_that_needs_the_sandbox_names_the_extra(
    environment: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [environment / "bin" / "leeway", "demo"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("leeway: The sandbox needs the package ")
    assert "pip install '.[sandbox]'" in line


@pytest.mark.parametrize("folder", ["rbac", "functions", "events"])
def test_the_wheel_has_the_files_that_adopt_and_the_sandbox_read(
    environment: Path, folder: str
) -> None:
    (installed,) = environment.glob("lib/python*/site-packages/leeway_sandbox/checkout")
    assert (installed / "template.yaml").read_bytes() == (ROOT / "template.yaml").read_bytes()
    tracked = execute("git", "ls-files", folder, cwd=ROOT).split()
    assert tracked
    for file in tracked:
        assert (installed / file).read_bytes() == (ROOT / file).read_bytes()


def test_the_wheel_has_the_files_of_the_page(environment: Path) -> None:
    (installed,) = environment.glob("lib/python*/site-packages/leeway_cli")
    for folder in ("templates", "view/static"):
        files = {one.name for one in (ROOT / "cli" / "leeway_cli" / folder).iterdir()}
        assert files
        assert files == {one.name for one in (installed / folder).iterdir()}
