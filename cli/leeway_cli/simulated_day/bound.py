"""The covering bound of the pods of each minute."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod, PodSpec

from leeway_cli.simulated_day.covering_bound import covering_bound
from leeway_cli.simulated_day.offers import catalog, pools


def bound_of(pods: Iterable[PodSpec], seed: int, hour: int) -> float:
    """Return the least USD per hour that any nodes for these pods cost, at the prices of an hour.

    No pod can use both pools, so the bounds of the pools add up.
    """
    steady: Counter[PodSpec] = Counter()
    general: Counter[PodSpec] = Counter()
    for spec in pods:
        (steady if spec.tolerations else general)[spec] += 1
    return sum(
        _bound(frozenset(counts.items()), seed, hour, number)
        for number, counts in enumerate((general, steady))
    )


@cache
def _bound(counts: frozenset[tuple[PodSpec, int]], seed: int, hour: int, pool: int) -> float:
    pods = [Pod(str(number), spec) for spec, many in counts for number in range(many)]
    return covering_bound(pods, _supply(seed, hour, pool)) if pods else 0.0


@cache
def _supply(seed: int, hour: int, pool: int) -> Supply:
    return Supply([pools()[pool]], catalog(seed, hour))
