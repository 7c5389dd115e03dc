"""Puts a clock right by the dates of AWS's answers: it is by AWS's time that instances end."""

import threading
from collections.abc import Mapping
from typing import Any

from leeway.clock import CorrectedClock


def follow_dates(events: Any, clock: CorrectedClock) -> None:
    """Have a clock follow the answers that any client of a session gets; `events` are botocore's
    of that session, before its clients are made.

    Source: the guide to botocore's events; a request and its answer are told of in one thread.
    """
    sent = threading.local()

    def sending(**_: Any) -> None:
        sent.at = clock.own.now()

    def answered(response_dict: Mapping[str, Any] | None, **_: Any) -> None:
        date = (response_dict or {}).get("headers", {}).get("date")
        if date and (began := getattr(sent, "at", None)):
            clock.offset.observe(date, began, clock.own.now())

    events.register("before-send", sending)
    events.register("response-received", answered)
