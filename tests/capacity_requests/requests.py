"""Capacity requests for tests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.capacity_requests import CapacityRequest

REQUESTED = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def capacity_request(instance: str, cluster: str = "prod", **changes: Any) -> CapacityRequest:
    """Return a request that is open for a minute."""
    fields: dict[str, Any] = {
        "cluster": cluster,
        "instance": instance,
        "node": "node-1",
        "instance_type": "m5.large",
        "zone": "us-east-1a",
        "capacity_type": "spot",
        "attempt": 1,
        "requested_at": REQUESTED,
        "ends_at": REQUESTED + timedelta(minutes=1),
    }
    return CapacityRequest(**fields | changes)
