"""A step: terminates an instance that Leeway launched and that has not joined in time."""

from collections.abc import Callable

from leeway.admission.check_node import CheckNode
from leeway.admission.never_joined import decide_unjoined
from leeway.admission.pool_results import PoolResults
from leeway.admission.ports import LaunchedInstances
from leeway.admission.readiness import AdmissionResult, Readiness
from leeway.admission.reasons import INSTANCE_NOT_TERMINATED
from leeway.admission.record import Admission
from leeway.admission.step_results import NodeCheck, UnjoinedResult
from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import API_ERRORS
from leeway.instances.observed import ObservedInstance
from leeway.ports.aws import CloudRefused
from leeway.ports.kubernetes import Cluster
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import clause


class EndUnjoined:
    """Ends launched instances without a node."""

    def __init__(
        self,
        node: CheckNode,
        instances: LaunchedInstances,
        open_cluster: Callable[[str], Cluster],
        pools: PoolResults,
    ) -> None:
        self._node = node
        self._instances = instances
        self._open_cluster = open_cluster
        self._pools = pools

    def run(self, attempt: AttemptId, before: NodeCheck) -> UnjoinedResult:
        """Read the node once more, then terminate its instance if there is still none.

        The failure is counted before the instance is terminated, and both before the record is
        closed: an execution that dies in between leaves an open record, which reconcile continues.
        """
        record = self._node.current(attempt)
        if record is None or record.launch is None:
            return UnjoinedResult(before.verdict)
        check, unmet = self._node.observe(before, record)
        if unmet is None:
            return UnjoinedResult(check_again=True)
        if check.joined_at is not None:
            return UnjoinedResult()
        try:
            observed = self._instances.observe(record.instance)
            named = self._nodes_of_its_names(record, observed)
        except CloudRefused as error:
            reason = INSTANCE_NOT_TERMINATED(error=clause(error))
            return UnjoinedResult(Readiness(AdmissionResult.NOT_READY, reason))
        except API_ERRORS:
            return UnjoinedResult(check_again=True)
        if any(one.runs_on(record.instance) for one in named):
            return UnjoinedResult(check_again=True)
        taken = next((one.name for one in named), "")
        verdict = decide_unjoined(record, record.launch, observed, taken)
        if verdict.result is not AdmissionResult.TERMINATED:
            return UnjoinedResult(verdict)
        paused = self._pools.count_never_joined(record, record.launch)
        try:
            self._instances.terminate(record.instance)
        except CloudRefused as error:
            reason = INSTANCE_NOT_TERMINATED(error=clause(error))
            verdict = Readiness(AdmissionResult.NOT_READY, reason)
        return UnjoinedResult(verdict, paused=paused)

    def _nodes_of_its_names(
        self, record: Admission, observed: ObservedInstance | None
    ) -> list[Node]:
        """Read the nodes that have a name of the instance; they may be of other instances."""
        names = {record.facts.private_dns_name, record.instance}
        if observed is not None:
            names.add(observed.facts.private_dns_name)
        cluster = self._open_cluster(record.facts.cluster)
        return [one for name in sorted(names - {""}) if (one := cluster.node(name))]
