"""reconcile: every minute, what events did not tell; at once, what an ended instance leaves."""

from dataclasses import asdict
from typing import Any

from leeway.reconciliation.reconcile import parse_round
from leeway.wiring.clients import telemetry
from leeway.wiring.reconcile import reconciliation


def handler(event: Any, context: object) -> dict[str, Any]:
    """Reconcile every cluster, or clean up after one instance."""
    reports = reconciliation().run(parse_round(event))
    telemetry().reconciled(reports)
    return {"clusters": [asdict(report) for report in reports]}
