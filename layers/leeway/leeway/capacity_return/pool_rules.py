"""The rules for giving nodes back that the manifest of a pool sets."""

from datetime import timedelta

from leeway.capacity_return.rules import Budget, Cause, ReturnRules
from leeway.manifests import node_pool
from leeway.manifests.node_pool import NodePool


def rules_of(manifest: NodePool) -> ReturnRules:
    """Return the rules of a pool, also of one that was converted from an earlier API version."""
    disruption = manifest.spec.disruption
    return ReturnRules(
        after=_unless_never(disruption.consolidate_after),
        only_empty=disruption.consolidation_policy == "WhenEmpty",
        expires=_unless_never(manifest.spec.template.spec.expire_after),
        drain_within=manifest.spec.template.spec.termination_grace_period,
        budgets=tuple(map(_budget, disruption.budgets)),
    )


def _budget(budget: node_pool.Budget) -> Budget:
    causes = None if budget.reasons is None else frozenset(map(Cause, budget.reasons))
    return Budget(budget.nodes, causes, budget.schedule, budget.duration or timedelta(0))


def _unless_never(duration: timedelta | str) -> timedelta | None:
    return duration if isinstance(duration, timedelta) else None
