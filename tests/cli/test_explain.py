"""`leeway explain`: the plan for a notice, and what is said of an event that is none."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import main
from tests.sandbox.kubernetes.live import PODS, Live, bare_pod, running_cluster

EVENTS = Path(__file__).parents[2] / "events"


@pytest.fixture(autouse=True)
def without_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """No AWS account to ask, whatever the machine's own settings are."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A cluster with one node."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def test_an_interruption_is_explained_without_asking_anybody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["explain", str(EVENTS / "spot-interruption.json"), "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["notice"]["kind"] == "spot-interruption"
    assert plan["policy"]["action"] == "retire"
    assert plan["policy"]["deadline"] == "2026-11-20T09:47:07+00:00"
    assert plan["instances"][0]["replacementReason"] == "EC2 was not asked"


def test_with_a_cluster_every_pod_has_its_decision_and_latest_moment(
    live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (node,) = live.add_nodes(1)
    live.create(PODS, bare_pod("web", nodeName=node, terminationGracePeriodSeconds=30))
    event = json.loads((EVENTS / "spot-interruption.json").read_text())
    event["detail"]["instance-id"] = f"i-{0:017x}"
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event))
    assert (
        main.run(["explain", str(path), "--kubeconfig", str(live.kubeconfig()), "-o", "json"]) == 0
    )
    (instance,) = json.loads(capsys.readouterr().out)["instances"]
    assert instance["node"] == node
    (pod,) = instance["pods"]
    assert (pod["pod"], pod["decision"]) == ("default/web", "evict")
    assert pod["latestMoment"] == "2026-11-20T09:46:37+00:00"
    assert pod["warning"] == "no controller brings it back"


def test_the_table_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", str(EVENTS / "state-change-running.json")]) == 0
    said = capsys.readouterr().out
    assert "an instance that is running is not on its way out" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "expected JSON"),
        ("[]", "expected a JSON object, got list"),
        ('{"source": "aws.ec2"}', "field required"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_an_event_that_is_none_is_one_line_that_names_the_file(
    content: str | bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "event.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main.run(["explain", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"leeway: {path}")
    assert words in said.err
    assert said.err.count("\n") == 1
