"""Whether the pattern of an EventBridge rule matches the events of notices.

Leeway's own patterns and those of other handlers of notices are lists of values. A filter of
another kind (prefix, anything-but, …) counts as one that may match.
Source: EventBridge user guide, "Amazon EventBridge event patterns".
"""

from collections.abc import Mapping
from typing import Any

from leeway_cli.doctor.names import EVENTS, Event


def matches(pattern: Mapping[str, Any], event: Event) -> bool:
    """Whether a pattern matches every event of a kind that receive_notice needs."""
    if not pattern or pattern.keys() - {"source", "detail-type", "detail"}:
        return False  # a further field, such as resources, leaves some events out
    detail = pattern.get("detail") or {}
    return (
        _has(pattern.get("source"), event.source)
        and _has(pattern.get("detail-type"), event.detail_type)
        and isinstance(detail, Mapping)
        and detail.keys() <= event.detail.keys()
        and all(_has(detail[name], value) for name in detail for value in event.detail[name])
    )


def _has(allowed: Any, value: str) -> bool:
    return allowed is None or (isinstance(allowed, list) and value in allowed)


def may_match(pattern: Mapping[str, Any], event: Event) -> bool:
    """Whether a pattern matches some events of a kind."""
    return bool(pattern) and (
        _may_have(pattern.get("source"), event.source)
        and _may_have(pattern.get("detail-type"), event.detail_type)
    )


def _may_have(allowed: Any, value: str) -> bool:
    if not isinstance(allowed, list):
        return True
    return value in allowed or any(not isinstance(one, str) for one in allowed)


def could_match_a_notice(pattern: Mapping[str, Any]) -> bool:
    """Whether a pattern matches some notice."""
    return any(may_match(pattern, event) for event in EVENTS)
