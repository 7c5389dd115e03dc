"""Events as EventBridge delivers them: the folder events/, and events that tests create."""

from pathlib import Path
from typing import Any

from leeway.notices.parse import EventOrigin

EVENTS = Path(__file__).parents[2] / "events"

HERE = EventOrigin("123456789012", "eu-west-1")
"""The account and region of the events of tests."""


def event(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "version": "0",
        "id": "1e5527d7-bb36-4607-3370-4164db56a40e",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "123456789012",
        "time": "2026-11-20T09:45:00Z",
        "region": "eu-west-1",
        "resources": ["arn:aws:ec2:eu-west-1b:instance/i-0b662ef9931388ba0"],
        "detail": {"instance-id": "i-0b662ef9931388ba0", "instance-action": "terminate"},
    }
    return body | changes


def health(**changes: Any) -> dict[str, Any]:
    detail = {
        "eventArn": "arn:aws:health:eu-west-1::event/EC2/RETIREMENT/RETIREMENT_1",
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "startTime": "Fri, 04 Dec 2026 02:00:00 GMT",
        "affectedEntities": [{"entityValue": "i-0b662ef9931388ba0"}, {"entityValue": "i-0abc1234"}],
    }
    kind = {"source": "aws.health", "detail-type": "AWS Health Event", "resources": []}
    return event(**kind, detail=detail | changes)
