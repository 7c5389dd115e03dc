"""EventBridge Scheduler: due times, and what it sends to functions."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from botocore.exceptions import ClientError
from leeway_sandbox.aws.schedule_clock import BadExpressionError, parse_expression

from tests.sandbox.aws.started import Recorder, Sandbox

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:reconcile:live"
ROLE = "arn:aws:iam::123456789012:role/scheduler"


@pytest.fixture(autouse=True)
def linked(aws: Sandbox, recorder: Recorder) -> Iterator[None]:
    """The recorder takes the place of Lambda; schedules run only on command."""
    recorder.requests.clear()
    aws.control("PUT", "links", {"lambda": recorder.url})
    aws.control("PUT", "schedules", {"speed": 0})
    yield
    for schedule in aws.client("scheduler").list_schedules()["Schedules"]:
        aws.client("scheduler").delete_schedule(Name=schedule["Name"])


def _schedule(aws: Sandbox, name: str, expression: str, **options: Any) -> str:
    target = {"Arn": FUNCTION, "RoleArn": ROLE} | options.pop("target", {})
    created = aws.client("scheduler").create_schedule(
        Name=name,
        ScheduleExpression=expression,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target,
        **options,
    )
    return str(created["ScheduleArn"])


def _at(seconds: float) -> str:
    return f"at({datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S})"


def _names(aws: Sandbox) -> set[str]:
    return {schedule["name"] for schedule in aws.control("GET", "schedules")["schedules"]}


def _bodies(recorder: Recorder) -> list[dict[str, Any]]:
    return [request["body"] for request in recorder.requests]


def test_a_fired_schedule_sends_the_event_of_scheduler_to_its_function(
    aws: Sandbox, recorder: Recorder
) -> None:
    arn = _schedule(aws, "tick", "rate(1 minute)")
    assert not recorder.requests
    assert aws.control("POST", "schedules/fire", {"name": "tick"}) == {"functions": ["reconcile"]}
    [request] = aws.wait(lambda: recorder.requests)
    assert request["invocation_type"] == "Event"
    body = request["body"]
    assert (body["source"], body["detail-type"]) == ("aws.scheduler", "Scheduled Event")
    assert (body["resources"], body["detail"]) == ([arn], "{}")
    assert aws.journal("schedule-fired", schedule="tick", functions=["reconcile"])
    assert "tick" in _names(aws)


@pytest.mark.parametrize(("service", "comes"), [("events", True), ("scheduler", False)])
def test_faults_of_events_do_not_apply_to_schedules(
    aws: Sandbox, recorder: Recorder, service: str, comes: bool
) -> None:
    _schedule(aws, "tick", "rate(1 minute)")
    fault = {"service": service, "action": "Deliver", "drop": True}
    aws.control("PUT", "faults", {"faults": [fault]})
    aws.control("POST", "schedules/fire", {"name": "tick"})
    aws.control("PUT", "faults", {"faults": []})
    _schedule(aws, "other", "rate(1 minute)")
    aws.control("POST", "schedules/fire", {"name": "other"})
    aws.wait(lambda: _resources(recorder, "other"))
    assert bool(_resources(recorder, "tick")) is comes


def _resources(recorder: Recorder, name: str) -> list[str]:
    return [r for body in _bodies(recorder) for r in body["resources"] if r.endswith(f"/{name}")]


def test_a_rate_runs_at_once_and_repeats(aws: Sandbox, recorder: Recorder) -> None:
    aws.control("PUT", "schedules", {"speed": 120})
    _schedule(aws, "quick", "rate(1 minute)")
    aws.wait(lambda: len(recorder.requests) >= 3)
    times = [datetime.fromisoformat(body["time"]) for body in _bodies(recorder)[:3]]
    assert [later - sooner for sooner, later in pairwise(times)] == [timedelta(minutes=1)] * 2


def test_a_one_time_schedule_runs_once_and_is_deleted_on_request(
    aws: Sandbox, recorder: Recorder
) -> None:
    notice = {"Input": '{"id": "n-1"}'}
    expression = _at(30)
    _schedule(aws, "later", expression, target=notice, ActionAfterCompletion="DELETE")
    _schedule(aws, "kept", expression, target=notice)
    aws.control("PUT", "schedules", {"speed": 60})
    aws.wait(lambda: len(recorder.requests) == 2)
    assert _bodies(recorder) == [{"id": "n-1"}] * 2
    scheduler = aws.client("scheduler")
    aws.wait(lambda: not _names(aws))
    assert [entry["Name"] for entry in scheduler.list_schedules()["Schedules"]] == ["kept"]
    with pytest.raises(scheduler.exceptions.ResourceNotFoundException):
        scheduler.get_schedule(Name="later")


def test_a_one_time_schedule_in_the_past_runs_at_once(aws: Sandbox, recorder: Recorder) -> None:
    aws.control("PUT", "schedules", {"speed": 1})
    _schedule(aws, "missed", _at(-3600), target={"Input": '{"id": "missed"}'})
    assert aws.wait(lambda: _bodies(recorder)) == [{"id": "missed"}]


def test_a_changed_schedule_runs_at_its_new_time_and_a_deleted_one_never(
    aws: Sandbox, recorder: Recorder
) -> None:
    _schedule(aws, "moved", _at(3600))
    scheduler = aws.client("scheduler")
    scheduler.update_schedule(
        Name="moved",
        ScheduleExpression="at(2030-01-01T00:00:00)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": FUNCTION, "RoleArn": ROLE},
        ActionAfterCompletion="DELETE",
    )
    [entry] = aws.control("GET", "schedules")["schedules"]
    assert entry["due"] == "2030-01-01T00:00:00+00:00"
    assert scheduler.get_schedule(Name="moved")["ActionAfterCompletion"] == "DELETE"
    scheduler.delete_schedule(Name="moved")
    assert aws.answer("POST", "schedules/fire", {"name": "moved"}).status_code == 404
    assert not recorder.requests


def test_groups_separate_schedules_of_one_name(aws: Sandbox) -> None:
    scheduler = aws.client("scheduler")
    scheduler.create_schedule_group(Name="leeway")
    here, there = (
        _schedule(aws, "same", _at(60)),
        _schedule(aws, "same", _at(60), GroupName="leeway"),
    )
    assert here != there
    with pytest.raises(scheduler.exceptions.ConflictException):
        _schedule(aws, "same", _at(60))
    with pytest.raises(scheduler.exceptions.ResourceNotFoundException):
        _schedule(aws, "same", _at(60), GroupName="none")
    scheduler.delete_schedule(Name="same", GroupName="leeway")
    assert [s["arn"] for s in aws.control("GET", "schedules")["schedules"]] == [here]


def test_a_disabled_schedule_does_not_run(aws: Sandbox) -> None:
    _schedule(aws, "off", "rate(1 minute)", State="DISABLED")
    assert "off" not in _names(aws)


@pytest.mark.parametrize(
    ("name", "expression", "target"),
    [
        ("bad name", "rate(1 minute)", {}),
        ("bad-expression", "rate(1 fortnight)", {}),
        ("bad-input", "rate(1 minute)", {"Input": "not JSON"}),
        ("no-service", "rate(1 minute)", {"Arn": "arn:aws:scheduler:::aws-sdk:sqs:sendMessage"}),
    ],
)
def test_a_schedule_that_scheduler_refuses_is_refused(
    aws: Sandbox, name: str, expression: str, target: dict[str, Any]
) -> None:
    with pytest.raises(ClientError, match="ValidationException"):
        _schedule(aws, name, expression, target=target)


NOW = datetime(2026, 11, 21, 11, 30, 20, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    ("text", "zone", "due"),
    [
        ("rate(1 minute)", None, NOW + timedelta(minutes=1)),
        ("rate(6 hours)", None, NOW + timedelta(hours=6)),
        ("at(2026-11-21T12:00:00)", None, datetime(2026, 11, 21, 12, tzinfo=UTC)),
        ("at(2026-11-21T12:00:00)", "Asia/Seoul", None),
        ("at(2026-11-21T13:00:00)", "Europe/Berlin", datetime(2026, 11, 21, 12, tzinfo=UTC)),
    ],
)
def test_an_expression_returns_its_next_due_time(
    text: str, zone: str | None, due: datetime | None
) -> None:
    assert parse_expression(text, zone).next(NOW) == due


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("every minute", None),
        ("rate(0 minutes)", None),
        ("rate(1 week)", None),
        ("at(tomorrow)", None),
        ("cron(0 8 * * ? *)", None),
        ("rate(1 minute)", "Mars/Olympus"),
    ],
)
def test_an_invalid_or_unsupported_expression_is_refused(text: str, zone: str | None) -> None:
    with pytest.raises(BadExpressionError, match="Invalid Schedule Expression"):
        parse_expression(text, zone)
