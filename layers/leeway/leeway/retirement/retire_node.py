"""One attempt of an instance's retirement, step by step."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from leeway.execution.attempt import AttemptId
from leeway.reasons import Reason
from leeway.retirement.context import Attempt
from leeway.retirement.cordon import (
    CordonResult,
    Course,
    decide_and_cordon,
    find_late_node,
    never_joined,
    retry_cordon,
    uncordon,
    wait_for_budget,
    wait_for_node,
)
from leeway.retirement.drain import DrainCheckpoint, DrainPassResult, drain_pass
from leeway.retirement.finish import (
    FinishResult,
    RetirementProgress,
    close_called_off,
    finish,
    finish_early,
    report,
)
from leeway.retirement.hooks import HookAnswers
from leeway.retirement.outcome import Outcome
from leeway.retirement.progress import Drain
from leeway.retirement.reasons import NODE_KEPT, REPLACEMENT_DECIDED
from leeway.retirement.record import Retirement
from leeway.retirement.replace import (
    ReplacementResult,
    request_replacement,
    wait_for_answer,
    wait_for_successor,
)
from leeway.retirement.targets import TargetsResult, wait_for_targets

STEP_RESULTS = (
    Retirement,
    AttemptId,
    CordonResult,
    ReplacementResult,
    DrainCheckpoint,
    TargetsResult,
    FinishResult,
    Outcome,
    HookAnswers,
)
"""The types that the durable engine stores between the steps."""


def retire_node(attempt: Attempt) -> Outcome | None:
    """Run one attempt of a retirement; None if a newer attempt has superseded it.

    Every step may run again from its start: it reads the present state first, and does only
    what is missing. Code between the steps reads neither a clock nor a port.
    """
    cordon = partial(decide_and_cordon, attempt)
    cordoned = wait_for_budget(attempt, attempt.steps.run("cordon", CordonResult, cordon))
    if cordoned.record is None:
        return None
    if cordoned.course is not Course.RETIRE:
        return _end(attempt, cordoned, partial(finish_early, attempt, cordoned.record, cordoned))
    first = cordoned
    cordoned = wait_for_node(attempt, cordoned)
    record, node = cordoned.record, cordoned.known_node
    if record is None:
        return None
    if never_joined(cordoned):
        nothing = ReplacementResult(
            True,
            record,
            REPLACEMENT_DECIDED("The instance has no node, so no replacement is requested."),
        )
        progress = RetirementProgress(cordoned, nothing)
        return _end(attempt, first, partial(finish, attempt, record, progress))
    request = partial(request_replacement, attempt, record, node)
    replacement = attempt.steps.run("request-replacement", ReplacementResult, request)
    replacement = wait_for_successor(attempt, record, node, replacement)
    if replacement.record is not None and (replacement.called_off or replacement.pause):
        return _end_undrained(attempt, first, cordoned, replacement, replacement.record)
    cordoned = find_late_node(attempt, cordoned, replacement.record, replacement.settled)
    drained = DrainPassResult(Drain(), replacement.record, held=replacement.held)
    progress = RetirementProgress(cordoned, replacement)
    number = 0
    # Retry what failed until all steps are complete or the deadline has passed.
    while drained.record is not None and not (drained.expired or drained.kept or progress.over):
        number += 1
        if not cordoned.settled:
            cordon = partial(retry_cordon, attempt, drained.record)
            cordoned = attempt.steps.run(f"retry-cordon-{number}", CordonResult, cordon)
        if not replacement.settled:
            request = partial(request_replacement, attempt, drained.record, cordoned.known_node)
            name = f"retry-replacement-{number}"
            replacement = attempt.steps.run(name, ReplacementResult, request)
        failures = 0 if cordoned.settled and replacement.settled else number
        pods = partial(drain_pass, attempt, cordoned, drained, failures)
        checkpoint = attempt.steps.run(f"drain-{number}", DrainCheckpoint, pods)
        drained = checkpoint.restore(drained.drain)
        if drained.pause:
            attempt.steps.wait(f"wait-for-pods-{number}", drained.pause)
        progress = RetirementProgress(cordoned, replacement, drained.drain)
    if drained.record is None:
        return None
    returns = drained.record.returns
    stays = returns is not None and returns.optional and not drained.record.follows_template
    if stays and cordoned.node and not progress.drained:
        why = f"Node {cordoned.node} is not drained in the time that its pool allows."
        return _call_off(attempt, first, progress, _why_kept(why, drained))
    progress = wait_for_targets(attempt, drained, progress)
    wait_for_answer(attempt, drained.record, replacement)
    return _end(attempt, first, partial(finish, attempt, drained.record, progress))


def _why_kept(late: str, drained: DrainPassResult) -> Reason:
    """Return why a node that may as well stay is kept: its time is over, or a surge has failed."""
    failed = (one.reason for one in drained.surges if one.over and one.reason is not None)
    return NODE_KEPT(" ".join(map(str, failed)) if drained.kept else late)


def _end(
    attempt: Attempt, cordoned: CordonResult, finish: Callable[[], FinishResult]
) -> Outcome | None:
    """Run the last step, and report the outcome with the first cordon."""
    finished = attempt.steps.run("finish", FinishResult, finish)
    report(attempt, cordoned, finished)
    return finished.outcome


def _end_undrained(
    attempt: Attempt,
    first: CordonResult,
    cordoned: CordonResult,
    replacement: ReplacementResult,
    record: Retirement,
) -> Outcome | None:
    """End a retirement whose node stays until its successor takes pods: it is called off, or Leeway
    cannot read the successor, and the next attempt waits for it again."""
    if replacement.called_off is not None:
        progress = RetirementProgress(cordoned, replacement)
        return _call_off(attempt, first, progress, replacement.called_off)
    progress = RetirementProgress(cordoned, replacement, Drain(problem=replacement.reason))
    return _end(attempt, first, partial(finish, attempt, record, progress))


def _call_off(
    attempt: Attempt, first: CordonResult, progress: RetirementProgress, reason: Reason
) -> Outcome | None:
    """Uncordon a node that may as well stay, and end its retirement."""
    work = partial(uncordon, attempt, progress.cordoned, reason)
    cordoned = attempt.steps.run("call-off", CordonResult, work)
    if cordoned.record is None:
        return None
    progress = replace(progress, cordoned=cordoned)
    return _end(attempt, first, partial(close_called_off, attempt, cordoned.record, progress))
