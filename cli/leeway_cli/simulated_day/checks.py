"""The rules that no simulated day may break."""

from collections.abc import Iterator
from datetime import timedelta

from leeway.disruption.rules import Cause
from leeway.policy.worth import Worth

from leeway_cli.simulated_day.cluster import MIDNIGHT, Cluster
from leeway_cli.simulated_day.machines import Machine
from leeway_cli.simulated_day.record import GivenBack, Launched, Record

MINUTE = timedelta(minutes=1)


def check_return(cluster: Cluster, one: Machine, cause: Cause) -> Iterator[str]:
    """Yield a sentence for each rule that the return of a node, which begins now, breaks: nothing
    protected goes, no node goes before consolidateAfter is over, and budgets hold."""
    at, name = cluster.minute, f"{one.name} ({cause})"
    if one.going:
        yield f"Minute {at}: {name} goes already."
    protected = [pod.pod.name for pod in one.pods.values() if pod.protected]
    if protected:
        yield f"Minute {at}: {name} has the protected pod {protected[0]}."
    if (at - one.quiet_since) * MINUTE < cluster.options.after:
        yield f"Minute {at}: {name} is not quiet for consolidateAfter."
    fellows = [
        each
        for each in cluster.machines.values()
        if each.is_ready(at) and each.offering.pool.name == one.offering.pool.name
    ]
    disrupted = sum(each.going for each in fellows)
    for budget in cluster.options.budgets:
        limit = budget.limit(len(fellows))
        if budget.applies(cause, MIDNIGHT + at * MINUTE) and disrupted >= limit:
            yield f"Minute {at}: {disrupted} nodes are disrupted before {name}, of {limit} allowed."


def undone(record: Record, worth: Worth) -> list[GivenBack]:
    """Return the replacements that a later plan undid: it gave the successor back because it was
    not used well, before the saving had paid for the moved pods."""
    left_at = {
        one.node: one.minute for one in record.given_back if one.cause is Cause.UNDERUTILIZED
    }
    found = []
    for one in record.given_back:
        successors = [each.node for each in record.launched if one.node in each.replaces]
        ends = [left_at[name] for name in successors if name in left_at]
        if one.saving and ends and not _has_paid(one, min(ends), worth):
            found.append(one)
    return found


def replaced_twice(record: Record, after: timedelta) -> list[GivenBack]:
    """Return the successors of replaced nodes that were given back themselves within
    consolidateAfter of their launch."""
    launched_at = {one.node: one.minute for one in record.launched if one.replaces}
    return [
        one
        for one in record.given_back
        if one.node in launched_at and (one.minute - launched_at[one.node]) * MINUTE < after
    ]


def bought_again(record: Record, worth: Worth) -> list[GivenBack]:
    """Return the nodes that were needed again too soon: before the saving had paid for the moved
    pods, a node of the same instance type and capacity type was launched, though the pods that use
    its pool requested no more than when it was given back.

    A launch for pods of interrupted nodes does not count: it replaces what EC2 took. Nor does the
    successor of nodes that it replaces. Each launch counts for one node at most.
    """
    left = [one for one in record.given_back if one.cause is Cause.UNDERUTILIZED]
    found = []
    for launched in record.launched:
        if launched.lost or launched.replaces:
            continue
        for one in left:
            if _needs_again(launched, one) and not _has_paid(one, launched.minute, worth):
                found.append(one)
                left.remove(one)
                break
    return found


def _needs_again(launched: Launched, one: GivenBack) -> bool:
    more = any(now > then for now, then in zip(launched.requested, one.requested, strict=True))
    return launched.minute > one.minute and launched.kind == one.kind and not more


def _has_paid(one: GivenBack, minute: int, worth: Worth) -> bool:
    return one.saving * (minute - one.minute) / 60 >= worth.per_pod * one.pods
