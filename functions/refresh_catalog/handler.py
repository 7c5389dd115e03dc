"""refresh_catalog: every six hours, what the region offers and what it costs is read anew."""

from typing import Any

from leeway.wiring.refresh_catalog import refresh_catalog, region


def handler(event: Any, context: object) -> dict[str, Any]:
    """Survey the function's own region; the event says nothing but that it is time."""
    return refresh_catalog().refresh(region()).to_dict()
