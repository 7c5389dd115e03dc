"""The rules of the expanded template match the right files of events/."""

import json
from pathlib import Path
from typing import Any

import pytest
from leeway.notices import NoticeKind
from leeway.notices.parse import parse_notice
from leeway_sandbox.template import RuleResource
from moto.events.models import EventPattern

from tests.template.translation import deployed

ROOT = Path(__file__).parents[2]
EVENTS = ROOT / "events"
OWNER = "ReceiveNoticeFunction"

RULE_OF = {
    "capacity-block-expiration": "Warnings",
    "capacity-block-interruption": "Warnings",
    "capacity-reservation-interruption": "Warnings",
    "launch-lifecycle-action": "LifecycleAction",
    "lifecycle-test-notification": "LifecycleAction",
    "rebalance-recommendation": "Warnings",
    "scheduled-change": "ScheduledChange",
    "scheduled-change-cancelled": "ScheduledChange",
    "spot-interruption": "Warnings",
    "spot-interruption-hibernate": "Warnings",
    "spot-interruption-stop": "Warnings",
    "state-change-running": "StateChange",
    "state-change-shutting-down": "StateChange",
    "state-change-stopped": "StateChange",
    "state-change-stopping": "StateChange",
    "state-change-terminated": "StateChange",
    "terminate-lifecycle-action": "LifecycleAction",
}
NO_EVENT = {
    "admit-node",
    "instance-status-impaired",
    "keep-headroom",
    "node-unhealthy",
    "provision-nodes",
    "reconcile",
    "reconcile-instance",
    "refresh-catalog",
    "retire-node",
    "watch-pods",
}

NEAR_MISSES: dict[str, tuple[str, dict[str, Any]]] = {
    "a state that asks for nothing": ("state-change-running", {"detail": {"state": "pending"}}),
    "somebody's own event of that type": ("spot-interruption", {"source": "com.example"}),
    "another type of that source": (
        "spot-interruption",
        {"detail-type": "EC2 Spot Instance Request Fulfillment"},
    ),
    "Leeway's own event": ("spot-interruption", {"source": "leeway"}),
    "a launch that has succeeded": (
        "launch-lifecycle-action",
        {"detail-type": "EC2 Instance Launch Successful"},
    ),
    "health of another service": ("scheduled-change", {"detail": {"service": "RDS"}}),
    "an issue, not a change": ("scheduled-change", {"detail": {"eventTypeCategory": "issue"}}),
    "an abuse report": ("scheduled-change", {"detail-type": "AWS Health Abuse Event"}),
}


@pytest.fixture(scope="module")
def rules() -> tuple[RuleResource, ...]:
    return deployed().rules


def event_of(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return event


def matching_rules(rules: tuple[RuleResource, ...], event: Any) -> list[str]:
    return [
        rule.logical_id.removeprefix(OWNER)
        for rule in rules
        if EventPattern(None, dict(rule.pattern or {})).matches_event(event)
    ]


def test_a_reservations_warning_matches_with_either_of_its_names(
    rules: tuple[RuleResource, ...],
) -> None:
    name = "EC2 Interruptible Capacity Reservation Instance Interruption Warning"
    event = event_of("capacity-reservation-interruption") | {"detail-type": name}
    assert matching_rules(rules, event) == ["Warnings"]
    assert parse_notice(event).kind is NoticeKind.CAPACITY_RESERVATION


def test_every_file_of_events_is_in_the_table() -> None:
    assert {path.stem for path in EVENTS.glob("*.json")} == RULE_OF.keys() | NO_EVENT


@pytest.mark.parametrize("name", RULE_OF)
def test_an_event_matches_exactly_its_rule(rules: tuple[RuleResource, ...], name: str) -> None:
    assert matching_rules(rules, event_of(name)) == [RULE_OF[name]]


def test_every_rule_has_an_event_that_it_matches(rules: tuple[RuleResource, ...]) -> None:
    assert {rule.logical_id.removeprefix(OWNER) for rule in rules} == set(RULE_OF.values())


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_a_similar_event_matches_no_rule(rules: tuple[RuleResource, ...], case: str) -> None:
    name, changes = NEAR_MISSES[case]
    event = event_of(name)
    detail = {**event["detail"], **changes.get("detail", {})}
    assert matching_rules(rules, {**event, **changes, "detail": detail}) == []


VARIANTS: dict[str, dict[str, Any]] = {
    "another page of the same event": {"page": "2", "totalPages": "3"},
    "a public event, which names no account": {"eventScopeCode": "PUBLIC"},
    "an event of a member account, by the organisation's view": {"affectedAccount": "210987654321"},
    "an event that a backup region receives": {"eventRegion": "eu-central-1"},
    "an event that is over": {"statusCode": "closed"},
}


@pytest.mark.parametrize("case", VARIANTS)
def test_a_health_event_matches_in_every_form(rules: tuple[RuleResource, ...], case: str) -> None:
    event = event_of("scheduled-change")
    varied = {**event, "detail": {**event["detail"], **VARIANTS[case]}, "resources": []}
    assert matching_rules(rules, varied) == ["ScheduledChange"]
    assert len(parse_notice(varied).instances) == 3


def test_events_have_unique_ids() -> None:
    ids = [event_of(name)["id"] for name in RULE_OF]
    assert len(set(ids)) == len(ids)
