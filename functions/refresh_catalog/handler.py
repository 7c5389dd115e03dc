"""refresh_catalog: reads the types, offerings and prices of the region every six hours."""

from typing import Any

from leeway.wiring.clients import probed
from leeway.wiring.refresh_catalog import refresh_catalog


@probed
def handler(event: Any, context: object) -> dict[str, Any]:
    """Refresh the catalog of the function's own region; the event has no parameters."""
    return refresh_catalog().to_dict()
