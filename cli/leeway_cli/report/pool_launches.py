"""What Leeway launched for pools, and which capacity was short, from the journal of EC2."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leeway_cli.report.model import Launch, Shortage

Entry = Mapping[str, Any]

POOL_TAG = "leeway.sh/nodepool"
SPOT, ON_DEMAND = "spot", "on-demand"


def pools_of(entries: Iterable[Entry]) -> dict[str, str]:
    """Return the pool of each instance that Leeway launched."""
    return {
        launched["instance"]: _pool(entry)
        for entry in entries
        if entry["kind"] == "fleet"
        for launched in entry["launched"]
        if _pool(entry)
    }


def shortages(fleets: Sequence[Entry]) -> tuple[Shortage, ...]:
    """Return the refused offerings of pools, by fleet, error code and capacity type."""
    found = []
    for entry in fleets:
        kinds = dict.fromkeys((one["code"], one["capacity_type"]) for one in entry["refused"])
        for code, capacity_type in kinds if _pool(entry) else ():
            refused = [
                one
                for one in entry["refused"]
                if (one["code"], one["capacity_type"]) == (code, capacity_type)
            ]
            found.append(
                Shortage(
                    at=entry["at"],
                    pool=_pool(entry),
                    code=code,
                    capacity_type=capacity_type,
                    instance_types=tuple(sorted({one["instance_type"] for one in refused})),
                    zones=tuple(sorted({one["zone"] for one in refused})),
                )
            )
    return tuple(found)


def launches(
    fleets: Sequence[Entry],
    joined: Mapping[str, tuple[str, float]],
    ready: Mapping[str, float],
) -> tuple[Launch, ...]:
    """Return the instances of pools. `joined` has the node of each, `ready` the time of each node.

    An on-demand instance is a fallback if the pool was refused Spot capacity before, or in the same
    second.
    """
    short = {one.pool: one.at for one in reversed(shortages(fleets)) if one.capacity_type == SPOT}
    found = []
    for entry in fleets:
        pool, at = _pool(entry), entry["at"]
        for one in entry["launched"] if pool else ():
            node, _ = joined.get(one["instance"], (None, None))
            on_demand = one["capacity_type"] == ON_DEMAND
            found.append(
                Launch(
                    at=at,
                    instance=one["instance"],
                    pool=pool,
                    instance_type=one["instance_type"],
                    zone=one["zone"],
                    capacity_type=one["capacity_type"],
                    fallback=on_demand and pool in short and at >= short[pool],
                    node=node,
                    ready_at=ready.get(node) if node else None,
                )
            )
    return tuple(found)


def _pool(entry: Entry) -> str:
    return str(entry["tags"].get(POOL_TAG, ""))
