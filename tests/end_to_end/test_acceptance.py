"""`leeway acceptance` on a sandbox, as a user runs it on an account: whole, and interrupted."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leeway.aws.manifests import DynamoManifests
from leeway_cli.acceptance.run import FAMILIES, stages
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario
from lightkube import Client, KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Node

from tests.end_to_end.environment import Journal, until
from tests.end_to_end.provisioning import CLUSTER, PARAMETERS, instances, prepare, store, table_of
from tests.launch.pools import document, node_class
from tests.template.granted import actions_of
from tests.template.reached import IAM_NAMES

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "docs" / "acceptance-policy.json"
KEY = "AKIAACCEPTANCE000000"
SECONDS = 400
"""The longest that a command may take, on a busy machine."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster without nodes, in which schedules run twelve times a minute."""
    options = {"aws": ["--schedule-speed", "12"], "kubernetes": ["--node-join", "1"]}
    state = tmp_path_factory.mktemp("acceptance")
    scenario = Scenario(cluster=CLUSTER, groups=())
    with Sandbox.start(
        scenario, state_dir=state, parameters=PARAMETERS, options=options
    ) as running:
        prepare(running)
        # By default one node may go in ten minutes.
        budget = {"churn": {"atLeast": 10}}
        store(running, node_class(), document("Cluster", CLUSTER, budget))
        yield running


def command(sandbox: Sandbox, *arguments: str) -> "subprocess.Popen[str]":
    """Start the command in a process of its own, as another identity than the tests."""
    environment = os.environ | sandbox.environment()
    environment |= {"AWS_ACCESS_KEY_ID": KEY, "KUBECONFIG": str(sandbox.kubeconfig)}
    return subprocess.Popen(
        [sys.executable, "-m", "leeway_cli", "acceptance", CLUSTER, *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(sandbox: Sandbox, *arguments: str, within: float = SECONDS) -> tuple[int, str, str]:
    process = command(sandbox, *arguments)
    try:
        out, err = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(err) from None
    return process.returncode, out, err


def launching(sandbox: Sandbox) -> "subprocess.Popen[str]":
    """Start the command, and return when an instance has come for it."""
    assert left(sandbox) == NOTHING, "an earlier test has left something"
    process = command(sandbox, "--yes", "--family", "al2023")
    try:
        until(lambda: bool(instances(sandbox)), SECONDS)
    except AssertionError:
        process.kill()
        raise AssertionError(process.communicate()) from None
    return process


def left(sandbox: Sandbox) -> dict[str, Any]:
    """What a cluster has of an acceptance."""
    dynamodb = client("dynamodb", sandbox.aws_url)
    # The table keeps a record of each deleted pool, which is no manifest any more.
    manifests = DynamoManifests(lambda: dynamodb, table_of(sandbox)).of(CLUSTER)
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
        namespaces = [one.metadata.name for one in kube.list(Namespace) if one.metadata]
        nodes = [one.metadata.name for one in kube.list(Node) if one.metadata]
    return {
        "manifests": [one.title for one in manifests if one.name.startswith("leeway-acceptance")],
        "namespaces": [one for one in namespaces if one == "leeway-acceptance"],
        "nodes": nodes,
        "instances": instances(sandbox),
    }


NOTHING: dict[str, Any] = {"manifests": [], "namespaces": [], "nodes": [], "instances": []}


def test_every_stage_passes(sandbox: Sandbox, tmp_path: Path) -> None:
    page, family = tmp_path / "acceptance.html", "bottlerocket"
    code, out, err = run(
        sandbox, "--yes", "-o", "json", "--html", str(page), "--family", family, within=900
    )
    assert code == 0, err
    report = json.loads(out)
    assert report["passed"]
    assert [one["name"] for one in report["stages"]] == [
        f"launch {family}",
        f"replace {family}",
        f"give back {family}",
        "open headroom",
        "give back headroom",
    ]
    assert all(one["seconds"] <= one["within"] for one in report["stages"])
    assert len(report["machines"]) == 3
    assert 0 < report["usd"] < 1
    html = page.read_text()
    assert f"Acceptance of cluster {CLUSTER} passed" in html
    for text in (html, out):
        assert "123456789012" not in text
        assert not re.search(r"\bi-[0-9a-f]{8}", text)
    journal = Journal(tuple(sandbox.journal()))
    assert len(journal.of("fleet")) == 3
    # Leeway may publish an outcome twice, and repeat an eviction.
    evicted = {one["pod"] for one in journal.of("eviction", status=201)}
    assert {one.rpartition("/")[0] for one in evicted} == {"leeway-acceptance"}
    assert left(sandbox) == NOTHING


def test_each_family_has_its_stages() -> None:
    names = [one.name for one in stages([*FAMILIES])]
    assert len({*names}) == len(names)
    for family in FAMILIES:
        assert {f"launch {family}", f"replace {family}", f"give back {family}"} < {*names}


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(sandbox: Sandbox, sign: signal.Signals) -> None:
    """The run of provision_nodes that launches the first node may go on after the interruption, and
    launch another one for a pod that it has read before."""
    process = launching(sandbox)
    process.send_signal(sign)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, err
    assert "removing what this run has created" in err
    assert left(sandbox) == NOTHING


def test_the_next_command_removes_what_a_killed_run_has_left(sandbox: Sandbox) -> None:
    process = launching(sandbox)
    process.kill()
    process.communicate()
    assert left(sandbox)["manifests"]
    assert run(sandbox, "--clean")[0] == 0
    assert left(sandbox) == NOTHING


def test_a_look_that_fails_is_repeated(sandbox: Sandbox) -> None:
    fault = {"service": "ec2", "action": "DescribeInstances", "status": 403, "count": 3}
    sandbox.faults("aws", [{**fault, "error": "UnauthorizedOperation"}])
    try:
        code, _, err = run(sandbox, "--clean")
    finally:
        sandbox.faults("aws", [])
    assert code == 0, err


def test_nothing_is_launched_without_consent(sandbox: Sandbox) -> None:
    code, _, err = run(sandbox)
    assert (code, "Nothing was launched in cluster" in err) == (1, True)
    assert left(sandbox) == NOTHING


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--yes", "--family", "windows95"), (2, "--family")),
        (("--yes", "--node-class", "other"), (1, "has no EC2NodeClass other")),
    ],
)
def test_bad_input_gets_one_line(
    sandbox: Sandbox, arguments: tuple[str, ...], expected: tuple[int, str]
) -> None:
    code, _, err = run(sandbox, *arguments)
    assert code == expected[0]
    assert expected[1] in err
    assert len(err.splitlines()) == 1


def test_somebody_elses_namespace_of_another_name_stays(sandbox: Sandbox) -> None:
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
        kube.create(Namespace(metadata=ObjectMeta(name="leeway-acceptance-of-others")))
    assert run(sandbox, "--clean")[0] == 0
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
        assert kube.get(Namespace, "leeway-acceptance-of-others")


def test_the_policy_grants_what_the_command_calls_and_no_more(sandbox: Sandbox) -> None:
    """The calls of all tests of this file."""
    calls = sandbox.status()["aws"]["calls_by_access_key"][KEY]
    called = {IAM_NAMES.get(one, one) for one in calls}
    statements = json.loads(POLICY.read_text())["Statement"]
    granted = {action for one in statements for action in actions_of(one)}
    assert called == granted - {"cloudformation:DescribeStacks"}
