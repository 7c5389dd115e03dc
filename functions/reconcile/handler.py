"""reconcile: finds lost events every minute, and cleans up after one terminated instance."""

from dataclasses import asdict
from typing import Any

from leeway.reconciliation.reconcile import parse_round
from leeway.wiring.reconcile import reconciliation, telemetry


def handler(event: Any, context: object) -> dict[str, Any]:
    """Reconcile all clusters, or clean up after the instance that the event names."""
    requested = parse_round(event)
    reports = reconciliation().run(requested)
    telemetry().reconciled(reports, of_all=not requested.instance)
    return {"clusters": [asdict(report) for report in reports]}
