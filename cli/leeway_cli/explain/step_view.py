"""Renders the steps that give nodes back."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leeway.provisioning.node_details import FOREVER

from leeway_cli.explain.money import price_as_data
from leeway_cli.selection.select import launch_as_data

if TYPE_CHECKING:
    from leeway.disruption.follow import Step


def step_as_data(step: "Step") -> dict[str, Any]:
    """Render a step as JSON."""
    returned = step.returned
    return {
        "nodes": list(returned.nodes),
        "cause": returned.cause.value,
        "reason": asdict(returned.reason),
        **price_as_data(step.saving, "saving"),
        "podsMoved": returned.moves,
        "replacementFirst": returned.replaced,
        "launches": [launch_as_data(new) for new in step.launches],
        "allowedNow": step.allowed,
        "at": iso(step.at),
    }


def iso(moment: datetime | None) -> str | None:
    """Render a time for JSON; `never` for one that never comes."""
    if moment is None:
        return None
    return "never" if moment >= FOREVER else moment.isoformat(timespec="seconds")


def utc(moment: datetime) -> str:
    """Render a time for a terminal."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def some(names: Sequence[str], most: int = 3) -> str:
    """Render names; the ones after the first are counted."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
