"""The queue of provision_nodes, held to its contract: on the sandbox's AWS, and in memory."""

import json
from functools import partial
from itertools import count
from typing import Any

import pytest
from leeway.aws.provision_queue import SqsProvisionNodes
from leeway.capacity_requests import ProvisionNodes
from leeway.ports.aws import CloudRefused, CloudUnavailable

from tests.fakes.provision_queue import ProvisionQueueInMemory
from tests.sandbox.aws.started import Sandbox

_numbers = count(1)


@pytest.fixture
def queue_url(aws: Sandbox) -> str:
    attributes = {"FifoQueue": "true"}
    name = f"provision-{next(_numbers)}.fifo"
    url: str = aws.client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url


def messages(aws: Sandbox, url: str) -> list[dict[str, Any]]:
    answer = aws.client("sqs").receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        MessageSystemAttributeNames=["MessageGroupId", "MessageDeduplicationId"],
    )
    found: list[dict[str, Any]] = answer.get("Messages", [])
    return found


def test_a_call_is_a_message_in_the_group_of_the_cluster(aws: Sandbox, queue_url: str) -> None:
    SqsProvisionNodes(partial(aws.client, "sqs"), queue_url).wake("prod", "node node-1 retires")
    [message] = messages(aws, queue_url)
    assert json.loads(message["Body"]) == {"cluster": "prod", "why": "node node-1 retires"}
    assert message["Attributes"]["MessageGroupId"] == "prod"


def test_a_repeated_call_is_another_message(aws: Sandbox, queue_url: str) -> None:
    """What it announces may be newer than the run that the first one started."""
    queue = SqsProvisionNodes(partial(aws.client, "sqs"), queue_url)
    for cluster in ("prod", "prod", "dev"):
        queue.wake(cluster, "again")
    found = messages(aws, queue_url)
    ids = {one["Attributes"]["MessageDeduplicationId"] for one in found}
    groups = sorted(one["Attributes"]["MessageGroupId"] for one in found)
    assert (len(ids), groups) == (3, ["dev", "prod", "prod"])


@pytest.mark.parametrize("kind", ["sandbox", "fake"])
def test_a_queue_that_does_not_answer_raises(aws: Sandbox, queue_url: str, kind: str) -> None:
    queue: ProvisionNodes = ProvisionQueueInMemory(down=True)
    if kind == "sandbox":
        gone = f"{queue_url.removesuffix('.fifo')}-gone.fifo"
        queue = SqsProvisionNodes(partial(aws.client, "sqs"), gone)
    with pytest.raises((CloudRefused, CloudUnavailable)):
        queue.wake("prod", "node node-1 retires")
