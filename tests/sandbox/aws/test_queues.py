"""SQS queues: deduplication, message groups, long polls, dead-letter queues."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.sandbox.aws.started import Sandbox

SECOND = 1.0
LONGEST_POLL = 20
"""Seconds. No answer comes so late if it comes as soon as there is a message."""


class Fifo:
    """A FIFO queue of one test."""

    def __init__(self, client: Any, name: str, **attributes: str) -> None:
        self._client = client
        given = {"FifoQueue": "true", "VisibilityTimeout": "30"} | attributes
        self.url = client.create_queue(QueueName=f"{name}.fifo", Attributes=given)["QueueUrl"]

    def send(self, body: str, group: str = "a", once: str | None = None) -> None:
        """Send a message; `once` is its deduplication id."""
        self._client.send_message(
            QueueUrl=self.url,
            MessageBody=body,
            MessageGroupId=group,
            MessageDeduplicationId=once or body,
        )

    def receive(self, wait: int = 0, count: int = 10, **more: Any) -> list[dict[str, Any]]:
        """Receive messages, after at most `wait` seconds."""
        answer = self._client.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=count, WaitTimeSeconds=wait, **more
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def bodies(self, wait: int = 0, count: int = 10) -> list[str]:
        """Receive messages, and return their bodies."""
        return [message["Body"] for message in self.receive(wait, count)]

    def delete(self, message: dict[str, Any]) -> None:
        """Delete a received message."""
        self._client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def hide(self, message: dict[str, Any], seconds: int) -> None:
        """Make a received message receivable again in this time."""
        self._client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )


@pytest.fixture
def sqs(aws: Sandbox) -> Any:
    return aws.client("sqs")


@pytest.fixture
def other(aws: Sandbox) -> Iterator[Any]:
    """A client for another thread."""
    client = boto3.client(
        "sqs",
        endpoint_url=aws.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    yield client
    client.close()


def test_a_deduplication_id_outlives_its_message(sqs: Any) -> None:
    queue = Fifo(sqs, "repeats")
    queue.send("first", once="x")
    (message,) = queue.receive()
    queue.delete(message)

    queue.send("second", once="x")
    queue.send("third", once="y")

    assert queue.bodies() == ["third"]


def test_a_deduplication_id_may_be_limited_to_a_group(sqs: Any) -> None:
    queue = Fifo(sqs, "scoped", DeduplicationScope="messageGroup")
    queue.send("of a", group="a", once="x")
    queue.send("of b", group="b", once="x")

    assert queue.bodies() == ["of a", "of b"]


def test_a_group_waits_for_its_received_message_and_others_do_not(sqs: Any) -> None:
    queue = Fifo(sqs, "groups")
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        queue.send(body, group)
    (first,) = queue.receive(count=1)

    assert queue.bodies() == ["b1"]
    queue.delete(first)
    assert queue.bodies() == ["a2"]


@pytest.mark.parametrize("change", ["send", "delete", "hide"])
def test_a_long_poll_ends_as_soon_as_there_is_a_message(sqs: Any, other: Any, change: str) -> None:
    queue = Fifo(sqs, f"wakes-{change}")
    queue.send("first")
    queue.send("next")
    (first,) = queue.receive(count=1)

    def act() -> None:
        elsewhere = Fifo(other, f"wakes-{change}")
        time.sleep(SECOND / 4)
        if change == "send":
            elsewhere.send("next", group="b", once="other")
        elif change == "delete":
            elsewhere.delete(first)
        else:
            elsewhere.hide(first, 0)

    thread = threading.Thread(target=act)
    thread.start()
    began = time.monotonic()
    found = queue.bodies(wait=LONGEST_POLL, count=1)
    lasted = time.monotonic() - began
    thread.join()

    assert found == ["first" if change == "hide" else "next"]
    assert lasted < LONGEST_POLL


def test_a_long_poll_waits_for_a_message_that_is_hidden(sqs: Any) -> None:
    queue = Fifo(sqs, "hidden")
    queue.send("again")
    (message,) = queue.receive()
    began = time.monotonic()
    queue.hide(message, 1)

    (again,) = queue.receive(wait=LONGEST_POLL, AttributeNames=["All"])

    assert 0.8 < time.monotonic() - began < LONGEST_POLL
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_long_poll_without_messages_ends_with_its_time(sqs: Any) -> None:
    queue = Fifo(sqs, "empty")
    began = time.monotonic()

    assert queue.receive(wait=1) == []
    assert time.monotonic() - began > 0.9


def test_other_calls_are_answered_during_a_long_poll(sqs: Any, other: Any) -> None:
    queue = Fifo(sqs, "busy")
    queue.send("one")
    queue.send("two")
    queue.receive(count=1)
    thread = threading.Thread(target=lambda: Fifo(other, "busy").receive(wait=LONGEST_POLL))
    thread.start()
    time.sleep(SECOND / 4)

    for _ in range(20):
        sqs.list_queues()

    assert thread.is_alive(), "the long poll has not ended"
    queue.send("three", group="b")
    thread.join()


def test_a_message_that_was_received_too_often_goes_to_the_dead_letter_queue(sqs: Any) -> None:
    dead = Fifo(sqs, "dead")
    arn = sqs.get_queue_attributes(QueueUrl=dead.url, AttributeNames=["QueueArn"])
    policy = {"deadLetterTargetArn": arn["Attributes"]["QueueArn"], "maxReceiveCount": 2}
    queue = Fifo(sqs, "redriven", RedrivePolicy=json.dumps(policy))
    queue.send("bad")
    queue.send("good")
    for _ in range(2):
        (message,) = queue.receive(count=1)
        assert message["Body"] == "bad"
        queue.hide(message, 0)

    assert queue.bodies(count=1) == ["good"]
    assert dead.bodies() == ["bad"]
