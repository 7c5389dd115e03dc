"""Whether a retirement's turn has come: what its group, its cluster's policy, and its node say."""

from functools import partial

from leeway.execution.retrying import API_ERRORS, retry_conflicts
from leeway.policy.rules import Action, ClusterPolicy, Replacement
from leeway.ports.aws import Groups
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import Node
from leeway.replacement.decide import groups_own_business
from leeway.retirement.disruption_budget import (
    BudgetDecision,
    BudgetVerdict,
    decide_disruption,
    decline_after_timeout,
)
from leeway.retirement.ports import DisruptionLedgers
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


class DisruptionRequests:
    """Gives retirements their turns."""

    def __init__(self, context: StepContext, groups: Groups, ledgers: DisruptionLedgers) -> None:
        self._context = context
        self._groups = groups
        self._ledgers = ledgers

    def ask(self, record: Retirement, policy: ClusterPolicy) -> BudgetDecision:
        """Ask whether a retirement may begin that could as well wait; take its turn if it may."""
        try:
            told = self._context.retry(partial(self._turn_of, record, policy))
        except API_ERRORS as error:
            # Nobody is in a hurry: a retirement of choice does not begin on guesses.
            told = BudgetDecision(BudgetVerdict.WAIT, f"{type(error).__name__}: {error}")
        return decline_after_timeout(record, told, self._context.clock.now())

    def _turn_of(self, record: Retirement, policy: ClusterPolicy) -> BudgetDecision:
        had_its_turn = record.replacement_intent is not None
        if not had_its_turn and (left := self._left_to_group(record)):
            return BudgetDecision(BudgetVerdict.DECLINE, left)
        cluster, node = self._context.node_of(record)
        protections = self._protections(cluster, node) if node else []
        told = decide_disruption(record, policy, protections)
        if told.verdict is not BudgetVerdict.GO or node is None or had_its_turn:
            return told
        return self._take_turn(record, policy, cluster.ready_nodes())

    def _left_to_group(self, record: Retirement) -> str | None:
        """Say why the group sees to the instance; its terminate hook tells when it does."""
        if record.replacement is Replacement.NONE or record.action is Action.CORDON:
            return None
        group = self._groups.facts(record.instance)
        if group is None or not group.terminate_hook_waits:
            return None
        reason = groups_own_business(record.kind, group)
        return f"{reason}, and its terminate hook tells when" if reason else None

    def _protections(self, cluster: Cluster, node: Node) -> list[str]:
        now = self._context.clock.now()
        found = [
            f"pod {pod.key} has {DO_NOT_DISRUPT}"
            for pod in cluster.pods_on(node.name)
            if pod.protected_until is not None and now < pod.protected_until
        ]
        if node.annotations.get(DO_NOT_DISRUPT) == "true":
            found.insert(0, f"node {node.name} has {DO_NOT_DISRUPT}")
        return found

    def _take_turn(self, record: Retirement, policy: ClusterPolicy, nodes: int) -> BudgetDecision:
        ledgers = self._ledgers

        def take() -> BudgetDecision:
            now = self._context.clock.now()
            ledger = ledgers.ledger(record.facts.cluster)
            changed, told = ledger.request(record.instance, nodes, policy.churn, now)
            if changed is not None:
                ledgers.write(changed)
            return told

        return retry_conflicts(f"the disruption ledger of {record.facts.cluster}", take)
