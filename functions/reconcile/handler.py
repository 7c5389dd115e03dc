"""reconcile: finds lost events once a minute, and cleans up after terminated instances."""

from dataclasses import asdict
from typing import Any

from leeway.reconciliation.reconcile import parse_request
from leeway.wiring.clients import probed
from leeway.wiring.reconcile import reconciliation, telemetry


@probed
def handler(event: Any, context: object) -> dict[str, Any]:
    """Reconcile every cluster, or clean up after one instance."""
    request = parse_request(event)
    reports = reconciliation().run(request)
    telemetry().reconciled(reports, all_clusters=not request.instance)
    return {"clusters": [asdict(report) for report in reports]}
