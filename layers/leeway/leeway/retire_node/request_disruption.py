"""Requests a disruption from the budget of the cluster, its policy, and the node's annotations."""

from functools import partial

from leeway.execution.retrying import API_ERRORS, retry_conflicts
from leeway.policy.rules import Action, ClusterPolicy, Replacement
from leeway.ports.aws import Groups
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT, Node
from leeway.reasons import Reason, clause
from leeway.replacement.decide import why_group_replaces
from leeway.retirement.disruption_budget import (
    BudgetDecision,
    BudgetVerdict,
    decide_disruption,
    decide_without_node,
    decline_after_timeout,
)
from leeway.retirement.ports import DisruptionLedgers
from leeway.retirement.reasons import DISRUPTION_NOT_DECIDED, LEFT_TO_GROUP
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext


class DisruptionRequests:
    """Decides whether voluntary retirements may begin."""

    def __init__(self, context: StepContext, groups: Groups, ledgers: DisruptionLedgers) -> None:
        self._context = context
        self._groups = groups
        self._ledgers = ledgers

    def request(self, record: Retirement, policy: ClusterPolicy) -> BudgetDecision:
        """Decide whether a voluntary retirement may begin, and record it in the ledger if so."""
        try:
            decision = self._context.retry(partial(self._decide, record, policy))
        except API_ERRORS as error:
            # A voluntary retirement is not urgent: it waits for what cannot be read.
            problem = DISRUPTION_NOT_DECIDED(error=f"{type(error).__name__}: {error}")
            decision = BudgetDecision(BudgetVerdict.WAIT, problem)
        return decline_after_timeout(record, decision, self._context.clock.now())

    def _decide(self, record: Retirement, policy: ClusterPolicy) -> BudgetDecision:
        begun = record.replacement_intent is not None
        if not begun and (replaces := self._why_group_replaces(record)):
            return BudgetDecision(BudgetVerdict.DECLINE, replaces)
        if record.returns is not None and record.returns.without_node:
            return self._decide_without_node(record, policy)
        cluster, node = self._context.node_of(record)
        protections = self._protections(cluster, node) if node else []
        decision = decide_disruption(record, policy, protections)
        returns = record.returns
        # An empty node moves no pod: confirm_return sees after the cordon that it is empty.
        empty = returns is not None and returns.pods == 0
        if decision.verdict is not BudgetVerdict.GO or node is None or begun or empty:
            return decision
        return self._request_from_ledger(record, policy, cluster.ready_nodes())

    def _decide_without_node(self, record: Retirement, policy: ClusterPolicy) -> BudgetDecision:
        """Decide about an instance whose Node was deleted. Its names are looked up here; the step
        that follows searches all Nodes."""
        cluster, node = self._context.node_of(record, by_name=True)
        name, now = node.name if node else "", self._context.clock.now()
        decision = decide_without_node(record, policy, name, now)
        if decision.verdict is not BudgetVerdict.GO:
            return decision
        return self._request_from_ledger(record, policy, cluster.ready_nodes())

    def _why_group_replaces(self, record: Retirement) -> Reason | None:
        """Return why the group replaces the instance itself; its terminate hook then notifies
        Leeway."""
        if record.replacement is Replacement.NONE or record.action is Action.CORDON:
            return None
        group = self._groups.facts(record.instance)
        if group is None or not group.terminate_hook_waits:
            return None
        reason = why_group_replaces(record.kind, group)
        return LEFT_TO_GROUP(why=clause(reason)) if reason else None

    def _protections(self, cluster: Cluster, node: Node) -> list[str]:
        now = self._context.clock.now()
        found = [
            f"pod {pod.key} has the annotation {DO_NOT_DISRUPT}"
            for pod in cluster.pods_on(node.name)
            if pod.protected_until is not None and now < pod.protected_until
        ]
        if node.annotations.get(DO_NOT_DISRUPT) == "true":
            found.insert(0, f"node {node.name} has the annotation {DO_NOT_DISRUPT}")
        return found

    def _request_from_ledger(
        self, record: Retirement, policy: ClusterPolicy, nodes: int
    ) -> BudgetDecision:
        ledgers = self._ledgers

        def read_and_write() -> BudgetDecision:
            now = self._context.clock.now()
            ledger = ledgers.ledger(record.facts.cluster)
            changed, decision = ledger.request(record.instance, nodes, policy.churn, now)
            if changed is not None:
                ledgers.write(changed)
            return decision

        return retry_conflicts(f"the disruption ledger of {record.facts.cluster}", read_and_write)
