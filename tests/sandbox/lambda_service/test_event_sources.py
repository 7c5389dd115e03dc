"""Event source mappings: messages of SQS queues reach functions as they do at AWS."""

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.started import Sandbox, started

from .conftest import ARN, KEYS, QUEUE_ARN, Service, definition, eventually, running_service


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """The sandbox's AWS."""
    with started() as (_, url):
        sandbox = Sandbox(url)
        yield sandbox
        sandbox.close()


@pytest.fixture(scope="module")
def aws(sandbox: Sandbox) -> str:
    """The URL of the sandbox's AWS."""
    return sandbox.url


@pytest.fixture(scope="module")
def running(sandbox: Sandbox) -> Iterator[Service]:
    with running_service("--aws", sandbox.url, "--redelivery", "1") as service:
        sandbox.control("PUT", "links", {"lambda": service.url})
        yield service


@dataclass
class Consumed:
    """A FIFO queue with a dead-letter queue, consumed by a function of its own."""

    sqs: Any
    service: Service
    name: str
    log: Path
    sent: int = 0
    urls: dict[str, str] = field(default_factory=dict)

    def create(self, **attributes: str) -> None:
        """Create the queue and its dead-letter queue."""
        for name in ("dead", "queue"):
            given = {"FifoQueue": "true"}
            if name == "queue":
                policy = {"deadLetterTargetArn": self.arn("dead"), "maxReceiveCount": 3}
                given |= {"VisibilityTimeout": "60", "RedrivePolicy": json.dumps(policy)}
                given |= attributes
            created = self.sqs.create_queue(QueueName=self._queue(name), Attributes=given)
            self.urls[name] = created["QueueUrl"]

    def hide_for(self, seconds: int) -> None:
        """Set the visibility timeout of the queue."""
        attributes = {"VisibilityTimeout": str(seconds)}
        self.sqs.set_queue_attributes(QueueUrl=self.urls["queue"], Attributes=attributes)

    def consume(self, recursive_loop: str = "Terminate", **options: Any) -> None:
        """Register the function and its mapping."""
        source = {
            "name": "Wake",
            "function": f"{ARN}{self.name}:live",
            "queue": self.arn("queue"),
            "batchSize": 1,
            "partialFailures": True,
        }
        more = {"timeout": 30, "recursiveLoop": recursive_loop}
        functions = [definition(self.name, "consuming.handler", **more)]
        body = {"functions": functions, "eventSources": [source | options]}
        self.service.control("PUT", "functions", body)

    def arn(self, name: str) -> str:
        """Return the ARN of the queue, or of its dead-letter queue."""
        return QUEUE_ARN + self._queue(name)

    def send(self, name: str, /, group: str = "a", **task: Any) -> float:
        """Send a message; return when."""
        self.sent += 1
        self.sqs.send_message(
            QueueUrl=self.urls["queue"],
            MessageBody=json.dumps({"name": name, "log": str(self.log), **task}),
            MessageGroupId=group,
            MessageDeduplicationId=f"{self.sent}",
        )
        return time.time()

    def entries(self) -> list[dict[str, Any]]:
        """Return what the function has written."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [json.loads(line) for line in lines]

    def steps(self) -> list[str]:
        """Return the begins and ends in their order: `>name` and `name`."""
        return [entry.get("end") or f">{entry['begin']}" for entry in self.entries()]

    def ended(self, count: int) -> list[str]:
        """Wait for a number of ends; return the steps."""
        eventually(lambda: sum(not step.startswith(">") for step in self.steps()) >= count)
        return self.steps()

    def left(self, name: str) -> int:
        """Return the number of messages that are in a queue, visible or not."""
        asked = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.urls[name], AttributeNames=asked)
        return sum(int(count) for count in found["Attributes"].values())

    def empty(self) -> None:
        """Wait until the queue has no message."""
        eventually(lambda: self.left("queue") == 0)

    def _queue(self, name: str) -> str:
        return f"{self.name}-{name}.fifo"


_numbers = itertools.count()


@pytest.fixture
def consumed(aws: str, service: Service, tmp_path: Path) -> Iterator[Consumed]:
    sqs = boto3.client("sqs", endpoint_url=aws, **KEYS)
    queue = Consumed(sqs, service, f"f{next(_numbers)}", tmp_path / "log")
    queue.create()
    yield queue
    service.control("PUT", "functions", {"functions": []})
    sqs.close()


def test_a_message_reaches_the_function_at_once(consumed: Consumed) -> None:
    consumed.consume()
    consumed.send("warms up")
    consumed.ended(1)
    delays: list[float] = []

    def three_of_five_are_at_once() -> bool:
        name = f"m{len(delays)}"
        sent = consumed.send(name)
        consumed.ended(consumed.sent)
        delays.extend(e["at"] - sent for e in consumed.entries() if e.get("begin") == name)
        return sorted([*delays[-5:], *[1.0] * 5])[2] < 0.05

    # A busy machine delays some messages; a queue that is asked once a second, nearly all of them.
    eventually(three_of_five_are_at_once)
    consumed.empty()


def test_the_event_is_that_of_lambda(consumed: Consumed) -> None:
    consumed.consume()
    consumed.send("one", group="prod")
    consumed.ended(1)

    record = consumed.entries()[0]["record"]
    attributes = record["attributes"]
    assert json.loads(record["body"])["name"] == "one"
    assert record["eventSource"] == "aws:sqs"
    assert record["eventSourceARN"] == consumed.arn("queue")
    assert record["awsRegion"] == "us-east-1"
    assert attributes["MessageGroupId"] == "prod"
    assert attributes["MessageDeduplicationId"] == "1"
    assert attributes["ApproximateReceiveCount"] == "1"
    assert {"messageId", "receiptHandle", "messageAttributes", "md5OfBody"} <= record.keys()


def test_messages_of_one_group_are_handled_one_at_a_time_and_in_order(consumed: Consumed) -> None:
    consumed.consume()
    for name in ("a1", "a2", "a3"):
        consumed.send(name, seconds=0.2)

    assert consumed.ended(3) == [">a1", "a1", ">a2", "a2", ">a3", "a3"]


def test_groups_are_handled_at_the_same_time(consumed: Consumed) -> None:
    consumed.consume()
    consumed.send("a1", group="a", waits_for="b1")
    consumed.send("b1", group="b", waits_for="a1")

    assert set(consumed.ended(2)[:2]) == {">a1", ">b1"}


@pytest.mark.parametrize("way", ["fails", "raises", "dies"])
def test_a_message_that_was_not_handled_comes_again_before_the_next_one(
    consumed: Consumed, way: str
) -> None:
    consumed.consume()
    # The queue hides a message for a minute, so that none comes again while a function starts.
    failing: dict[str, Any] = {way: 1, "hides": 1}
    consumed.send("a1", **failing)
    consumed.send("a2")

    steps = [step for step in consumed.ended(3 if way == "fails" else 2) if step.startswith(">")]
    assert steps == [">a1", ">a1", ">a2"]
    consumed.empty()


def test_only_the_failed_messages_of_a_batch_come_again(consumed: Consumed) -> None:
    consumed.send("b1", group="b")
    consumed.send("a1", group="a", fails=1, hides=1)  # the last of its batch
    consumed.consume(batchSize=10)

    assert consumed.ended(3) == [">b1", "b1", ">a1", "a1", ">a1", "a1"]
    consumed.empty()


def test_the_visibility_of_a_failed_message_is_the_choice_of_the_function(
    consumed: Consumed,
) -> None:
    consumed.consume()
    consumed.send("a1", fails=1, hides=3)
    consumed.ended(2)

    begun = [entry["at"] for entry in consumed.entries() if "begin" in entry]
    assert 2.5 < begun[1] - begun[0] < 60, "the queue hides its messages for a minute"


def test_a_message_that_never_succeeds_goes_to_the_dead_letter_queue(consumed: Consumed) -> None:
    consumed.consume()
    consumed.send("bad", raises=9)
    consumed.send("good")

    consumed.ended(1)
    assert consumed.steps() == [">bad", ">bad", ">bad", ">good", "good"]
    consumed.empty()
    assert consumed.left("dead") == 1


def test_a_fault_repeats_every_message(consumed: Consumed) -> None:
    consumed.service.control("PUT", "faults", {"faults": [{"function": "f*", "copies": 2}]})
    consumed.consume()
    consumed.send("a1")
    consumed.send("a2")

    assert consumed.ended(4) == [">a1", "a1", ">a1", "a1", ">a2", "a2", ">a2", "a2"]
    consumed.empty()


def test_a_fault_delays_every_message(consumed: Consumed) -> None:
    consumed.service.control("PUT", "faults", {"faults": [{"function": "f*", "latency": 1}]})
    consumed.consume()
    before = time.time()
    consumed.send("a1")

    consumed.ended(1)
    assert consumed.entries()[0]["at"] - before > 1


def test_a_message_comes_again_after_a_kill_by_a_fault(consumed: Consumed) -> None:
    consumed.service.control("PUT", "faults", {"faults": [{"function": "f*", "kill": "after"}]})
    consumed.consume()
    consumed.send("a1")

    assert consumed.ended(2) == [">a1", "a1", ">a1", "a1"]
    consumed.empty()
    batches = consumed.service.journal("queue-batch", function=consumed.name)
    received = [(e["outcome"], [one["receives"] for one in e["messages"]]) for e in batches]
    assert received == [("killed", [1]), ("ok", [2])]


@pytest.mark.parametrize(
    ("when", "created"),
    [("before", ["1-0", "2-0", "2-1"]), ("after", ["1-0", "1-1", "2-0", "2-1"])],
)
def test_a_function_is_killed_in_the_middle_of_a_call(
    consumed: Consumed, sandbox: Sandbox, when: str, created: list[str]
) -> None:
    fault = {"service": "sqs", "action": "CreateQueue", "function": consumed.name, "when": when}
    faults = [{**fault, "kill": True, "skip": 1, "count": 1}]
    sandbox.control("PUT", "faults", {"faults": faults})
    consumed.consume()
    consumed.send("a1", creates=2)

    assert consumed.ended(1) == [">a1", ">created", ">a1", ">created", ">created", "a1"]
    sandbox.control("PUT", "faults", {"faults": []})
    (killed,) = sandbox.journal("caller-killed", functions=[consumed.name])
    assert killed["call"] == "sqs:CreateQueue"
    prefix = f"{consumed.name}-created-"
    listed = consumed.sqs.list_queues(QueueNamePrefix=prefix)["QueueUrls"]
    assert sorted(url.rpartition(prefix)[2] for url in listed) == created


def test_a_disabled_mapping_leaves_its_messages_until_it_is_enabled(consumed: Consumed) -> None:
    consumed.consume()
    consumed.send("a1", seconds=0.5)
    eventually(lambda: consumed.steps())
    client = consumed.service.client

    def change(enabled: bool) -> str:
        (mapping,) = client.list_event_source_mappings()["EventSourceMappings"]
        changed = client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=enabled)
        return str(changed["State"])

    eventually(lambda: change(False) == "Disabled")
    assert consumed.steps() == [">a1", "a1"], "a batch that runs ends first"
    consumed.hide_for(5)  # SQS may give it to the poll that has just ended.
    consumed.send("a2")
    assert change(True) == "Enabled"
    assert consumed.ended(2)[2:] == [">a2", "a2"]
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        client.update_event_source_mapping(UUID="0" * 36, Enabled=True)


def test_a_mapping_of_a_function_that_does_not_exist_is_refused(service: Service) -> None:
    source = {"name": "x", "function": f"{ARN}nowhere", "queue": QUEUE_ARN + "q.fifo"}
    status, _ = service.raw_control("PUT", "functions", {"functions": [], "eventSources": [source]})
    assert status == 404


def test_a_function_that_sends_its_messages_on_to_its_own_queue_is_stopped(
    consumed: Consumed,
) -> None:
    consumed.consume()
    consumed.send("loop", again=30)
    stopped = eventually(
        lambda: consumed.service.journal("recursion-stopped", function=consumed.name)
    )
    assert len(stopped) == 1
    consumed.empty()
    assert len(consumed.ended(16)) == 2 * 16, "Lambda stops the 17th invocation of a chain"
    consumed.send("another chain")
    assert consumed.ended(17)[-1] == "another chain"
