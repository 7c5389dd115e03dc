"""reconcile: every minute, what events did not tell; at once, what an ended instance leaves."""

from dataclasses import asdict
from typing import Any

from leeway.reconciliation.reconcile import parse_round
from leeway.wiring.reconcile import reconciliation, telemetry


def handler(event: Any, context: object) -> dict[str, Any]:
    """Reconcile every cluster, or clean up after one instance."""
    wanted = parse_round(event)
    reports = reconciliation().run(wanted)
    telemetry().reconciled(reports, of_all=not wanted.instance)
    return {"clusters": [asdict(report) for report in reports]}
