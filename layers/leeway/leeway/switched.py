"""Who launches the nodes of a cluster that has Karpenter: the record of `leeway switch`.

Without a record Karpenter's Lease decides alone. With one, Leeway launches nothing while the record
names Karpenter, also while Karpenter is down, and begins no retirement of its nodes that can wait.
The Lease still counts when the record names Leeway.
"""

from dataclasses import dataclass
from enum import StrEnum

from leeway.reasons import Reason, ReasonCode
from leeway.table import Record, Table
from leeway.typed_json import Aware

SWITCHED_TO_KARPENTER = ReasonCode(
    "SwitchedToKarpenter",
    "Karpenter launches the nodes of cluster {cluster}, as `leeway switch` recorded at {at}. "
    "Leeway launches nothing and gives nothing back. To change that, run `leeway switch {cluster} "
    "--from karpenter`.",
    "karpenter-runs-beside-leeway",
)


class Buyer(StrEnum):
    """Who launches nodes."""

    KARPENTER = "karpenter"
    LEEWAY = "leeway"


@dataclass(frozen=True, slots=True)
class Switch:
    """Who launches the nodes of a cluster, since when, and the size that Karpenter's Deployment had
    before it was scaled to zero (0: not known)."""

    cluster: str
    version: int
    buyer: Buyer
    since: Aware
    replicas: int = 0


SWITCH = Record(Switch, "MANIFESTS#{cluster}", "SWITCH", versioned=True)


def switch_of(table: Table, cluster: str) -> Switch | None:
    """Read who launches the nodes of a cluster; None if nobody has switched it."""
    found = table.list(SWITCH, cluster=cluster)
    return found[0] if found else None


def switched_block(found: Switch | None, cluster: str) -> Reason | None:
    """Return that the record of a cluster names Karpenter; None if it does not."""
    if found is None or found.buyer is Buyer.LEEWAY:
        return None
    at = f"{found.since:%Y-%m-%d %H:%M:%S} UTC"
    return SWITCHED_TO_KARPENTER(cluster=cluster, at=at)
