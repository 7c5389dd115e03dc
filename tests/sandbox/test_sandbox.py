"""A whole sandbox, from its processes to running pods, over HTTP only."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from leeway_cli import main
from leeway_sandbox.children import Child
from leeway_sandbox.control import ReadyCounts
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario, demo_scenario, smoke_scenario
from leeway_sandbox.startup import is_running
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox.start(smoke_scenario(), state_dir=tmp_path_factory.mktemp("sandbox")) as running:
        yield running


@pytest.fixture(scope="module")
def kube(sandbox: Sandbox) -> Iterator[Client]:
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as client:
        yield client


def test_the_kubeconfig_is_readable_only_by_its_owner_and_its_token_is_valid(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    assert sandbox.kubeconfig.stat().st_mode & 0o077 == 0

    wrong = tmp_path / "kubeconfig"
    wrong.write_text(sandbox.kubeconfig.read_text().replace(sandbox.endpoints.token, "wrong"))
    with (
        Client(KubeConfig.from_file(wrong), trust_env=False) as stranger,
        pytest.raises(ApiError) as refused,
    ):
        list(stranger.list(Node))
    assert refused.value.status.code == 401


def test_the_journals_are_merged_in_order(sandbox: Sandbox) -> None:
    entries = sandbox.journal()

    moments = [entry["at"] for entry in entries]
    assert moments == sorted(moments)
    assert {"instance-state", "node-ready", "pod-running"} <= {entry["kind"] for entry in entries}
    counts = ReadyCounts()
    counts.update(entries[:50])
    counts.update(entries[50:])
    assert (counts.ready, counts.running) == (3, 3)


def test_the_workers_of_all_functions_are_forks_of_a_process_with_their_code(
    sandbox: Sandbox,
) -> None:
    """A library that starts threads on import would let them start from nothing."""
    log = (sandbox.state_dir / "lambda.log").read_text()
    assert "start cold" not in log
    assert "failed" not in log


def test_later_commands_find_the_sandbox_by_its_folder(
    sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(sandbox.state_dir)

    assert Sandbox.attach(sandbox.state_dir).aws_url == sandbox.aws_url
    assert main.run(["sandbox", "status", "--state-dir", folder, "-o", "json"]) == 0
    text = json.loads(capsys.readouterr().out)
    assert (text["nodes"], text["pods"]) == (3, 3)
    assert main.run(["sandbox", "interrupt", "no-such-node", "--state-dir", folder]) == 2
    assert "no node 'no-such-node'" in capsys.readouterr().err


def test_a_refusal_of_the_sandbox_is_bad_input(
    sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, faults = ["--state-dir", str(sandbox.state_dir)], tmp_path / "faults.json"
    faults.write_text('[{"no-such-field": 1}]')

    assert main.run(["sandbox", "faults", f"kubernetes={faults}", *folder]) == 2
    assert "no-such-field" in capsys.readouterr().err
    assert main.run(["sandbox", "interrupt", "i-0123456789abcdef0", *folder]) == 2
    assert "i-0123456789abcdef0" in capsys.readouterr().err
    assert main.run(["sandbox", "fire", "nope", *folder]) == 2
    result = (
        "leeway: No enabled schedule has the name or ARN nope. "
        "List the schedules with `leeway sandbox schedules`.\n"
    )
    assert capsys.readouterr().err == result


def test_a_second_sandbox_in_the_same_folder_is_refused(sandbox: Sandbox) -> None:
    with (
        pytest.raises(SandboxError, match="already runs"),
        Sandbox.start(smoke_scenario(), state_dir=sandbox.state_dir),
    ):
        pytest.fail("it started")


def test_sam_gets_every_functions_environment_with_the_sandboxs_endpoints(
    sandbox: Sandbox,
) -> None:
    by_function = sandbox.sam_environment()

    assert set(by_function) >= {"ReceiveNoticeFunction", "RetireNodeFunction"}
    assert by_function["ReceiveNoticeFunction"]["AWS_ENDPOINT_URL"] == sandbox.aws_url
    assert by_function["ReceiveNoticeFunction"]["LEEWAY_CLUSTERS"] == "smoke"


def test_up_prints_the_endpoints_and_what_is_out_of_reach_and_down_stops_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--state-dir", str(tmp_path)]
    command = [sys.executable, "-m", "leeway_cli", "sandbox", "up", "--nodes", "3", "-o", "json"]
    command += ["--grow", "--schedule-speed", "0", "--fault", "throttle"]
    command += ["--fault", "events:copies=2", "--host", "127.0.0.1", "--advertise", "127.0.0.2"]
    said = tmp_path / "stderr"
    with (
        said.open("wb") as stderr,
        subprocess.Popen([*command, *folder], stdout=subprocess.PIPE, stderr=stderr) as up,
    ):
        assert up.stdout is not None
        text = json.loads(b"".join(document(up.stdout)))
        assert text["environment"]["AWS_ENDPOINT_URL"] == text["aws"]
        assert text["environment"]["LEEWAY_CLUSTER"] == text["cluster"]
        assert text["environment"]["LEEWAY_CLUSTERS"] == text["cluster"]
        capsys.readouterr()
        assert main.run(["sandbox", "status", "-o", "json", *folder]) == 0
        parts = json.loads(capsys.readouterr().out)["parts"]
        assert parts["aws"]["throttle"]
        assert main.run(["sandbox", "down", *folder]) == 0
        assert up.wait(60) == 0
    assert "cannot connect to the cluster at 127.0.0.2" in said.read_text()
    assert not is_running(tmp_path)
    assert main.run(["sandbox", "status", *folder]) == 1


def document(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of the first JSON document of the output."""
    for line in lines:
        yield line
        if line == b"}\n":
            return


def test_an_error_shows_the_process_that_did_not_start_and_its_log(tmp_path: Path) -> None:
    options = {"aws": ["--no-such-option"]}
    with (
        pytest.raises(SandboxError, match=r"leeway_sandbox.aws did not start(.|\n)*no-such-option"),
        Sandbox.start(smoke_scenario(), state_dir=tmp_path, options=options),
    ):
        pytest.fail("it started")


def test_the_wait_for_a_process_that_prints_nothing_ends_after_the_timeout(tmp_path: Path) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("import time; time.sleep(60)")
    os.environ["PYTHONPATH"] = str(tmp_path)
    child = Child.start("silent", [], tmp_path / "log")
    try:
        with pytest.raises(SandboxError, match="silent was not ready after 1 s"):
            child.ready(timeout=1)
    finally:
        child.stop()
        del os.environ["PYTHONPATH"]
    assert child.process.returncode is not None


def test_all_processes_stop_when_the_context_ends_with_an_exception(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        Sandbox.start(Scenario("empty", groups=()), state_dir=tmp_path) as running,
    ):
        raise KeyboardInterrupt
    for part in ("kubernetes", "aws", "lambda"):
        with pytest.raises(SandboxError, match=f"process {part} does not answer"):
            running.faults(part, [])
    assert not is_running(tmp_path)
    assert not (tmp_path / "sandbox.json").exists()


@pytest.mark.parametrize("nodes", [3, 20, 100])
def test_the_demo_has_about_seven_pods_a_node(nodes: int) -> None:
    scenario = demo_scenario(seed=1, nodes=nodes)

    assert scenario.nodes == nodes
    assert 6 <= scenario.pods / nodes <= 12


def test_the_same_seed_gives_the_same_scenario() -> None:
    assert demo_scenario(seed=4) == demo_scenario(seed=4)
    assert demo_scenario(seed=4) != demo_scenario(seed=5)
