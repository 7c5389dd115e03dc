"""Parsing of notices: every file in events/, and malformed events."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.execution.attempt import parse_attempt_id
from leeway.notices import (
    InterruptionAction,
    LifecycleHook,
    MalformedNotice,
    NoticeKind,
    UnknownNotice,
)
from leeway.notices.parse import narrow_event, parse_notice
from leeway.reconciliation.reconcile import parse_request

from tests.notices.events import EVENTS, event, health

INPUTS_OF_OTHER_FUNCTIONS = {
    "admit-node.json",
    "keep-headroom.json",
    "provision-nodes.json",
    "reconcile-instance.json",
    "reconcile.json",
    "refresh-catalog.json",
    "retire-node.json",
    "watch-pods.json",
}
"""The events that other functions than receive_notice are invoked with."""
TERMINATES = {"detail-type": "EC2 Instance-terminate Lifecycle Action"}
NOTICE_FILES = sorted(
    p.name for p in EVENTS.glob("*.json") if p.name not in INPUTS_OF_OTHER_FUNCTIONS
)


@pytest.mark.parametrize("name", NOTICE_FILES)
def test_every_event_file_is_parsed_as_a_notice(name: str) -> None:
    notice = parse_notice(json.loads((EVENTS / name).read_text()))
    assert notice.time.utcoffset() is not None
    if notice.kind is not NoticeKind.TEST_NOTIFICATION:
        assert notice.instances or notice.reservation


def test_the_event_files_cover_every_kind_of_notice() -> None:
    kinds = {parse_notice(json.loads((EVENTS / name).read_text())).kind for name in NOTICE_FILES}
    assert kinds >= set(NoticeKind) - {NoticeKind.TEST_NOTIFICATION, NoticeKind.CAPACITY_RETURN}


def test_a_spot_interruption_names_its_instance_and_what_ec2_will_do() -> None:
    notice = parse_notice(event())
    assert notice.kind is NoticeKind.SPOT_INTERRUPTION
    assert notice.instances == ("i-0b662ef9931388ba0",)
    assert notice.action is InterruptionAction.TERMINATE
    assert notice.time == datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


@pytest.mark.parametrize(
    "detail_type",
    ["Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"],
)
@pytest.mark.parametrize("end", ["2026-11-20 11:30:00 UTC", "2026-11-20T11:30:00Z"])
def test_the_instances_of_a_capacity_block_end_half_an_hour_before_the_block(
    detail_type: str, end: str
) -> None:
    detail = {"capacity-reservation-id": "cr-0a1b2c3d4e5f60718", "end-date": end}
    notice = parse_notice(event(detail=detail, **{"detail-type": detail_type}))
    assert notice.kind is NoticeKind.CAPACITY_RESERVATION
    assert (notice.instances, notice.reservation) == ((), "cr-0a1b2c3d4e5f60718")
    assert notice.effective_at == datetime(2026, 11, 20, 11, 0, tzinfo=UTC)


def test_the_warning_of_an_ultraserver_comes_earlier() -> None:
    detail = {"capacity-reservation-id": "cr-0a1b2c3d4e5f60718", "end-date": "2026-11-20T10:55:00Z"}
    warning = {"detail-type": "Capacity Block Reservation Expiration Warning"}
    notice = parse_notice(event(detail=detail, **warning))
    assert notice.effective_at == datetime(2026, 11, 20, 9, 55, tzinfo=UTC)


def test_a_capacity_block_without_its_reservation_is_malformed() -> None:
    body = event(detail={"end-date": "2026-11-20T11:30:00Z"})
    with pytest.raises(MalformedNotice, match="capacity-reservation-id"):
        parse_notice(body | {"detail-type": "Capacity Block Expiration Warning"})


def test_a_lifecycle_action_names_its_hook() -> None:
    detail = {
        "EC2InstanceId": "i-0b662ef9931388ba0",
        "AutoScalingGroupName": "ng-spot",
        "LifecycleHookName": "leeway-drain",
        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
    }
    notice = parse_notice(event(source="aws.autoscaling", detail=detail, **TERMINATES))
    assert notice.hook == LifecycleHook("ng-spot", "leeway-drain")


@pytest.mark.parametrize("field", ["Event", "LifecycleTransition"])
def test_a_test_notification_is_recognised_by_each_of_its_fields(field: str) -> None:
    changes = {"source": "aws.autoscaling", "detail": {field: "autoscaling:TEST_NOTIFICATION"}}
    notice = parse_notice(
        event(**changes, **{"detail-type": "EC2 Instance-launch Lifecycle Action"})
    )
    assert notice.kind is NoticeKind.TEST_NOTIFICATION


def test_a_health_event_names_all_of_its_instances() -> None:
    notice = parse_notice(health())
    assert notice.instances == ("i-0b662ef9931388ba0", "i-0abc1234")
    assert notice.effective_at == datetime(2026, 12, 4, 2, tzinfo=UTC)


def test_a_closed_health_event_is_over_for_all_of_its_instances() -> None:
    notice = parse_notice(health(statusCode="closed"))
    assert notice.over == set(notice.instances)


def test_an_open_health_event_is_over_for_the_instances_that_are_resolved() -> None:
    entities = [
        {"entityValue": "i-0b662ef9931388ba0", "status": "RESOLVED"},
        {"entityValue": "i-0abc1234", "status": "PENDING"},
    ]
    assert parse_notice(health(affectedEntities=entities)).over == {"i-0b662ef9931388ba0"}


def test_a_health_event_about_other_resources_names_no_instance() -> None:
    assert parse_notice(health(affectedEntities=[{"entityValue": "h-0abc1234"}])).instances == ()


@pytest.mark.parametrize(
    "text",
    ["i-", "i-1", "i-0abc12345", "i-0ABC1234", "i-0abc1234\n", "i-0abc1234 ", "i-../../ENDPOINT"],
)
def test_an_entity_that_only_begins_like_an_instance_id_is_ignored(text: str) -> None:
    entity = {"entityValue": text, "status": "RESOLVED"}
    notice = parse_notice(health(affectedEntities=[entity]) | {"resources": [text]})
    assert (notice.instances, notice.over) == ((), frozenset())


@pytest.mark.parametrize("digits", [7, 9, 16, 18])
def test_an_instance_id_has_8_or_17_digits_in_every_notice(digits: int) -> None:
    instance = "i-" + "0" * digits
    arn = f"arn:aws:ec2:us-east-1:123456789012:instance/{instance}"
    listed = reservation(**{"instance-id": None}) | {"resources": [arn]}
    action = {"EC2InstanceId": instance, "AutoScalingGroupName": "ng", "LifecycleHookName": "h"}
    for bad in (
        event(detail={"instance-id": instance, "instance-action": "terminate"}),
        reservation(**{"instance-id": instance}),
        listed,
        event(source="aws.autoscaling", detail=action, **TERMINATES),
    ):
        with pytest.raises(MalformedNotice):
            parse_notice(bad)
    with pytest.raises(ValueError, match="instance"):
        parse_attempt_id({"instance": instance, "cluster": "prod", "attempt": 1})
    with pytest.raises(ValueError, match="instance"):
        parse_request({"instance": instance})


def test_a_planned_lifecycle_event_names_no_instance() -> None:
    assert (
        len(parse_notice(health(eventTypeCode="AWS_EC2_SYSTEM_MAINTENANCE_EVENT")).instances) == 2
    )
    lifecycle = parse_notice(health(eventTypeCode="AWS_EC2_PLANNED_LIFECYCLE_EVENT"))
    assert (lifecycle.kind, lifecycle.instances) == (NoticeKind.SCHEDULED_CHANGE, ())


FIRST, SECOND = "i-0b662ef9931388ba0", "i-0abc1234"


@pytest.mark.parametrize("status", [None, "PENDING", "IMPAIRED", ""])
def test_a_health_event_names_instances_as_entities_or_resources_by_id_or_arn(
    status: str | None,
) -> None:
    arn = "arn:aws:ec2:eu-west-1:123456789012:instance/"
    entity = {"entityValue": f"{arn}{FIRST}"} | ({} if status is None else {"status": status})
    body = health(affectedEntities=[entity]) | {"resources": [SECOND, f"{arn}{FIRST}"]}
    notice = parse_notice(body)
    assert (notice.instances, notice.over) == ((FIRST, SECOND), frozenset())
    only_listed = health(affectedEntities=[]) | {"resources": [f"{arn}{SECOND}"]}
    assert parse_notice(only_listed).instances == (SECOND,)


def test_a_health_event_has_the_arn_and_the_time_of_its_change() -> None:
    notice = parse_notice(health())
    assert notice.event == "arn:aws:health:eu-west-1::event/EC2/RETIREMENT/RETIREMENT_1"
    assert notice.effective_at == datetime(2026, 12, 4, 2, tzinfo=UTC)
    for start in ("Fri, 04 Dec 2026 02:00:00 -0000", "Fri, 4 Dec 2026 04:00:00 +0200"):
        assert parse_notice(health(startTime=start)).effective_at == notice.effective_at
    assert parse_notice(health(statusCode="CLOSED")).over == {FIRST, SECOND}


def test_a_health_event_for_one_instance_is_still_a_notice() -> None:
    whole = json.loads((EVENTS / "scheduled-change.json").read_text())
    wanted = parse_notice(whole).instances[1]
    notice = parse_notice(narrow_event(whole, wanted))
    assert notice.instances == (wanted,)
    assert replace(notice, instances=()) == replace(parse_notice(whole), instances=())


def test_the_resources_of_a_capacity_reservation_warning_can_be_a_string() -> None:
    body = event(
        resources="arn:aws:ec2:eu-west-1:123456789012:instance/i-0b662ef9931388ba0",
        detail={"instance-termination-time": "2026-11-20 10:00:00 UTC"},
    )
    body["detail-type"] = "EC2 Capacity Reservation Instance Interruption Warning"
    notice = parse_notice(body)
    assert notice.instances == ("i-0b662ef9931388ba0",)
    assert notice.effective_at == datetime(2026, 11, 20, 10, tzinfo=UTC)


def reservation(**changes: Any) -> dict[str, Any]:
    detail = {"instance-id": FIRST, "instance-termination-time": "2026-11-20T10:00:00Z"}
    kind = "EC2 Capacity Reservation Instance Interruption Warning"
    return event(detail=detail | changes, resources=[]) | {"detail-type": kind}


def test_a_capacity_reservation_warning_names_its_instance_in_detail_or_resources() -> None:
    assert parse_notice(reservation()).instances == (FIRST,)
    arn = f"arn:aws:ec2:eu-west-1:123456789012:instance/{SECOND}"
    assert parse_notice(reservation() | {"resources": arn}).instances == (FIRST, SECOND)
    other = "arn:aws:ec2:eu-west-1:123456789012:capacity-reservation/cr-0123456789abcdef0"
    assert parse_notice(reservation() | {"resources": [other]}).instances == (FIRST,)


@pytest.mark.parametrize(
    "text",
    ["2026-11-20 10:00:00 UTC", "2026-11-20T10:00:00", "2026-11-20T11:00:00+01:00"],
)
def test_a_termination_time_without_an_offset_is_in_utc(text: str) -> None:
    notice = parse_notice(reservation(**{"instance-termination-time": text}))
    assert notice.effective_at == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert notice.effective_at.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "state", ["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]
)
def test_a_state_change_names_the_state_and_its_time_in_utc(state: str) -> None:
    body = event(detail={"instance-id": SECOND, "state": state}, time="2026-11-20T10:45:00+01:00")
    notice = parse_notice(body | {"detail-type": "EC2 Instance State-change Notification"})
    assert (notice.kind, notice.instances, notice.state) == (
        NoticeKind.STATE_CHANGE,
        (SECOND,),
        state,
    )
    assert notice.time.isoformat() == "2026-11-20T09:45:00+00:00"


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ([], "expected a JSON object, got list"),
        ("{", "expected a JSON object, got str"),
        (None, "expected a JSON object, got NoneType"),
        (event(id=""), "id: "),
        (event(time="yesterday"), "time: "),
        (event(time="2026-11-20T09:45:00"), "time: "),
        (event(account="me"), "account: "),
        (event(account="12345678901"), "account: "),
        (reservation(**{"instance-id": None}), "detail.instance-id: missing, and resources names"),
        (health(service="RDS"), "detail.service: "),
        (health(eventTypeCategory="issue"), "detail.eventTypeCategory: "),
        (event(detail={}), "detail.instance-id: field required"),
        (event(detail="none"), "detail: expected an object, got 'none'"),
        (event(detail={"instance-id": "i-1", "instance-action": "terminate"}), "'i-1'"),
        (
            event(detail={"instance-id": "i-0b662ef9931388ba0", "instance-action": "explode"}),
            "detail.instance-action: input should be 'terminate', 'stop' or 'hibernate'",
        ),
        (health(startTime="soon"), "detail.startTime: "),
        (health(startTime=4), "detail.startTime: "),
        (health(eventArn=""), "detail.eventArn: "),
    ],
)
def test_a_malformed_event_is_described_in_one_line(bad: Any, text: str) -> None:
    with pytest.raises(MalformedNotice) as raised:
        parse_notice(bad)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("changes", [{"source": "aws.s3"}, {"detail-type": "Object Created"}])
def test_an_event_of_another_source_or_type_is_unknown(
    changes: dict[str, str],
) -> None:
    with pytest.raises(UnknownNotice, match="expected an event that Leeway handles"):
        parse_notice(event(**changes))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(field=st.sampled_from(sorted(event())), value=json_values)
def test_any_value_in_a_field_is_parsed_or_rejected_with_one_clear_error(
    field: str, value: Any
) -> None:
    try:
        instances = parse_notice(event(**{field: value})).instances
    except (MalformedNotice, UnknownNotice):
        instances = ()
    assert instances in ((), ("i-0b662ef9931388ba0",))


@pytest.mark.parametrize(("destination", "into_pool"), [("WarmPool", True), ("EC2", False)])
def test_a_lifecycle_action_says_whether_the_instance_enters_a_warm_pool(
    destination: str, into_pool: bool
) -> None:
    body = json.loads((EVENTS / "launch-lifecycle-action.json").read_text())
    assert not parse_notice(body).into_pool
    body["detail"] |= {"Origin": "EC2", "Destination": destination}
    assert parse_notice(body).into_pool is into_pool
