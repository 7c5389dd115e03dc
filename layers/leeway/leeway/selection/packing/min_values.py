"""Counts the label values that the minValues of a node pool require among offerings."""

from collections.abc import Mapping

from leeway.reasons import Reason
from leeway.selection.labels import CAPACITY_TYPE, ZONE, ZONE_ID, short
from leeway.selection.packing.plan import NO_NODE_POOL_MATCHES
from leeway.selection.packing.supply import Candidate, Supply
from leeway.selection.solver.problem import Ints


def value(candidate: Candidate, key: str) -> str:
    """The value of a label on the nodes of a candidate; empty without the label."""
    if key == ZONE:
        return candidate.offering.zone
    if key == ZONE_ID:
        return candidate.offering.zone_id
    if key == CAPACITY_TYPE:
        return candidate.offering.capacity_type
    return candidate.type.labels.get(key, "")


def enough(supply: Supply, offerings: Ints) -> int | None:
    """Return how many of these offerings of one pool, from the first on, meet its minValues; None
    if all of them do not."""
    wanted = _wanted(supply, offerings)
    found: dict[str, set[str]] = {key: set() for key in wanted}
    for count, offering in enumerate(offerings.tolist()):
        if not found:
            return count
        for key, values in [*found.items()]:
            values.add(value(supply.candidates[offering], key))
            if len(values - {""}) >= wanted[key]:
                del found[key]
    return None if found else len(offerings)


def unmet_min_values(supply: Supply, offerings: Ints) -> str | None:
    """Return which minValues of the pool these offerings do not meet; None if they meet all."""
    if enough(supply, offerings) is not None:
        return None
    for key, least in _wanted(supply, offerings).items():
        values = {value(supply.candidates[offering], key) for offering in offerings.tolist()}
        available = len(values - {""})
        if available < least:
            return f"minValues {least} of {short(key)}, and only {available} match"
    return None


def too_few_types(unmet: Mapping[str, str]) -> Reason:
    """Return why a pod has no node, given which minValues are not met, by pool."""
    pools = " and ".join(f"node pool {pool} requires {which}" for pool, which in unmet.items())
    return NO_NODE_POOL_MATCHES(why=f"Too few instance types have room for the pod: {pools}")


def _wanted(supply: Supply, offerings: Ints) -> dict[str, int]:
    requirements = supply.candidates[offerings[0]].pool.requirements
    return {key: one.min_values for key, one in requirements.items() if one.min_values}
