"""A step: reads a new node, and puts on it the labels and taints of its pool."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from leeway.admission.pool_results import PoolResults
from leeway.admission.ports import Admissions
from leeway.admission.readiness import (
    ExpectedNode,
    ObservedNode,
    decide_admission,
    poll_interval,
    unmet_conditions,
)
from leeway.admission.reasons import NODE_LABELS_REFUSED, NODE_REPLACED
from leeway.admission.record import Admission
from leeway.admission.step_results import NodeCheck
from leeway.clock import Clock
from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import API_ERRORS
from leeway.ports.aws import CloudRefused, InstanceTypes
from leeway.ports.kubernetes import Cluster, ClusterRefused, ClusterUnavailable
from leeway.ports.kubernetes_objects import Node, Taint
from leeway.reasons import Reason, clause
from leeway.retirement.hooks import LifecycleActions, all_over, next_heartbeat, with_new_hooks
from leeway.selection.labels import JOINED, REGISTERED, UNREGISTERED

LIST_NODES_AFTER = timedelta(minutes=2)
LIST_NODES_EVERY = timedelta(minutes=1)
"""A node whose name is not its instance's DNS name or id is found only in the list of all nodes.
Most nodes join within two minutes, so the list is not read before."""


class CheckNode:
    """Checks nodes. `open_cluster` returns a client for the API server of a cluster."""

    def __init__(
        self,
        admissions: Admissions,
        types: InstanceTypes,
        open_cluster: Callable[[str], Cluster],
        pools: PoolResults,
        actions: LifecycleActions,
        clock: Clock,
    ) -> None:
        self._admissions = admissions
        self._types = types
        self._open_cluster = open_cluster
        self._pools = pools
        self._actions = actions
        self._clock = clock

    def run(self, attempt: AttemptId, before: NodeCheck) -> NodeCheck:
        """Read the record and the node, and decide whether the admission ends."""
        record = self.current(attempt)
        if record is None:
            return NodeCheck(None)
        now = self._clock.now()
        held = with_new_hooks(before.held, record.hooks, record.noticed_at, now)
        check = replace(
            before, record=record, held=self._actions.send_heartbeats(attempt.instance, held)
        )
        check, unmet = self.observe(check, record)
        now = self._clock.now()
        verdict = decide_admission(
            unmet,
            record.deadline,
            now,
            has_hooks=bool(record.hooks),
            launched=record.launch is not None,
            hooks_ended=all_over(check.held, now),
            into_pool=record.into_pool,
        )
        heartbeat = next_heartbeat(check.held)
        interval = poll_interval(record.noticed_at, now, record.deadline, heartbeat)
        return replace(check, verdict=verdict, wait_seconds=int(interval.total_seconds()))

    def current(self, attempt: AttemptId) -> Admission | None:
        """Read the record; None if a newer attempt has superseded this one."""
        record = self._admissions.admission(attempt.instance)
        if record is None or record.attempt != attempt.attempt:
            return None
        return record

    def observe(
        self, check: NodeCheck, record: Admission
    ) -> tuple[NodeCheck, tuple[Reason, ...] | None]:
        """Read the node and add its labels and taints. Returns the conditions that the node does
        not meet, None if it could not be read."""
        try:
            check = self._with_manufacturers(check, record)
            check, node = self._find(check, record)
        except API_ERRORS as error:
            return replace(check, problem=f"{type(error).__name__}: {error}"), None
        expected = ExpectedNode(check.manufacturers or (), record.startup_taints)
        added = record.taints if node is not None and REGISTERED not in node.labels else ()
        unmet = unmet_conditions(_observed(node, added), expected)
        if node is not None and record.launch is not None:
            if not check.join_counted:
                check = replace(check, join_counted=self._pools.count_join(record, record.launch))
            unmet += self._set_up(node, record, added, is_ready=not unmet)
        return replace(check, unmet=unmet, problem=""), unmet

    def _with_manufacturers(self, check: NodeCheck, record: Admission) -> NodeCheck:
        if check.manufacturers is not None:
            return check
        try:
            manufacturers = self._types.accelerators(record.facts.instance_type)
        except CloudRefused:
            manufacturers = ()  # EC2 does not describe the type: only the node's labels are used
        return replace(check, manufacturers=manufacturers)

    def _find(self, check: NodeCheck, record: Admission) -> tuple[NodeCheck, Node | None]:
        """Find the node by its expected names, and at intervals in the list of all nodes."""
        cluster = self._open_cluster(record.facts.cluster)
        names = [check.node] if check.node else []
        names += [name for name in (record.facts.private_dns_name, record.instance) if name]
        named = (cluster.node(name) for name in names)
        node = next((n for n in named if n is not None and n.runs_on(record.instance)), None)
        now = self._clock.now()
        if node is None and _may_list_nodes(check, record, now):
            check = replace(check, listed_at=now)
            node = cluster.node_of(record.instance, ())
        if node is None:
            return check, None
        joined_at = check.joined_at or now
        return replace(check, node=node.name, node_uid=node.uid, joined_at=joined_at), node

    def _set_up(
        self, node: Node, record: Admission, taints: Sequence[Taint], *, is_ready: bool
    ) -> tuple[Reason, ...]:
        """Put the labels and taints of a pool on a launched node; returns why that failed.

        Taints are added once, with the label REGISTERED: whoever removes a startup taint does not
        find it again. The label INITIALIZED says that the node is ready for pods.
        """
        states = JOINED if is_ready else {REGISTERED: JOINED[REGISTERED]}
        labels = {**record.labels, **states}
        gated = any(one.key == UNREGISTERED for one in node.taints)
        if not (taints or gated) and all(node.labels.get(k) == v for k, v in labels.items()):
            return ()
        cluster = self._open_cluster(record.facts.cluster)
        try:
            done = cluster.set_up(node, labels, taints, (UNREGISTERED,))
        except (ClusterUnavailable, ClusterRefused) as error:
            return (NODE_LABELS_REFUSED(error=clause(error)),)
        return () if done else (NODE_REPLACED(),)


def _observed(node: Node | None, added: Sequence[Taint]) -> ObservedNode | None:
    """`added` are the taints that the node is about to get."""
    if node is None:
        return None
    taints = {taint.key for taint in (*node.taints, *added)}
    return ObservedNode(node.ready, node.labels, node.devices, taints)


def _may_list_nodes(check: NodeCheck, record: Admission, now: datetime) -> bool:
    """Whether the list of all nodes may be read now: at intervals, and before the admission ends
    without a node."""
    if now >= record.deadline:
        return True
    if now < record.noticed_at + LIST_NODES_AFTER:
        return False
    return check.listed_at is None or now >= check.listed_at + LIST_NODES_EVERY
