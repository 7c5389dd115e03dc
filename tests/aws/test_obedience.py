"""Notices are received by the applied manifests: from `leeway apply` to the record."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.table import DynamoTable
from leeway.clock import SystemClock
from leeway.interruption.receive_notice import NoticeResult, ReceiveNotice
from leeway.manifests.configuration import Configuration, StoredManifests
from leeway.reasons import Reason
from leeway.retirement.record import RETIREMENT
from leeway_cli import main

from tests.aws.receive_notice import TAGS, client_factory, interruption, launch
from tests.aws.stored import TABLE
from tests.fakes.functions import CleanUps, Starts
from tests.fakes.offerings import OfferingsInMemory
from tests.fakes.schedules import SchedulesInMemory
from tests.notices.events import HERE
from tests.sandbox.aws.started import Sandbox


class Reported:
    """The recorded log lines and metrics."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
        self.lines.append(reason.message)


class Deployed:
    """A receive_notice that has just started, with its own configuration."""

    def __init__(self, aws: Sandbox) -> None:
        self.starts = Starts()
        self.reported = Reported()
        self.table = DynamoTable(partial(aws.client, "dynamodb"), TABLE)
        manifests = StoredManifests(self.table)
        self.configuration = Configuration(manifests, SystemClock(), self.reported)
        self._reception = ReceiveNotice(
            table=self.table,
            origin=HERE,
            instances=Ec2Instances(client_factory(aws, "ec2")),
            policies=self.configuration,
            retire_node=self.starts,
            schedules=SchedulesInMemory(),
            offerings=OfferingsInMemory(),
            clusters=frozenset({"prod"}),
            clock=SystemClock(),
            admit_node=Starts(),
            clean_up=CleanUps(),
        )

    def receive(self, event: dict[str, Any]) -> NoticeResult:
        (received,) = self._reception.receive(event).instances
        return received.result


@pytest.fixture
def apply(aws: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Apply a spec of cluster prod by the command line; delete it after the test."""
    from tests.cli.conftest import drop_clients

    environment = {
        "AWS_ENDPOINT_URL": aws.url,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_REGION": "us-east-1",
        "LEEWAY_TABLE": TABLE,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    drop_clients()

    def apply(spec: str) -> None:
        file = tmp_path / "cluster.yaml"
        file.write_text(
            "{apiVersion: leeway.sh/v1, kind: Cluster, metadata: {name: prod}, spec: " + spec + "}"
        )
        assert main.run(["apply", "-f", str(file), "--cluster", "prod"]) == 0

    yield apply
    main.run(["delete", "cluster", "prod", "--cluster", "prod"])
    drop_clients()


def test_an_ignored_notice_starts_nothing(aws: Sandbox, apply: Any) -> None:
    apply("{notices: {spot-interruption: {action: ignore}}}")
    deployed = Deployed(aws)
    assert deployed.receive(interruption(launch(aws, TAGS))) is NoticeResult.IGNORED
    assert deployed.starts.started == []


def test_a_retirement_is_recorded_with_the_values_of_the_policy(aws: Sandbox, apply: Any) -> None:
    apply("{notices: {spot-interruption: {deadline: 30s, replacement: none, onBlocked: wait}}}")
    deployed, instance = Deployed(aws), launch(aws, TAGS)
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"  # a deadline that has passed would be moved
    assert deployed.receive(interruption(instance, time=now)) is NoticeResult.STARTED
    record = deployed.table.get(RETIREMENT, cluster="prod", instance=instance)
    assert record is not None
    assert record.deadline is not None
    assert (record.deadline - record.noticed_at).total_seconds() == 30
    assert (record.replacement, record.on_blocked) == ("none", "wait")


@pytest.mark.parametrize("owner", ["eks:nodegroup-name", "karpenter.sh/nodepool"])
def test_nodes_of_other_owners_are_retired_only_if_the_policy_includes_them(
    aws: Sandbox, apply: Any, owner: str
) -> None:
    event = interruption(launch(aws, TAGS | {owner: "x"}))
    cautious = Deployed(aws)
    assert cautious.receive(event) is NoticeResult.LEFT_TO_OWNER
    assert cautious.starts.started == []
    apply("{takes: [managed-node-group, karpenter]}")
    assert Deployed(aws).receive(event) is NoticeResult.STARTED


@pytest.mark.parametrize(
    "error", ["ProvisionedThroughputExceededException", "AccessDeniedException"]
)
def test_an_interruption_is_received_with_the_defaults_while_manifests_cannot_be_read(
    aws: Sandbox, apply: Any, error: str
) -> None:
    apply("{notices: {spot-interruption: {action: ignore}}}")
    deployed, instance = Deployed(aws), launch(aws, TAGS)
    fault = {"service": "dynamodb", "action": "Query", "error": error}
    aws.control("PUT", "faults", {"faults": [fault]})
    deployed.configuration.policy_of("prod")
    aws.control("PUT", "faults", {"faults": []})
    assert deployed.receive(interruption(instance)) is NoticeResult.STARTED
    assert error in deployed.reported.lines[0]
