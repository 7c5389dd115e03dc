"""Leeway's own events on EventBridge's default bus, by boto3."""

from collections.abc import Callable
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.ports.aws import CloudUnavailable

SOURCE = "leeway"


class EventBridgeLeewayEvents:
    """The Announcements Protocol; `client` makes boto3's EventBridge client when first asked."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def publish(self, detail_type: str, detail: str) -> None:
        """Put one event; an entry that EventBridge did not take is CloudUnavailable."""
        with aws_errors():
            answer = self._client().put_events(
                Entries=[{"Source": SOURCE, "DetailType": detail_type, "Detail": detail}]
            )
        if answer.get("FailedEntryCount"):
            raise CloudUnavailable(str(answer["Entries"][0].get("ErrorMessage")))
