"""Which pods would have a node if no offering were unavailable at present.

The plan knows the offerings that are left, and explains why none of these fits: too small, in
another zone, of another capacity type. If EC2 has no capacity, that is only a consequence.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from leeway.reasons import Reason, ReasonCode, some
from leeway.selection.offers.catalog import ANY, Catalog, Unavailable, spot_quota
from leeway.selection.packing.plan import PlannedNode
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec

OFFERINGS_REFUSED = ReasonCode(
    "OfferingsRefused",
    "EC2 has refused or interrupted, within the last three minutes, all offerings of node pool "
    "{pool} that fit the pod: {types} as {capacity_types} in {zones}. Leeway requests them again "
    "after three minutes.",
    "ec2-has-no-capacity",
)

_MOST_SHOWN = 5


def refused_offerings(
    pods: Iterable[Pod],
    pools: Sequence[NodePool],
    catalog: Catalog,
    unavailable: Iterable[Unavailable] = (),
    daemons: Sequence[PodSpec] = (),
    nodes: Iterable[ExistingNode] = (),
) -> Mapping[str, Reason]:
    """Return the reason for each of these pods that gets no new node with the offerings that are
    available, and would get one with all of them. The nodes that exist are full: they count for
    limits and spreads."""
    marked = frozenset((*catalog.unavailable, *unavailable))
    pods = list(pods)
    if not (marked and pods and pools):
        return {}
    full = [one.full() for one in nodes]
    whole = catalog.without(()) if catalog.unavailable else catalog
    samples = {id(one.spec): one for one in pods}

    def launches(some: Sequence[Pod], missing: frozenset[Unavailable]) -> Mapping[str, PlannedNode]:
        plan = pack(some, Supply(pools, whole, missing, daemons), full, proceed=lambda: False)
        return {pod: node for node in plan.launches for pod in node.pods}

    # Most pods without a node fit nowhere: then one plan is enough.
    possible = launches([*samples.values()], frozenset())
    fitting = [one for one in samples.values() if one.name in possible]
    now = launches(fitting, marked) if fitting else {}
    refused = {one.name for one in fitting} - now.keys()
    reasons = {pod: _reason(possible[pod], marked) for pod in refused}
    found = ((one.name, reasons.get(samples[id(one.spec)].name)) for one in pods)
    return {name: reason for name, reason in found if reason is not None}


def _reason(node: PlannedNode, marked: frozenset[Unavailable]) -> Reason:
    refused = list(dict.fromkeys(_refused(node, marked)))
    return OFFERINGS_REFUSED(
        pool=node.pool,
        types=some(dict.fromkeys(one.instance_type for one in refused), _MOST_SHOWN),
        capacity_types=some(dict.fromkeys(one.capacity_type for one in refused), _MOST_SHOWN),
        zones=some(dict.fromkeys(one.zone for one in refused), _MOST_SHOWN),
    )


def _refused(node: PlannedNode, marked: frozenset[Unavailable]) -> Iterator[Unavailable]:
    for choice in node.choices:
        for kind in choice.instance_types:
            for zone in choice.zones:
                if (kind, zone) in choice.unusable:
                    continue
                one = Unavailable(kind, zone, choice.capacity_type)
                types, zones = (kind, spot_quota(kind), ANY), (zone, ANY)
                if any(
                    Unavailable(t, z, choice.capacity_type) in marked for t in types for z in zones
                ):
                    yield one
