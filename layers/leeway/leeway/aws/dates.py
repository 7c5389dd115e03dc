"""Sets the clock by the Date headers of AWS's answers: instances end by AWS's time."""

import threading
from collections.abc import Mapping
from typing import Any

from leeway.clock import CorrectedClock


def follow_dates(events: Any, clock: CorrectedClock) -> None:
    """Adjust a clock by every answer that a client of a session receives. `events` is the event
    system of the session; call this before the session builds clients.

    Source: botocore's guide to events. botocore emits the events of a request and of its answer in
    the same thread.
    """
    sent = threading.local()

    def before_send(**_: Any) -> None:
        sent.at = clock.own.now()

    def response_received(response_dict: Mapping[str, Any] | None, **_: Any) -> None:
        date = (response_dict or {}).get("headers", {}).get("date")
        if date and (sent_at := getattr(sent, "at", None)):
            clock.offset.observe(date, sent_at, clock.own.now())

    events.register("before-send", before_send)
    events.register("response-received", response_received)
