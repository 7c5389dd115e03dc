"""`leeway acceptance` on a sandbox: whole, and interrupted."""

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from leeway_cli.acceptance.run import FAMILIES, SUBJECTS, stages, why_skipped
from leeway_sandbox.sandbox import Sandbox
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace

from tests.end_to_end.acceptance import (
    NOTHING,
    SECONDS,
    accepting,
    called,
    command,
    granted,
    left,
    run,
)
from tests.end_to_end.environment import Journal, kube_client, until
from tests.end_to_end.provisioning import CLUSTER, instances


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with accepting(tmp_path_factory.mktemp("acceptance")) as running:
        yield running


def launching(sandbox: Sandbox, subject: str) -> "subprocess.Popen[str]":
    """Start the command, and return when an instance has come for it."""
    assert left(sandbox) == NOTHING, "an earlier test has left something"
    process = command(sandbox, "--yes", "--only", subject)
    try:
        until(lambda: bool(instances(sandbox)), SECONDS)
    except AssertionError:
        process.kill()
        raise AssertionError(process.communicate()) from None
    return process


def test_every_stage_passes(sandbox: Sandbox, tmp_path: Path) -> None:
    page, family = tmp_path / "acceptance.html", "windows2022"
    code, out, err = run(
        sandbox,
        "--yes",
        "-o",
        "json",
        "--html",
        str(page),
        "--only",
        family,
        *("--only", "headroom"),
        *("--only", "al2"),
        within=900,
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
        "al2",
    ]
    skipped = report["stages"].pop()
    assert "EKS has no AL2 AMIs" in skipped["skipped"]
    assert all(one["seconds"] <= one["within"] for one in report["stages"])
    assert sorted(one["system"] for one in report["machines"]) == ["linux", "windows", "windows"]
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


@pytest.mark.parametrize(
    ("given", "skipped"),
    [
        (("role", "1.32", True, True), set()),
        (("role", "1.33", True, True), {"al2"}),
        (("", "1.32", True, True), {"fis", "spot"}),
        (("role", "1.32", False, False), {"windows2022"}),
        (("role", "1.32", True, False), {"windows2022"}),
    ],
)
def test_what_a_cluster_cannot_prove_is_skipped_with_the_reason(
    given: tuple[str, str, bool, bool], skipped: set[str]
) -> None:
    role, version, has_class, gives_addresses = given
    found = why_skipped(
        role, version, has_windows_class=has_class, gives_windows_addresses=gives_addresses
    )
    assert found.keys() == skipped
    of = {one.name: one.skip for one in stages(SUBJECTS, found)}
    assert {name for name, why in of.items() if why} == {
        "rebalance group" if one == "fis" else one for one in skipped
    }


def test_each_family_has_its_stages() -> None:
    names = [one.name for one in stages(SUBJECTS, {})]
    assert len({*names}) == len(names)
    for family in FAMILIES:
        assert {f"launch {family}", f"replace {family}", f"give back {family}"} < {*names}


def test_an_interrupted_run_leaves_nothing(sandbox: Sandbox) -> None:
    process = launching(sandbox, "group")
    process.terminate()
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, err
    assert "removing what this run has created" in err
    assert left(sandbox) == NOTHING


@pytest.mark.parametrize(
    ("subject", "what"), [("al2023", ["manifests"]), ("group", ["groups", "templates"])]
)
def test_the_next_command_removes_what_a_killed_run_has_left(
    sandbox: Sandbox, subject: str, what: list[str]
) -> None:
    """The run of provision_nodes that launches the first node may go on after the kill, and launch
    another one for a pod that it has read before."""
    process = launching(sandbox, subject)
    process.kill()
    process.communicate()
    assert all(left(sandbox)[one] for one in what)
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


def test_costs_that_are_declined_separately_skip_their_subject(sandbox: Sandbox) -> None:
    ours, theirs = pty.openpty()
    process = command(sandbox, "--only", "windows2022", "-o", "json", stdin=theirs)
    os.write(ours, b"y\nn\n")
    out, err = process.communicate(timeout=SECONDS)
    for end in (ours, theirs):
        os.close(end)
    assert process.returncode == 0, err
    assert "The two Windows nodes cost up to" in err
    (stage,) = json.loads(out)["stages"]
    assert (stage["name"], stage["skipped"]) == ("windows2022", "its costs were declined")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--yes", "--only", "windows95"), (2, "--only: expected one of")),
        (("--yes", "--only", "spot"), (2, "--fis-role")),
        (("--yes", "--fis-role", "fis"), (2, "--fis-role: expected the ARN of a role")),
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
    with kube_client(sandbox) as kube:
        kube.create(Namespace(metadata=ObjectMeta(name="leeway-acceptance-of-others")))
    assert run(sandbox, "--clean")[0] == 0
    with kube_client(sandbox) as kube:
        assert kube.get(Namespace, "leeway-acceptance-of-others")


def test_the_policy_grants_what_the_command_calls_and_no_more(sandbox: Sandbox) -> None:
    """The calls of all tests of this file."""
    assert called(sandbox) == {one for one in granted() if not one.startswith("fis:")}
