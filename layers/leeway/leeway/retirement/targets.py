"""The durable step of a retirement that waits until load balancers have drained the instance.

The node's label `node.kubernetes.io/exclude-from-external-load-balancers`, which the drain sets,
makes the AWS Load Balancer Controller and the cloud provider deregister it. Leeway deregisters
nothing: a controller would register the node again. It waits for what they have begun. If EC2 ends
the instance within minutes, it says what of the deregistration is cut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from leeway.execution.shared_cache import FRESH_FOR
from leeway.policy.rules import SAFETY_MARGIN, SPOT_WARNING
from leeway.ports.aws import CloudRefused, CloudUnavailable, Target, TargetGroup
from leeway.reasons import Reason, counted
from leeway.retirement.context import Attempt, publish_problem
from leeway.retirement.cordon import CordonResult
from leeway.retirement.drain import DrainPassResult
from leeway.retirement.finish import RetirementProgress
from leeway.retirement.hooks import HeldHook, earliest_deadline, with_new_hooks
from leeway.retirement.reasons import (
    TARGETS_CUT,
    TARGETS_DRAIN,
    TARGETS_LEFT,
    TARGETS_NOT_READ,
)
from leeway.retirement.record import Retirement

LOOK_EVERY = timedelta(seconds=15)
"""The pause between two looks at the targets."""

DEREGISTERED_WITHIN = timedelta(minutes=2)
"""How long Leeway waits for a controller to deregister a target that is still registered."""

LONGEST_DELAY = timedelta(hours=1)
"""The longest deregistration delay. Source: Elastic Load Balancing API reference,
TargetGroupAttribute, `deregistration_delay.timeout_seconds`."""

READ_FOR = timedelta(seconds=5)
"""How long the retirement of an instance that EC2 ends reads target groups. It ends then."""

OVER = "unused"
"""The state of a target to which a load balancer sends nothing."""


@dataclass(frozen=True, slots=True)
class TargetsDecision:
    """Whether the instance may end now, as far as load balancers are concerned, and why. There is
    no reason if they have no target of it."""

    wait: bool
    reason: Reason | None = None


def decide_targets(
    targets: Sequence[Target], since: datetime, now: datetime, deadline: datetime | None
) -> TargetsDecision:
    """Decide whether to wait for the targets of an instance. `since` is when the wait began."""
    left = [target for target in targets if target.state != OVER]
    if not left:
        return TargetsDecision(False)
    facts = {
        "targets": len(left),
        "groups": ", ".join(sorted({name_of(one.group) for one in left})),
    }
    if deadline is not None and now + LOOK_EVERY >= deadline:
        return TargetsDecision(False, TARGETS_LEFT(why="the deadline is here", **facts))
    if now - since >= LONGEST_DELAY + DEREGISTERED_WITHIN:
        why = "they drain for longer than the longest deregistration delay"
        return TargetsDecision(False, TARGETS_LEFT(why=why, **facts))
    draining = [target for target in left if target.state == "draining"]
    if not draining and now - since >= DEREGISTERED_WITHIN:
        return TargetsDecision(False, TARGETS_LEFT(why="nothing deregisters them", **facts))
    return TargetsDecision(True, TARGETS_DRAIN(**facts))


def decide_cut(
    groups: Mapping[str, TargetGroup], instance: str, since: datetime, now: datetime, end: datetime
) -> Reason | None:
    """Return how much of its deregistration an instance lacks that EC2 ends at `end`, at least;
    None if nothing is known to be cut. Nothing deregistered it before `since`. `groups` are target
    groups by their ARNs, as they were within FRESH_FOR."""
    cut = []
    for arn, group in sorted(groups.items()):
        states = [one for one in group.states.get(instance, ()) if one != OVER]
        if not states:
            continue
        drains = all(one == "draining" for one in states)
        began = since if drains else max(since, now - FRESH_FOR)
        has = max(end - began, timedelta(0))
        lacks = group.delay - int(has.total_seconds())
        if lacks > 0:
            why = "" if drains else ", and nothing has deregistered it yet"
            cut.append(
                f"target group {name_of(arn)} lacks at least {lacks} s of its deregistration delay "
                f"of {group.delay} s{why}"
            )
    return TARGETS_CUT(groups="; ".join(cut)) if cut else None


def name_of(group: str) -> str:
    """Return the name of a target group by its ARN, `...:targetgroup/NAME/ID`."""
    return group.split("/")[-2] if "/" in group else group


@dataclass(frozen=True, slots=True)
class TargetsResult:
    """What one look showed. `since` is the time of the first look, `read_at` that of the last one
    that Elastic Load Balancing answered, `groups` the target groups that the first look found. It
    does not go on if a newer attempt has superseded this one."""

    since: datetime
    groups: tuple[str, ...]
    wait: bool
    reason: Reason | None = None
    held: tuple[HeldHook, ...] = ()
    read_at: datetime | None = None


def wait_for_targets(
    attempt: Attempt, drained: DrainPassResult, progress: RetirementProgress
) -> RetirementProgress:
    """Wait until load balancers have drained the instance of a drained node that has time to spare.
    Return the progress with why the instance ends before that, if it does."""
    record, node = drained.record, progress.cordoned.node
    if not drained.asks_for_targets or record is None:
        return progress
    result, number = None, 0
    if record.ec2_terminates:
        see = partial(_see_cut, attempt, record, progress.cordoned)
        result = attempt.steps.run("targets-cut", TargetsResult, see)
    while result is None or result.wait:
        if result is not None:
            number += 1
            attempt.steps.wait(f"wait-for-targets-{number}", int(LOOK_EVERY.total_seconds()))
        held = result.held if result else drained.held
        look = partial(_look, attempt, held, result, node)
        result = attempt.steps.run(f"targets-{number}", TargetsResult, look)
    if result.reason is None:
        return progress
    before = progress.drain.load_balancers
    told = result.reason.and_then(before.message) if before else result.reason
    return replace(progress, drain=replace(progress.drain, load_balancers=told))


def _see_cut(attempt: Attempt, record: Retirement, cordoned: CordonResult) -> TargetsResult:
    """Say what EC2 cuts of a deregistration. Instances are interrupted by the hundred, so all
    functions share what one of them has read."""
    now, read = attempt.now(), attempt.ports.targets
    since = record.drain_began_at or cordoned.cordoned_at or record.noticed_at
    groups: dict[str, TargetGroup] = {}
    reason = None
    try:
        get = attempt.ports.cache.get_or_read
        for arn in get("target-groups", tuple[str, ...], lambda: tuple(read.groups())):
            if attempt.now() - now >= READ_FOR:
                done = counted(len(groups), "target group was read", "target groups were read")
                late = f"{done} in {READ_FOR.seconds} s"
                reason = TARGETS_NOT_READ(error=late)
                break
            groups[arn] = get(f"target-group-{arn}", TargetGroup, partial(read.group, arn))
    except (CloudRefused, CloudUnavailable) as error:
        reason = TARGETS_NOT_READ(error=error)
    if record.deadline is not None:
        end = max(record.deadline + SAFETY_MARGIN, record.noticed_at + SPOT_WARNING)
        cut = decide_cut(groups, record.instance, since, now, end)
        reason = cut.and_then(reason) if cut and reason else cut or reason
    if reason is not None:
        publish_problem(attempt, reason, cordoned.node)
    return TargetsResult(since, (), wait=False, reason=reason)


def _look(
    attempt: Attempt, held: tuple[HeldHook, ...], before: TargetsResult | None, node: str
) -> TargetsResult:
    """Look at the targets once, and publish what `leeway status` shows of the wait. Heartbeats keep
    the lifecycle hooks waiting meanwhile."""
    result = _looked(attempt, held, before)
    if result.wait and (before is None or before.reason != result.reason):
        publish_problem(attempt, result.reason, node)
    return result


def _looked(
    attempt: Attempt, held: tuple[HeldHook, ...], before: TargetsResult | None
) -> TargetsResult:
    now = attempt.now()
    since, groups = (before.since, before.groups) if before else (now, ())
    record = attempt.read()
    if record is None:
        return TargetsResult(since, groups, wait=False, held=held)
    held = with_new_hooks(held, record.hooks, record.hooks_wait_since, now)
    held = attempt.hooks.send_heartbeats(attempt.id.instance, held)
    deadline = earliest_deadline(record.deadline, held)
    try:
        targets = attempt.ports.targets.of_instance(record.instance, groups or None)
    except CloudRefused as error:
        denied = TARGETS_NOT_READ(error=error)
        return TargetsResult(since, groups, wait=False, reason=denied, held=held)
    except CloudUnavailable as error:
        read_at = before.read_at if before else None
        is_near = deadline is not None and now + LOOK_EVERY >= deadline
        over = is_near or now - (read_at or since) >= DEREGISTERED_WITHIN
        late = TARGETS_NOT_READ(error=error)
        return TargetsResult(since, groups, not over, late, held, read_at)
    decision = decide_targets(targets, since, now, deadline)
    # A look that found no target is the last: a later one asks the same groups only.
    groups = groups or tuple(sorted({one.group for one in targets}))
    return TargetsResult(since, groups, decision.wait, decision.reason, held, now)
