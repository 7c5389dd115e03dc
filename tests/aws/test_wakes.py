"""Wakes of the buyer: one contract for the queue and for the fake."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from leeway.aws.provision_queue import SqsProvisionNodes
from leeway.capacity_requests import ProvisionNodes
from leeway.ports.aws import CloudRefused, CloudUnavailable

from tests.fakes.provision_queue import ProvisionQueueInMemory
from tests.sandbox.aws.started import Sandbox

type World = tuple[ProvisionNodes, Callable[[], list[tuple[str, str]]]]


def received(sqs: object, url: str) -> list[tuple[str, str]]:
    options = {"MaxNumberOfMessages": 10, "AttributeNames": ["MessageGroupId"]}
    found = sqs.receive_message(QueueUrl=url, **options).get("Messages", [])  # type: ignore[attr-defined]
    bodies = [json.loads(message["Body"]) for message in found]
    groups = [message["Attributes"]["MessageGroupId"] for message in found]
    assert groups == [body["cluster"] for body in bodies]
    return [(body["cluster"], body["why"]) for body in bodies]


@pytest.fixture(params=["queue", "in memory"])
def world(aws: Sandbox, request: pytest.FixtureRequest) -> World:
    if request.param == "in memory":
        queue = ProvisionQueueInMemory()
        return queue, lambda: queue.wakes
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    return SqsProvisionNodes(lambda: sqs, url), partial(received, sqs, url)


def test_each_wake_is_a_message_even_if_it_repeats_an_earlier_one(world: World) -> None:
    provisioning, messages = world
    provisioning.wake("blue", "because")
    provisioning.wake("green", "because")
    provisioning.wake("blue", "because")
    assert sorted(messages()) == [("blue", "because")] * 2 + [("green", "because")]


def test_a_queue_that_does_not_exist_is_a_refusal(aws: Sandbox) -> None:
    sqs = aws.client("sqs")
    with pytest.raises(CloudRefused, match=r"NonExistentQueue|QueueDoesNotExist"):
        SqsProvisionNodes(lambda: sqs, f"{aws.url}/123456789012/none.fifo").wake("blue", "x")
    with pytest.raises(CloudUnavailable):
        ProvisionQueueInMemory(down=True).wake("blue", "x")
