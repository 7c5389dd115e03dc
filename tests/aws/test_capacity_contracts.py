"""Capacity requests and the queue of provision_nodes, each held to its contract: on the sandbox's
AWS, and in memory."""

import json
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
from leeway.aws.capacity_requests import KEPT_FOR, DynamoCapacityRequests
from leeway.aws.provision_queue import SqsProvisionNodes
from leeway.capacity_requests import CapacityAnswer, CapacityRequests, ProvisionNodes
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.reasons import Reason
from leeway.table import RecordChanged

from tests.aws.stored import TABLE
from tests.capacity_requests.requests import REQUESTED, capacity_request
from tests.fakes.capacity_requests import CapacityRequestsInMemory, ProvisionQueueInMemory
from tests.sandbox.aws.started import Sandbox

_numbers = count(1)


@pytest.fixture(params=["sandbox", "fake"])
def requests(request: pytest.FixtureRequest, aws: Sandbox) -> CapacityRequests:
    if request.param == "fake":
        return CapacityRequestsInMemory()
    return DynamoCapacityRequests(partial(aws.client, "dynamodb"), TABLE)


@pytest.fixture
def instance() -> str:
    """An instance that no other test uses."""
    return f"i-{next(_numbers):017}"


@pytest.fixture
def cluster() -> str:
    """A cluster that no other test uses."""
    return f"cluster-{next(_numbers)}"


ANSWER = CapacityAnswer(
    answered_at=REQUESTED + timedelta(seconds=2),
    launched=("i-1", "i-2"),
    existing=3,
    without_node=(Reason("PoolAtLimit", "Pool spot is at its limit."),),
)


def test_a_request_is_read_as_it_was_written(requests: CapacityRequests, instance: str) -> None:
    assert requests.of_instance("prod", instance) is None
    written = capacity_request(instance)
    requests.write(written)
    assert requests.of_instance("prod", instance) == written
    answered = written.answered(ANSWER)
    requests.write(answered)
    assert requests.of_instance("prod", instance) == answered
    ended = answered.ended(REQUESTED + timedelta(seconds=9))
    requests.write(ended)
    stored = requests.of_instance("prod", instance)
    assert stored == ended
    assert stored is not None
    assert (stored.answer, stored.is_open(REQUESTED + timedelta(seconds=9))) == (ANSWER, False)


def test_a_request_belongs_to_one_cluster(requests: CapacityRequests, cluster: str) -> None:
    for name in ("i-b", "i-a"):
        requests.write(capacity_request(name, cluster))
    requests.write(capacity_request("i-c", f"{cluster}-2"))
    assert [one.instance for one in requests.of_cluster(cluster)] == ["i-a", "i-b"]
    assert requests.of_instance(f"{cluster}-2", "i-a") is None
    assert requests.of_cluster(f"{cluster}-3") == []


def test_a_request_that_has_ended_is_listed(requests: CapacityRequests, cluster: str) -> None:
    requests.write(capacity_request("i-a", cluster, ends_at=REQUESTED))
    assert [one.instance for one in requests.of_cluster(cluster)] == ["i-a"]


@pytest.mark.parametrize("version", [1, 3])
def test_a_write_with_another_version_is_a_conflict(
    requests: CapacityRequests, instance: str, version: int
) -> None:
    requests.write(capacity_request(instance))
    with pytest.raises(RecordChanged):
        requests.write(capacity_request(instance, version=version))
    with pytest.raises(RecordChanged):
        requests.write(capacity_request(f"{instance}-new", version=2))


def test_one_of_two_writers_of_the_same_version_wins(
    requests: CapacityRequests, instance: str
) -> None:
    """The retirement ends the request while provision_nodes answers it."""
    written = capacity_request(instance)
    requests.write(written)
    requests.write(written.ended(REQUESTED))
    with pytest.raises(RecordChanged):
        requests.write(written.answered(ANSWER))


def test_a_request_expires_a_day_after_its_end(aws: Sandbox, instance: str) -> None:
    DynamoCapacityRequests(partial(aws.client, "dynamodb"), TABLE).write(capacity_request(instance))
    key = {"pk": {"S": "CAPACITY#prod"}, "sk": {"S": f"RETIREMENT#{instance}"}}
    item = aws.client("dynamodb").get_item(TableName=TABLE, Key=key)["Item"]
    ends = REQUESTED + timedelta(minutes=1)
    assert int(item["expires"]["N"]) == int((ends + KEPT_FOR).timestamp())
    assert item["version"] == {"N": "1"}


def test_a_throttled_table_is_unavailable(aws: Sandbox, instance: str) -> None:
    requests = DynamoCapacityRequests(partial(aws.client, "dynamodb"), TABLE)
    fault = {"service": "dynamodb", "error": "ThrottlingException"}
    aws.control("PUT", "faults", {"faults": [fault]})
    for call in (
        partial(requests.of_cluster, "prod"),
        partial(requests.of_instance, "prod", instance),
        partial(requests.write, capacity_request(instance)),
    ):
        with pytest.raises(CloudUnavailable):
            call()


# The queue


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
