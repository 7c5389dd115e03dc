"""`leeway roll`: asks for the roll of a group, stops it, and shows how far it is."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.execution.attempt import Phase
from leeway.reconciliation.decide_roll import (
    GROUP_ROLL,
    GROUP_ROLL_HALTED,
    GROUP_ROLL_WAITS,
    Asked,
    GroupRoll,
    ask_for_roll,
)
from leeway.retirement.record import RETIREMENT
from leeway.table import RecordChanged
from leeway_cli import main
from leeway_cli.status.rolls import read_rolls

from tests.aws.stored import table_in
from tests.cli.test_status import store_drain
from tests.retirement.retirements import interrupted
from tests.sandbox.aws.started import Sandbox

EKS_GROUP = "eks-small-0ac1b6a3-4d3e-9f0b-6c56-3f1c2e9a7b10"
"""The name of the Auto Scaling group of a managed node group, as EKS forms it."""

type Roll = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def nodes(embedded_aws: Sandbox) -> Iterator[list[str]]:
    """The nodes of groups web-roll and small, which EKS manages, of cluster rolling."""
    tag = {"Key": "kubernetes.io/cluster/rolling", "Value": "owned"}
    ec2 = embedded_aws.client("ec2")
    web, small = embedded_aws.group("web-roll", 2), embedded_aws.group(EKS_GROUP, 1)
    ec2.create_tags(Resources=[*web, *small], Tags=[tag])
    ec2.create_tags(Resources=small, Tags=[{"Key": "eks:nodegroup-name", "Value": "small"}])
    yield web
    for name in ("web-roll", EKS_GROUP):
        embedded_aws.client("autoscaling").delete_auto_scaling_group(
            AutoScalingGroupName=name, ForceDelete=True
        )


@pytest.fixture
def roll(aws: Sandbox, nodes: list[str], capsys: pytest.CaptureFixture[str]) -> Roll:
    def roll(*arguments: str) -> tuple[int, str, str]:
        code = main.run(["roll", *arguments, "--cluster", "rolling"])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return roll


def stored(aws: Sandbox) -> GroupRoll:
    found = table_in(aws).get(GROUP_ROLL, cluster="rolling", group="web-roll")
    assert found is not None
    return found


def change(aws: Sandbox, **changes: Any) -> None:
    """Write the record as reconcile does."""
    table_in(aws).put(GROUP_ROLL, stored(aws).changed(**changes))


def test_a_roll_is_asked_for_stopped_and_taken_up_again(roll: Roll, aws: Sandbox) -> None:
    options = ("--max-unavailable", "50%", "--timeout", "20m", "--force")
    code, out, err = roll("web-roll", *options, "--no-wait", "-o", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["state"], document["timeout"], document["force"]) == ("asked", "20m", True)
    record = stored(aws)
    assert (record.max_unavailable, record.node_timeout) == ("50%", timedelta(minutes=20))
    assert record.asked_by.startswith("arn:aws:")
    code, _, err = roll("web-roll", "--no-wait")
    assert code == 1
    assert f"is under way: {record.asked_by} asked for it at" in err
    assert "--watch` shows its progress" in err
    assert err.count("\n") == 1
    code, out, _ = roll("web-roll", "--stop")
    assert code == 0
    assert "`leeway roll web-roll` takes it up again" in out
    assert stored(aws).stopped_at is not None
    assert roll("web-roll", "--stop")[0] == 0
    code, out, _ = roll("web-roll", "--no-wait", "-o", "json")
    assert (code, json.loads(out)["stoppedAt"]) == (0, None)
    assert (stored(aws).force, stored(aws).max_unavailable) == (True, "50%")


def test_the_progress_is_shown_until_the_roll_has_ended(roll: Roll, aws: Sandbox) -> None:
    roll("web-roll", "--no-wait")
    change(aws, replaced=1, left=0, ended_at=datetime.now(UTC), asked_at=None)
    code, out, err = roll("web-roll", "--watch")
    assert code == 0
    assert "group web-roll of cluster rolling: ended: 1 of 1 nodes replaced" in out
    assert "ended: 1 of 1 nodes replaced" in err
    code, _, err = roll("web-roll", "--stop")
    assert (code, err) == (1, "leeway: No roll of group web-roll is under way.\n")


def test_a_halted_roll_ends_the_command_with_its_reason(roll: Roll, aws: Sandbox) -> None:
    roll("web-roll", "--no-wait")
    why = "Successor i-9 had no node after 5 minutes."
    halted = GROUP_ROLL_HALTED(group="web-roll", cluster="rolling", why=why, launches="version 2")
    change(aws, left=2, halted=halted)
    code, out, err = roll("web-roll", "--watch", "-o", "json")
    assert code == 1
    assert why in err
    document = json.loads(out)
    assert document["halted"]["code"] == "GroupRollHalted"
    assert why in document["error"]["message"]
    assert main.run(["status", "--cluster", "rolling"]) == 0


def test_a_halted_roll_is_stopped(roll: Roll, aws: Sandbox) -> None:
    roll("web-roll", "--no-wait")
    why = "Successor i-9 had no node after 5 minutes."
    halted = GROUP_ROLL_HALTED(group="web-roll", cluster="rolling", why=why, launches="version 2")
    change(aws, left=2, halted=halted)
    code, out, err = roll("web-roll", "--stop")
    assert (code, err) == (0, "")
    assert "group web-roll of cluster rolling: stopped" in out
    assert "GroupRollHalted" not in out, "it does not go on with another template"
    assert roll("web-roll", "--stop")[0] == 0
    code, out, _ = roll("web-roll", "--watch", "-o", "json")
    assert (code, json.loads(out)["state"]) == (0, "stopped")
    change(aws, halted=halted)
    code, out, _ = roll("web-roll", "--stop", "-o", "json")
    assert (code, json.loads(out)["halted"]) == (0, None)
    change(aws, halted=halted, ended_at=datetime.now(UTC))
    code, out, _ = roll("web-roll", "--watch", "-o", "json")
    assert (code, json.loads(out)["state"]) == (0, "ended")


def test_a_roll_is_followed_while_its_record_cannot_be_read(
    roll: Roll, aws: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = {"service": "dynamodb", "action": "GetItem", "error": "AccessDeniedException"}

    def end() -> None:
        aws.control("PUT", "faults", {"faults": []})
        change(aws, replaced=1, left=0, ended_at=datetime.now(UTC), asked_at=None)

    moments = iter([lambda: aws.control("PUT", "faults", {"faults": [denied]}), end])
    monkeypatch.setattr("leeway_cli.roll.time", SimpleNamespace(sleep=lambda _: next(moments)()))
    code, out, err = roll("web-roll")
    assert code == 0
    assert "ended: 1 of 1 nodes replaced" in out
    assert "warning: The AWS identity of this command may not call GetItem" in err
    aws.control("PUT", "faults", {"faults": [denied]})
    code, _, err = roll("web-roll", "--watch")
    assert (code, err.count("\n")) == (1, 1), "nothing was seen that goes on"


def test_bad_input_gets_one_line(roll: Roll, aws: Sandbox) -> None:
    wrong: list[tuple[list[str], int, str]] = [
        (
            ["web-rol"],
            1,
            "no running node of an Auto Scaling group web-rol; did you mean web-roll?",
        ),
        (["a#b"], 1, "no running node of an Auto Scaling group a#b."),
        ([EKS_GROUP], 1, "run `aws eks update-nodegroup-version --cluster-name rolling"),
        (["small"], 1, "--nodegroup-name small`"),
        (["web-roll", "--watch"], 1, "Group web-roll of cluster rolling has no roll."),
        (["web-roll", "--max-unavailable", "0"], 2, "expected 1 to 9999 nodes, or 1% to 100%"),
        (["web-roll", "--max-unavailable", "101%"], 2, "got '101%'"),
        (["web-roll", "--timeout", "soon"], 2, "--timeout: expected a duration"),
        (["web-roll", "--timeout", "25h"], 2, "at most 24h, got 25h"),
        (["web-roll", "--stop", "--force"], 2, "--stop: expected no other option"),
        (["web-roll", "--watch", "--stop"], 2, "expected no other option"),
    ]
    for arguments, code, why in wrong:
        found, out, err = roll(*arguments, "--no-wait")
        assert (found, out) == (code, ""), arguments
        assert why in err
        assert err.count("\n") == 1
    assert table_in(aws).list(GROUP_ROLL, cluster="rolling") == ()


def test_a_cluster_that_leeway_does_not_manage_has_no_roll(
    roll: Roll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEEWAY_CLUSTERS", "prod")
    code, _, err = roll("web-roll")
    assert (code, "does not manage cluster rolling" in err) == (1, True)


def test_of_two_people_who_roll_at_once_one_is_refused(
    roll: Roll, aws: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another person writes between the read and the write of this one."""
    put, now = DynamoTable.put, datetime.now(UTC)
    conflicts: list[str] = []

    def late(self: DynamoTable, record: Any, value: Any, **more: Any) -> None:
        if not conflicts:
            other = ask_for_roll(None, "rolling", "web-roll", Asked(by="alice"), now)
            put(self, GROUP_ROLL, other)
        try:
            put(self, record, value, **more)
        except RecordChanged as error:
            conflicts.append(str(error))
            raise

    monkeypatch.setattr(DynamoTable, "put", late)
    code, _, err = roll("web-roll", "--force", "--no-wait")
    assert (code, len(conflicts)) == (1, 1)
    assert "alice asked for it" in err
    assert (stored(aws).asked_by, stored(aws).force) == ("alice", None)


def test_status_shows_a_roll_with_what_it_waits_for(
    roll: Roll, aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    roll("web-roll", "--no-wait")
    record = interrupted(Phase.RUNNING)
    facts = record.facts.model_copy(update={"cluster": "rolling"})
    began = record.noticed_at
    record = record.model_copy(update={"facts": facts, "drain_began_at": began, "version": 1})
    table_in(aws).put(RETIREMENT, record)
    waits = GROUP_ROLL_WAITS(group="web-roll", count=2, why="maxUnavailable allows 1 of its nodes.")
    change(aws, left=2, moving={record.instance: began}, waits=waits)

    def shown() -> str:
        assert main.run(["status", "--cluster", "rolling"]) == 0
        return " ".join(capsys.readouterr().out.split())

    text = shown()
    assert "group web-roll rolling: 0 of 2 nodes replaced, asked for by arn:aws:" in text
    assert "its pods are evicted." in text
    assert "GroupRollWaits: Group web-roll has 2 nodes to replace" in text
    store_drain(aws, record)
    assert "node-1: pod shop/web-2: A PodDisruptionBudget allows no eviction of the pod" in shown()
    intent_less = record.model_copy(update={"drain_began_at": None, "version": 2})
    table_in(aws).put(RETIREMENT, intent_less)
    (status,) = read_rolls(table_in(aws), "rolling")
    assert "disruption budget" in status.moving[0].waits_for
    assert main.run(["status", "--cluster", "rolling", "-o", "json"]) == 0
    (cluster,) = json.loads(capsys.readouterr().out)["clusters"]
    assert cluster["rolls"][0]["waits"]["code"] == "GroupRollWaits"
    change(aws, ended_at=datetime.now(UTC))
    assert "group web-roll" not in shown()
