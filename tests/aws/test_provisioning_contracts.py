"""The ports of provisioning, each held to its contract: on the sandbox's AWS, and in memory."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import pytest
from leeway.aws.capacity_requests import DynamoCapacityRequests
from leeway.aws.provision_queue import (
    WAKES_APART,
    SqsMessageVisibility,
    SqsProvisionNodes,
)
from leeway.aws.provisioning_records import DynamoProvisioningRecords
from leeway.capacity_requests import CapacityAnswer, CapacityRequest, CapacityRequests
from leeway.disruption.watched_nodes import WatchedNodes
from leeway.ports.aws import CloudRefused
from leeway.provisioning.report import LaunchedInstance, PodsWithoutNode, ProvisioningStatus
from leeway.provisioning.tell import ProvisioningRecords
from leeway.reasons import Reason
from leeway.table import RecordChanged

from tests.aws.stored import TABLE
from tests.fakes.capacity_requests import CapacityRequestsInMemory
from tests.fakes.provisioning import ProvisioningRecordsInMemory
from tests.sandbox.aws.started import Sandbox

NOW = datetime.now(UTC)
_numbers = count(1)


def new(what: str) -> str:
    return f"{what}-{next(_numbers)}"


@pytest.fixture(params=["table", "memory"])
def requests(request: pytest.FixtureRequest, aws: Sandbox) -> CapacityRequests:
    if request.param == "memory":
        return CapacityRequestsInMemory()
    return DynamoCapacityRequests(partial(aws.client, "dynamodb"), TABLE)


@pytest.fixture(params=["table", "memory"])
def records(request: pytest.FixtureRequest, aws: Sandbox) -> ProvisioningRecords:
    if request.param == "memory":
        return ProvisioningRecordsInMemory()
    return DynamoProvisioningRecords(partial(aws.client, "dynamodb"), TABLE)


def request_(cluster: str, instance: str) -> CapacityRequest:
    return CapacityRequest(
        cluster=cluster,
        instance=instance,
        node="node-1",
        instance_type="m5.large",
        zone="us-east-1a",
        capacity_type="spot",
        attempt=1,
        requested_at=NOW,
        ends_at=NOW + timedelta(minutes=2),
    )


def test_requests_are_read_with_their_answers_by_cluster_and_instance(
    requests: CapacityRequests,
) -> None:
    cluster = new("cluster")
    assert list(requests.of_cluster(cluster)) == []
    first, second = (request_(cluster, name) for name in ("i-1", "i-2"))
    requests.write(second)
    requests.write(first)
    answer = CapacityAnswer(
        answered_at=NOW, launched=("i-9",), existing=2, without_node=(Reason("A", "Because."),)
    )
    requests.write(first.answered(answer))
    assert list(requests.of_cluster(cluster)) == [first.answered(answer), second]
    assert requests.of_instance(cluster, "i-2") == second
    assert requests.of_instance(cluster, "i-3") is None
    assert requests.of_instance(new("cluster"), "i-2") is None


def test_of_two_writers_of_a_request_one_learns_that_it_has_changed(
    requests: CapacityRequests,
) -> None:
    written = request_(new("cluster"), new("i"))
    requests.write(written)
    ended = written.ended(NOW)
    requests.write(ended)
    with pytest.raises(RecordChanged):
        requests.write(written.answered(CapacityAnswer(answered_at=NOW)))
    assert requests.of_instance(written.cluster, written.instance) == ended


def test_a_status_is_read_as_it_was_written(records: ProvisioningRecords) -> None:
    cluster = new("cluster")
    assert records.status(cluster) is None
    status = ProvisioningStatus(
        cluster=cluster,
        run_at=NOW,
        why="pods",
        pods=3,
        launched=(
            LaunchedInstance(
                instance="i-1", instance_type="m5.large", zone="a", capacity_type="spot", pool="w"
            ),
        ),
        launched_at=NOW,
        launched_count=1,
        without_node=(PodsWithoutNode(reason=Reason("A", "Because."), count=2, some=("a/b",)),),
        problems=(Reason("B", "It failed."),),
    )
    records.write_status(status)
    assert records.status(cluster) == status
    later = status.model_copy(update={"failure": Reason("C", "No.")})
    records.write_status(later)
    assert records.status(cluster) == later


def test_the_keys_of_events_are_read_as_they_were_written(records: ProvisioningRecords) -> None:
    cluster = new("cluster")
    assert dict(records.told(cluster)) == {}
    at = NOW.replace(microsecond=0)
    keys = {number.to_bytes(8): at - timedelta(seconds=number) for number in range(300)}
    records.write_told(cluster, keys)
    assert dict(records.told(cluster)) == keys
    records.write_told(cluster, {})
    assert dict(records.told(cluster)) == {}


def test_watched_nodes_are_replaced_and_read_as_they_were_written(aws: Sandbox) -> None:
    records = DynamoProvisioningRecords(partial(aws.client, "dynamodb"), TABLE)
    cluster = new("cluster")
    assert records.watched(cluster) is None
    quiet = {b"a" * 8: NOW - timedelta(hours=5), b"b" * 8: NOW + timedelta(microseconds=1)}
    found = WatchedNodes(NOW, quiet, {b"c" * 8: NOW - timedelta(seconds=3, microseconds=7)})
    records.write_watched(cluster, found)
    assert records.watched(cluster) == found
    records.write_watched(cluster, WatchedNodes(NOW, {}))
    assert records.watched(cluster) == WatchedNodes(NOW, {})
    assert records.watched(new("cluster")) is None


def queue(aws: Sandbox) -> str:
    sqs = aws.client("sqs")
    attributes = {"FifoQueue": "true", "VisibilityTimeout": "360"}
    url = sqs.create_queue(QueueName=f"{new('queue')}.fifo", Attributes=attributes)["QueueUrl"]
    return str(url)


def test_messages_of_one_cluster_are_in_one_group_and_none_is_dropped(aws: Sandbox) -> None:
    url = queue(aws)
    sender = SqsProvisionNodes(partial(aws.client, "sqs"), url)
    for _ in range(2):
        sender.wake("prod", "pods are pending")
    received = aws.client("sqs").receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["MessageGroupId"]
    )["Messages"]
    body = {"cluster": "prod", "why": "pods are pending"}
    assert [json.loads(one["Body"]) for one in received] == [body, body]
    assert {one["Attributes"]["MessageGroupId"] for one in received} == {"prod"}


def test_hidden_messages_are_delivered_again_after_their_time(aws: Sandbox) -> None:
    url, sqs = queue(aws), aws.client("sqs")
    SqsProvisionNodes(partial(aws.client, "sqs"), url).wake("prod", "")
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    visibility = SqsMessageVisibility(partial(aws.client, "sqs"), url)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    visibility.hide([message["ReceiptHandle"]], 0)
    assert sqs.receive_message(QueueUrl=url)["Messages"]
    visibility.hide([], 0)


def test_a_queue_that_does_not_exist_refuses(aws: Sandbox) -> None:
    url = queue(aws).replace("queue-", "missing-")
    with pytest.raises(CloudRefused):
        SqsMessageVisibility(partial(aws.client, "sqs"), url).hide(["receipt"], 5)


def test_messages_for_later_are_in_groups_of_their_own_and_one_for_each_three_seconds(
    aws: Sandbox,
) -> None:
    url = queue(aws)
    sender = SqsProvisionNodes(partial(aws.client, "sqs"), url)
    minute = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
    for tenths in range(600):
        sender.wake("prod", "nodes may be given back", minute + timedelta(seconds=tenths / 10))
    sender.wake("other", "nodes may be given back", minute)
    sender.wake("prod", "pods are pending")
    sent: dict[str, list[int]] = {}
    while (
        received := aws.client("sqs")
        .receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["MessageGroupId"]
        )
        .get("Messages")
    ):
        for one in received:
            body = json.loads(one["Body"])
            sent.setdefault(body["cluster"], []).append(body.get("at", 0))
            alone = one["Attributes"]["MessageGroupId"] != body["cluster"]
            assert alone is ("at" in body), "a hidden message holds back its whole group"
    first = int(minute.timestamp())
    assert sorted(sent["prod"]) == [0, *range(first, first + 61, WAKES_APART)]
    assert sent["other"] == [first]
