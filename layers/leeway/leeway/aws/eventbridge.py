"""Leeway's own events on EventBridge's default bus, by boto3."""

from collections.abc import Callable
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.ports.aws import CloudUnavailable

SOURCE = "leeway"


class EventBridgeLeewayEvents:
    """The LeewayEvents Protocol; `client` returns boto3's EventBridge client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def publish(self, detail_type: str, detail: str) -> None:
        """Put one event. An entry that EventBridge rejects raises CloudUnavailable."""
        with aws_errors():
            answer = self._client().put_events(
                Entries=[{"Source": SOURCE, "DetailType": detail_type, "Detail": detail}]
            )
        if answer.get("FailedEntryCount"):
            entry = answer["Entries"][0]
            raise CloudUnavailable(
                f"PutEvents: {entry.get('ErrorCode')}: {entry.get('ErrorMessage')}"
            )
