"""The dry run of a retirement: how its instance would be replaced, and which pods evicted."""

from leeway.drain.deadline import Terms
from leeway.drain.observe import observe
from leeway.drain.progress import Drain
from leeway.drain.reasons import PODS_NOT_LISTED
from leeway.execution.retrying import API_ERRORS
from leeway.ports.aws import CloudRefused, CloudUnavailable, Groups
from leeway.replacement.decide import decide_replacement
from leeway.replacement.request import ReplacementResult
from leeway.retire_node.reasons import GROUP_NOT_READABLE
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext


def dry_run(
    context: StepContext, groups: Groups, record: Retirement, node: str
) -> tuple[ReplacementResult, Drain]:
    """Decide the replacement and the drain without acting; the results name what cannot be read."""
    return _would_replace(groups, record), _would_drain(context, record, node)


def _would_replace(groups: Groups, record: Retirement) -> ReplacementResult:
    try:
        group = groups.facts(record.instance)
    except (CloudUnavailable, CloudRefused) as error:
        return ReplacementResult(False, record, GROUP_NOT_READABLE(error=error))
    decision = decide_replacement(
        record.kind, record.replacement, record.facts.owner, group, leeway_retires=True
    )
    return ReplacementResult(True, record, decision.reason, decision.method)


def _would_drain(context: StepContext, record: Retirement, node: str) -> Drain:
    if not node:
        return Drain()
    try:
        pods = context.open_cluster(record.facts.cluster).pods_on(node)
    except API_ERRORS as error:
        return Drain(problem=PODS_NOT_LISTED(error=error))
    return observe(Drain(), pods, Terms(record.deadline), context.clock.now())
