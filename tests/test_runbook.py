"""The runbook's commands about durable executions do what they say."""

import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from leeway.aws.functions import LambdaExecutions, RateLimit

from tests.template.granted import resources

RUNBOOK = (Path(__file__).parents[1] / "docs" / "runbook.md").read_text()


def commands(verb: str) -> list[str]:
    """The runbook's commands of this verb, each on one line."""
    joined = RUNBOOK.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.startswith(f"$ aws lambda {verb} ")]


def test_lists_of_executions_begin_with_the_newest() -> None:
    """`--reverse-order` lists the oldest first. Source: Lambda API reference."""
    found = commands("list-durable-executions-by-function")
    assert len(found) == 3
    assert not [one for one in found if "--reverse-order" in one]


def test_a_durable_function_is_invoked_with_the_name_that_leeway_gives() -> None:
    (found,) = [one for one in commands("invoke") if "retire-node" in one]
    assert '--durable-execution-name "$NAME"' in found
    (named,) = re.findall(r"NAME=retire-(\S+)-1-\$\(printf %s \"\$TABLE\" \| (.*)\)", RUNBOOK)
    assert named == ("i-0b662ef9931388ba0", "sha256sum | cut -c1-8")
    names: list[str] = []

    class Lambda:
        def invoke(self, **asked: Any) -> None:
            names.append(asked["DurableExecutionName"])

    class Clock:
        def now(self) -> datetime:
            return datetime.now(UTC)

        def sleep(self, seconds: float) -> None:
            raise AssertionError("one start waits for nothing")

    table = "leeway-Table-1A2B"
    executions = LambdaExecutions(Lambda, "arn", "retire", table, RateLimit(Clock()))
    executions.start("i-0b662ef9931388ba0", "prod", 1)
    digest = hashlib.sha256(table.encode()).hexdigest()[:8]
    assert names == [f"retire-i-0b662ef9931388ba0-1-{digest}"]


@pytest.mark.parametrize("alarm", ["RetireNodeFailuresAlarm", "AdmitNodeFailuresAlarm"])
def test_the_queues_of_durable_functions_hold_more_than_what_was_not_started(alarm: str) -> None:
    """Source: Lambda developer guide, "Best practices for Lambda durable functions"."""
    said = str(resources()[alarm]["Properties"]["AlarmDescription"])
    assert "not started, failed, were stopped or timed out" in said
    section = RUNBOOK.partition(f"## {alarm}")[2].partition("\n## ")[0]
    assert "FAILED, STOPPED or TIMED_OUT" in " ".join(section.split())
