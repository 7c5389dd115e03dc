"""The decision in which zones a successor is launched: in order, with a reason for each."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from leeway.reasons import Reason
from leeway.replacement.reasons import OTHER_ZONE, SAME_ZONE, SAME_ZONE_FOR_PODS
from leeway.retirement.replacement_intent import ZoneChoice
from leeway.selection.offers.catalog import Unavailable


@dataclass(frozen=True, slots=True)
class SuccessorNeeds:
    """What a successor needs: `zone` is the zone of the retiring instance, `types` are the instance
    types that may be launched, `capacity_type` is spot or on-demand. `bound` are the pods that can
    only run in the zone, each with the cause."""

    zone: str
    types: tuple[str, ...]
    capacity_type: str
    bound: Sequence[tuple[str, str]] = ()


def order_zones(
    zones: Sequence[str], needs: SuccessorNeeds, unavailable: Collection[Unavailable]
) -> tuple[ZoneChoice, ...]:
    """Order a group's zones for a successor, without the zones in which all types are unavailable.

    Every constraint that binds a pod to a zone (a volume, node or pod affinity, a topology spread)
    is satisfied in the zone where the pod runs. So the instance's own zone comes first. It also
    keeps the balance of the group, which EC2 Auto Scaling would otherwise restore.
    """
    available = [zone for zone in zones if not _lacks_capacity(zone, needs, unavailable)]
    ordered = sorted(available, key=lambda zone: zone != needs.zone)
    return tuple(ZoneChoice(zone, _why(zone, needs)) for zone in ordered)


def _lacks_capacity(zone: str, needs: SuccessorNeeds, unavailable: Collection[Unavailable]) -> bool:
    """Whether every type that the successor may have is known to be unavailable in a zone."""
    place = (zone, needs.capacity_type)
    lacking = {one.instance_type for one in unavailable if (one.zone, one.capacity_type) == place}
    return bool(needs.types) and lacking.issuperset(needs.types)


def _why(zone: str, needs: SuccessorNeeds) -> Reason:
    others = len(needs.bound) - 1
    if zone == needs.zone:
        if not needs.bound:
            return SAME_ZONE()
        pod, need = needs.bound[0]
        more = f", and {others} more of its pods need it" if others else ""
        return SAME_ZONE_FOR_PODS(pod=pod, need=need, more=more)
    if not needs.bound:
        return OTHER_ZONE(zone=needs.zone, pods="")
    pod, need = needs.bound[0]
    more = f" and {others} more" if others else ""
    return OTHER_ZONE(zone=needs.zone, pods=f"; pod {pod}{more} needs {needs.zone} ({need})")
