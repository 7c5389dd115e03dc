"""From an EventBridge event to a notice, or to one line that says what is wrong with it."""

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
        MalformedNotice: it is no JSON object, or a field is missing or wrong; the message
            names the field and what was expected.
        UnknownNotice: no parser for its source and detail-type.
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
            f"no notice has source {envelope.source!r} and detail-type {envelope.detail_type!r}"
        )
    try:
        return parser(envelope)
    except ValidationError as error:
        raise MalformedNotice(_first_problem(error, below="detail")) from None


def _first_problem(error: ValidationError, below: str = "") -> str:
    """Render the first of pydantic's findings as `field: what was expected`, and count the rest."""
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    path = ".".join(str(part) for part in ((below, *first["loc"]) if below else first["loc"]))
    given = first.get("input")
    got = "" if first["type"] == "missing" else f", got {str(given)[:80]!r}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{path}: {first['msg'].lower()}{got}{more}"
