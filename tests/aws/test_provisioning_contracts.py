"""The ports of provisioning, each held to its contract: on the sandbox's AWS, and in memory."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import pytest
from leeway.aws.provision_queue import (
    WAKES_APART,
    SqsMessageVisibility,
    SqsProvisionNodes,
)
from leeway.ports.aws import CloudRefused

from tests.sandbox.aws.started import Sandbox

NOW = datetime.now(UTC)
_numbers = count(1)


def new(what: str) -> str:
    return f"{what}-{next(_numbers)}"


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
    for number in range(60):
        at = minute + timedelta(seconds=1.005 * number)
        sender.wake("prod", "nodes may be given back", at)
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
