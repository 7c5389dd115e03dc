"""The rules that no simulated day may break."""

from collections.abc import Iterator
from datetime import timedelta

from leeway.capacity_return.rules import Cause

from cli.simulated_day.cluster import MIDNIGHT, Cluster
from cli.simulated_day.machines import Machine
from cli.simulated_day.record import GivenBack, Launched, Record

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


def undone(record: Record, horizon: timedelta) -> list[tuple[GivenBack, Launched]]:
    """Return the launches that undo a return: within the horizon a node of the same instance type
    and capacity type is launched, though the pods request no more than when it was given back.

    A launch for pods of interrupted nodes undoes nothing: it replaces what EC2 took. Each launch
    undoes one return at most.
    """
    left = [one for one in record.given_back if one.cause is Cause.UNDERUTILIZED]
    found = []
    for launched in record.launched:
        if launched.lost:
            continue
        for one in left:
            if _undoes(launched, one, horizon):
                found.append((one, launched))
                left.remove(one)
                break
    return found


def _undoes(launched: Launched, one: GivenBack, horizon: timedelta) -> bool:
    soon = timedelta(0) < (launched.minute - one.minute) * MINUTE <= horizon
    more = any(now > then for now, then in zip(launched.requested, one.requested, strict=True))
    return soon and launched.kind == one.kind and not more
