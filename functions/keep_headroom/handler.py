"""keep_headroom: reconciles the headroom of every cluster once a minute."""

from typing import Any

from leeway.wiring.clients import probed
from leeway.wiring.keep_headroom import clusters, keep_headroom


@probed
def handler(event: Any, context: object) -> dict[str, Any]:
    """Reconcile the headroom of all clusters; the event has no parameters."""
    reports = keep_headroom().run(clusters())
    return {"clusters": [report.to_dict() for report in reports]}
