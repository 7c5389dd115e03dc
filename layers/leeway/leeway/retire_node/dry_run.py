"""What a retirement would do: how its instance would be replaced, and which pods would go."""

from leeway.drain.deadline import Terms
from leeway.drain.observe import observe
from leeway.drain.progress import Drain
from leeway.execution.retrying import API_ERRORS
from leeway.ports.aws import CloudRefused, CloudUnavailable, Groups
from leeway.replacement.decide import decide_replacement
from leeway.replacement.request import ReplacementResult
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext


def rehearsed(
    context: StepContext, groups: Groups, record: Retirement, node: str
) -> tuple[ReplacementResult, Drain]:
    """Decide everything, and act on nothing; what could not be read stands in the results."""
    return _would_replace(groups, record), _would_drain(context, record, node)


def _would_replace(groups: Groups, record: Retirement) -> ReplacementResult:
    try:
        group = groups.facts(record.instance)
    except (CloudUnavailable, CloudRefused) as error:
        return ReplacementResult(False, record, reason=str(error))
    decision = decide_replacement(
        record.kind, record.replacement, record.facts.owner, group, taken=True
    )
    return ReplacementResult(True, record, decision.method, decision.reason)


def _would_drain(context: StepContext, record: Retirement, node: str) -> Drain:
    if not node:
        return Drain()
    try:
        pods = context.open_cluster(record.facts.cluster).pods_on(node)
    except API_ERRORS as error:
        return Drain(problem=str(error))
    return observe(Drain(), pods, Terms(record.deadline), context.clock.now())
