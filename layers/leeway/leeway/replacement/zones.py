"""In which zones a successor is asked for: one decision, in order, with a reason for each zone."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from leeway.retirement.replacement_intent import ZoneChoice
from leeway.selection.offers.unavailable import Unavailable


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a successor is for: `zone` is its predecessor's, `bound` says what keeps pods in that
    zone, by pod, and `types` are the instance types that may be launched, `sold_as` spot or
    on-demand."""

    zone: str
    types: tuple[str, ...]
    sold_as: str
    bound: Sequence[tuple[str, str]] = ()


def order_zones(
    zones: Sequence[str], wanted: Wanted, unavailable: Collection[Unavailable]
) -> tuple[ZoneChoice, ...]:
    """Order a group's zones for a successor, without those where none of its types can be had.

    Whatever ties a pod to a zone (a volume, node or pod affinity, a spread that must hold) is met
    in the zone where the pod runs: so the instance's own zone comes first, with the pods that need
    it as the reason. It also keeps the group's balance, which EC2 Auto Scaling else restores.
    """
    there = [zone for zone in zones if not _is_known_to_lack(zone, wanted, unavailable)]
    ordered = sorted(there, key=lambda zone: zone != wanted.zone)
    return tuple(ZoneChoice(zone, _why(zone, wanted)) for zone in ordered)


def _is_known_to_lack(zone: str, wanted: Wanted, unavailable: Collection[Unavailable]) -> bool:
    """Whether every type that the successor may have is known to be unavailable in a zone."""
    place = (zone, wanted.sold_as)
    lacking = {one.instance_type for one in unavailable if (one.zone, one.capacity_type) == place}
    return bool(wanted.types) and lacking.issuperset(wanted.types)


def _why(zone: str, wanted: Wanted) -> str:
    needs = "; ".join(f"{pod} needs {wanted.zone} ({need})" for pod, need in wanted.bound[:1])
    if len(wanted.bound) > 1:
        needs += f", as {len(wanted.bound) - 1} more of its pods do"
    if zone == wanted.zone:
        return needs or "the instance's own zone, which keeps its group's balance"
    other = f"another zone of its group, since {wanted.zone} has no capacity now"
    return f"{other}; {needs}" if needs else other
