"""What a retirement would do: how its instance would be replaced, and which pods would go."""

from leeway.cloud.ports import CloudRefused, CloudUnavailable
from leeway.drain.deadline import Terms
from leeway.drain.observing import observe
from leeway.drain.progress import Drain
from leeway.records.retirement import Retirement
from leeway.replacement import decide_replacement
from leeway.retirement.results import Replaced
from leeway.retirement.surroundings import TROUBLE, Surroundings


def rehearsed(world: Surroundings, record: Retirement, node: str) -> tuple[Replaced, Drain]:
    """Decide everything, and act on nothing; what could not be read stands in the results."""
    return _would_replace(world, record), _would_drain(world, record, node)


def _would_replace(world: Surroundings, record: Retirement) -> Replaced:
    try:
        group = world.groups.facts(record.instance)
    except (CloudUnavailable, CloudRefused) as error:
        return Replaced(False, record, reason=str(error))
    decision = decide_replacement(
        record.kind, record.replacement, record.facts.owner, group, taken=True
    )
    return Replaced(True, record, decision.method, decision.reason)


def _would_drain(world: Surroundings, record: Retirement, node: str) -> Drain:
    if not node:
        return Drain()
    try:
        pods = world.cluster_named(record.facts.cluster).pods_on(node)
    except TROUBLE as error:
        return Drain(problem=str(error))
    return observe(Drain(), pods, Terms(record.deadline), world.clock.now())
