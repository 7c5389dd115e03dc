"""How many instances a cluster may still launch: the brake against faults that cost money."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from leeway.launch.intent import LaunchIntent

WINDOW = timedelta(minutes=10)
"""The period in which launches are counted."""


def remaining_launches(intents: Iterable[LaunchIntent], most: int, now: datetime) -> int:
    """Return how many instances may be launched at the time `now`. A request without an answer
    counts with all of its instances."""
    recent = (one for one in intents if now - one.created_at < WINDOW)
    counted = sum(
        len(one.instances) if one.request is None else one.request.count for one in recent
    )
    return max(0, most - counted)
