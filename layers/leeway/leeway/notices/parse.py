"""Parses an EventBridge event into a notice, or raises an error of one line."""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from leeway.notices import autoscaling, ec2, health, status_checks
from leeway.notices.envelope import Envelope
from leeway.notices.model import MalformedNotice, Notice, UnknownNotice

_PARSERS: dict[str, dict[str, Callable[[Envelope], Notice]]] = {
    ec2.SOURCE: ec2.PARSERS,
    autoscaling.SOURCE: autoscaling.PARSERS,
    health.SOURCE: health.PARSERS,
    status_checks.SOURCE: status_checks.PARSERS,
}


def parse_notice(event: Any) -> Notice:
    """Parse one EventBridge event.

    Raises:
        MalformedNotice: the event is not a JSON object, or a field is missing or wrong; the message
            names the field and what was expected.
        UnknownNotice: Leeway does not handle the source and detail-type of the event.
    """
    if not isinstance(event, dict):
        raise MalformedNotice(f"expected a JSON object, got {type(event).__name__}")
    try:
        envelope = Envelope.model_validate(event)
    except ValidationError as error:
        raise MalformedNotice(_first_problem(error)) from None
    parser = _PARSERS.get(envelope.source, {}).get(envelope.detail_type)
    if parser is None:
        raise UnknownNotice(
            f"source and detail-type: expected an event that Leeway handles, got "
            f"{envelope.source!r} and {envelope.detail_type!r}"
        )
    try:
        return parser(envelope)
    except ValidationError as error:
        raise MalformedNotice(_first_problem(error, below="detail")) from None


def _first_problem(error: ValidationError, below: str = "") -> str:
    """Return the first of pydantic's errors as `field: what was expected`, and count the others."""
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    path = ".".join(str(part) for part in ((below, *first["loc"]) if below else first["loc"]))
    given = first.get("input")
    got = "" if first["type"] == "missing" else f", got {str(given)[:80]!r}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{path}: {first['msg'].lower()}{got}{more}"
