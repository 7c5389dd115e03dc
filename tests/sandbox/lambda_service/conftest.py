"""A Lambda service in its own process, with fixture functions, and an AWS for its queues."""

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from leeway_sandbox.children import Child

from tests.sandbox import control_token
from tests.sandbox.aws.started import started

FUNCTIONS = Path(__file__).with_name("functions")
ARN = "arn:aws:lambda:us-east-1:123456789012:function:"
QUEUE_ARN = "arn:aws:sqs:us-east-1:123456789012:"
KEYS: Any = {
    "region_name": "us-east-1",
    "aws_access_key_id": "test",
    "aws_secret_access_key": "test",
}


def definition(name: str, handler: str, **more: Any) -> dict[str, Any]:
    """A function for the control API."""
    return {
        "name": name,
        "arn": ARN + name,
        "handler": handler,
        "code": [str(FUNCTIONS)],
        "timeout": 10,
        "memory": 256,
        "aliases": ["live"],
        **more,
    }


def durable(name: str, handler: str, **more: Any) -> dict[str, Any]:
    """A durable function for the control API."""
    return definition(name, handler, durable=True, executionTimeout=600, **more)


DEFINITIONS = [
    definition("echo", "plain.echo"),
    definition("clock", "plain.clock"),
    definition("environment", "plain.environment", environment={"COLOUR": "green"}),
    definition("failing", "plain.failing", deadLetter=QUEUE_ARN + "failing-dead"),
    definition("failing-recorded", "plain.failing", onFailure=QUEUE_ARN + "failing-recorded"),
    definition("failing-dropped", "plain.failing", retries=0),
    definition("watching", "plain.watching", timeout=900, retries=0),
    definition("patient", "plain.slow", timeout=60),
    definition("leaving", "plain.leaving", retries=0),
    definition("marking", "plain.marking"),
    definition("broken", "broken.handler"),
    definition("vanishing", "vanishing.handler"),
    definition("threaded", "threaded.handler"),
    durable("steps", "durable.steps"),
    durable("durable-failing", "durable.failing", deadLetter=QUEUE_ARN + "durable-dead"),
    durable("waiting", "durable.waiting", deadLetter=QUEUE_ARN + "durable-dead"),
    durable("overdue", "durable.overdue"),
    durable("brief", "durable.waiting") | {"executionTimeout": 1},
]


class Service:
    """A running Lambda service."""

    def __init__(self, url: str) -> None:
        self.url = url
        once = Config(retries={"total_max_attempts": 1})
        self.client = boto3.client("lambda", endpoint_url=url, config=once, **KEYS)

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Call the control API; return the parsed body."""
        return self.raw_control(method, path, body)[1]

    def raw_control(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Call the control API; return status and parsed body."""
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)
        try:
            connection.request(method, f"/_sandbox/{path}", json.dumps(body), control_token.HEADERS)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def invoke(self, function: str, event: Any = None, **more: Any) -> Any:
        """Invoke synchronously; return the result of the function."""
        response = self.client.invoke(FunctionName=function, Payload=json.dumps(event), **more)
        return json.loads(response["Payload"].read())

    def send(self, function: str, event: Any = None, **more: Any) -> Any:
        """Invoke asynchronously; return the response."""
        payload = json.dumps(event)
        given = {"InvocationType": "Event", **more}
        return self.client.invoke(FunctionName=function, Payload=payload, **given)

    def run(self, function: str, event: Any = None, **more: Any) -> Any:
        """Return the result of a durable execution that succeeds."""
        arn = self.send(function, event, **more)["DurableExecutionArn"]
        assert self.ended(arn) == "SUCCEEDED"
        return json.loads(self.client.get_durable_execution(DurableExecutionArn=arn)["Result"])

    def journal(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the entries of a kind with these fields."""
        entries = self.control("GET", "journal")["entries"]
        wanted = {"kind": kind, **fields}.items()
        return [entry for entry in entries if wanted <= _hashable(entry).items()]

    def ended(self, arn: str) -> str:
        """Wait for the final status of an execution and return it."""

        def status() -> str | None:
            found = self.client.get_durable_execution(DurableExecutionArn=arn)["Status"]
            return None if found == "RUNNING" else found

        return eventually(status)


def _hashable(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if not isinstance(value, dict | list)}


def eventually[Found](look: Callable[[], Found | None], seconds: float = 60) -> Found:
    """Return the first true value of ``look``."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


@contextmanager
def running_service(*arguments: str) -> Iterator[Service]:
    """Run a separate service."""
    options = [*control_token.OPTIONS, *arguments]
    child = Child.start("leeway_sandbox.lambda_service", options, Path(os.devnull))
    try:
        service = Service(f"http://127.0.0.1:{child.ready(60)['port']}")
        try:
            yield service
        finally:
            service.client.close()
    finally:
        child.stop()


@pytest.fixture(scope="session")
def aws() -> Iterator[str]:
    """The URL of an AWS, with the queues of the fixture functions."""
    with started() as (_, url):
        sqs = boto3.client("sqs", endpoint_url=url, **KEYS)
        for name in ("failing-dead", "failing-recorded", "durable-dead"):
            sqs.create_queue(QueueName=name)
        sqs.close()
        yield url


@pytest.fixture
def messages(aws: str) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """Return the present messages of a queue."""
    sqs = boto3.client("sqs", endpoint_url=aws, **KEYS)

    def received(queue: str) -> list[dict[str, Any]]:
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    yield received
    sqs.close()


@pytest.fixture(scope="session")
def running(aws: str) -> Iterator[Service]:
    with running_service("--aws", aws, "--retry-delay", "0.1") as service:
        service.control("PUT", "functions", {"functions": DEFINITIONS})
        yield service


@pytest.fixture
def service(running: Service) -> Iterator[Service]:
    """The service with all fixture functions; the faults of a test end with the test."""
    yield running
    running.control("PUT", "faults", {"faults": []})
