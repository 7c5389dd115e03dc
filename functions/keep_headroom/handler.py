"""keep_headroom: every minute, every cluster has the headroom that it should have."""

from typing import Any

from leeway.wiring.keep_headroom import clusters, keep_headroom


def handler(event: Any, context: object) -> dict[str, Any]:
    """Look after all clusters; the event says nothing but that a minute has passed."""
    report = keep_headroom().tick(clusters())
    return {"clusters": [one.to_dict() for one in report]}
