"""`leeway acceptance` on a sandbox: a Spot interruption by Fault Injection Service."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox

from tests.end_to_end.acceptance import (
    NOTHING,
    accepting,
    called,
    granted,
    left,
    run,
)
from tests.end_to_end.environment import Journal


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with accepting(tmp_path_factory.mktemp("acceptance")) as running:
        yield running


def test_fault_injection_service_interrupts_a_spot_node(sandbox: Sandbox) -> None:
    """EC2 reclaims the instance after its two real minutes."""
    role = role_for("fis.amazonaws.com", sandbox)
    code, out, err = run(
        sandbox, "--yes", "-o", "json", "--only", "spot", "--fis-role", role, within=900
    )
    assert code == 0, err
    report = json.loads(out)
    assert [one["name"] for one in report["stages"]] == [
        "launch spot",
        "interrupt spot",
        "give back spot",
    ]
    assert {one["capacity"] for one in report["machines"]} == {"spot"}
    assert left(sandbox) == NOTHING
    journal = Journal(tuple(sandbox.journal()))
    (interrupted,) = {one["instance"] for one in journal.of("interrupted")}
    assert {one["instance"] for one in journal.of("reclaimed")} == {interrupted}
    assert client("fis", sandbox.aws_url).list_experiment_templates()["experimentTemplates"] == []


def test_a_group_waits_for_its_launch_hook_and_replaces_its_node_with_launch_instances(
    sandbox: Sandbox,
) -> None:
    role = role_for("fis.amazonaws.com", sandbox)
    code, out, err = run(
        sandbox, "--yes", "-o", "json", "--only", "group", "--fis-role", role, within=900
    )
    assert code == 0, err
    report = json.loads(out)
    assert [one["name"] for one in report["stages"]] == [
        "admit group",
        "rebalance group",
        "remove group",
    ]
    assert "The launch hook waited" in report["stages"][0]["note"]
    assert {one["capacity"] for one in report["machines"]} == {"spot"}
    assert len(report["machines"]) == 2
    assert left(sandbox) == NOTHING
    journal = Journal(tuple(sandbox.journal()))
    answers = journal.of("lifecycle-action", outcome="CONTINUE", hook="leeway-acceptance")
    assert len({one["instance"] for one in answers}) == 2


def test_an_experiment_that_fails_is_told(sandbox: Sandbox) -> None:
    role = role_for("ec2.amazonaws.com", sandbox)
    code, _, err = run(sandbox, "--yes", "--only", "spot", "--fis-role", role)
    assert code == 1, err
    assert "Fault Injection Service interrupted nothing: FIS cannot assume the role" in err
    assert left(sandbox) == NOTHING


def role_for(service: str, sandbox: Sandbox) -> str:
    """Create a role that a service may assume, and return its ARN."""
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    created = client("iam", sandbox.aws_url).create_role(
        RoleName=f"{service.replace('.', '-')}-{uuid4().hex[:8]}",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
    )
    return str(created["Role"]["Arn"])


def test_the_policy_grants_what_the_command_calls_and_no_more(sandbox: Sandbox) -> None:
    """The calls of all tests of this file."""
    assert called(sandbox) <= granted()
    assert {one for one in granted() if one.startswith("fis:")} <= called(sandbox)
