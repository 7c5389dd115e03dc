"""Batches of messages: one run for each cluster, and only failed ones are delivered again."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics
from leeway.provision_run import NodeProvisioning
from leeway.provisioning.receive_messages import LONGEST_WHY, RETRY_AFTER, MessageReceiver
from leeway.provisioning.report import ProvisioningReport, ProvisioningTelemetry
from leeway.reasons import Reason
from leeway.selection.offers.catalog import Catalog
from pydantic import ValidationError

from tests.fakes.provision_queue import ProvisionQueueInMemory
from tests.fakes.provisioning import VisibilityInMemory
from tests.provisioning.buying import Buying, big_pods, event

PROD = {"cluster": "prod", "why": "pods are pending"}


@dataclass(frozen=True)
class Reports(ProvisioningTelemetry):
    """Telemetry that keeps what it is told."""

    runs: list[ProvisioningReport] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)

    def provisioned(self, report: ProvisioningReport) -> None:
        self.runs.append(report)

    def dropped(self, reason: Reason) -> None:
        self.reasons.append(reason)


class Receiving:
    """A receiver in memory."""

    def __init__(self, catalog: Catalog, clusters: frozenset[str] = frozenset({"prod"})) -> None:
        self.buying = Buying(catalog)
        self.buying.wait_for_nodes(*big_pods(1))
        self.visibility = VisibilityInMemory()
        self.queue = ProvisionQueueInMemory()
        self.reports = Reports(Logger(), Metrics())
        self.receiver = MessageReceiver(
            NodeProvisioning(self.buying.dependencies()).run,
            self.visibility,
            self.queue,
            clusters,
            self.reports,
            self.buying,
        )

    def receive(self, *bodies: Any, seconds: float = 60) -> tuple[str, ...]:
        return self.receiver.receive(event(*bodies), seconds)


@pytest.fixture
def receiving(catalog: Catalog) -> Receiving:
    return Receiving(catalog)


def test_one_run_serves_all_messages_of_a_cluster(receiving: Receiving) -> None:
    assert receiving.receive(PROD, {**PROD, "why": "a node retires"}, PROD) == ()
    (report,) = receiving.reports.runs
    assert report.why == "pods are pending; a node retires"
    assert len(receiving.buying.fleets.running) == 1


@pytest.mark.parametrize(
    "body",
    [
        "not JSON",
        "[]",
        {},
        {"cluster": "a/b"},
        {"cluster": "prod#x"},
        {"cluster": 7},
        {"cluster": "somebody-elses"},
        {"cluster": "prod", "why": ["x"]},
    ],
)
def test_a_message_that_no_repetition_would_help_is_dropped(
    receiving: Receiving, body: Any
) -> None:
    assert receiving.receive(body, PROD) == ()
    assert len(receiving.reports.reasons) == 1
    assert [one.cluster for one in receiving.reports.runs] == ["prod"]


def test_a_dropped_message_writes_nothing_of_its_own_into_the_log(receiving: Receiving) -> None:
    receiving.receive({"cluster": "\n2026 ERROR forged \x1b[31m"})
    assert "forged" not in receiving.reports.reasons[0].message


def test_the_reason_of_a_message_is_short_and_printable(receiving: Receiving) -> None:
    receiving.receive({"cluster": "prod", "why": "\x1b[31m\n" + "x" * 5000})
    (report,) = receiving.reports.runs
    assert len(report.why) <= LONGEST_WHY
    assert report.why.isprintable()


def test_a_cluster_that_fails_keeps_only_its_own_messages(catalog: Catalog) -> None:
    receiving = Receiving(catalog, frozenset({"prod", "broken"}))
    broken = {"cluster": "broken", "why": ""}
    read = receiving.buying.states.read

    def fail(cluster: str) -> Any:
        if cluster == "broken":
            raise RuntimeError("a bug")
        return read(cluster)

    receiving.buying.states.read = fail  # type: ignore[method-assign]
    assert receiving.receive(broken, PROD, broken) == ("m0", "m2")
    assert len(receiving.buying.fleets.running) == 1
    assert receiving.visibility.hidden["r0"] == RETRY_AFTER.total_seconds()


def test_messages_stay_hidden_only_as_long_as_the_invocation_can_last(
    receiving: Receiving,
) -> None:
    receiving.receive(PROD, seconds=58.7)
    assert receiving.visibility.hidden == {"r0": 60}


def test_without_time_for_a_run_the_messages_are_delivered_again(receiving: Receiving) -> None:
    assert receiving.receive(PROD, seconds=10) == ("m0",)
    assert not receiving.buying.fleets.running
    assert [one.result.code for one in receiving.reports.runs] == ["NoTimeForCluster"]


def test_an_event_of_another_source_is_an_error(receiving: Receiving) -> None:
    with pytest.raises(ValidationError):
        receiving.receiver.receive({"detail-type": "x"}, timedelta(seconds=60).total_seconds())


def later(receiving: Receiving, seconds: float) -> dict[str, Any]:
    at = receiving.buying.now() + timedelta(seconds=seconds)
    return {"cluster": "prod", "why": "nodes may be given back", "at": int(at.timestamp())}


def test_a_message_for_later_is_hidden_until_its_time_and_then_sent_on(
    receiving: Receiving,
) -> None:
    message = later(receiving, 50)
    assert receiving.receive(message) == ("m0",)
    assert receiving.visibility.hidden == {"r0": 50}
    assert not receiving.reports.runs, "the run itself is in the group of the cluster"
    receiving.buying.time += timedelta(seconds=50)
    assert receiving.receive(message) == ()
    assert receiving.queue.wakes == [("prod", "nodes may be given back")]
    assert not receiving.reports.runs


def test_a_message_for_later_keeps_no_other_message_waiting(receiving: Receiving) -> None:
    assert receiving.receive(PROD, later(receiving, 50)) == ("m1",)
    assert len(receiving.reports.runs) == 1


def test_a_message_that_cannot_be_sent_on_is_delivered_again(receiving: Receiving) -> None:
    receiving.queue.down = True
    assert receiving.receive(later(receiving, -1)) == ("m0",)
    assert receiving.visibility.hidden == {"r0": RETRY_AFTER.total_seconds()}


def test_a_time_that_makes_no_sense_hides_a_message_for_two_minutes(receiving: Receiving) -> None:
    """SQS gives it to the dead-letter queue when it was received ten times."""
    assert receiving.receive(later(receiving, 10**9)) == ("m0",)
    assert receiving.visibility.hidden == {"r0": 120}
