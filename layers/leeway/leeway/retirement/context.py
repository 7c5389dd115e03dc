"""What every step of a retirement uses: the ports, the attempt with its record and its node, and
the status that `leeway status` shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from leeway.catalog.unavailable import UnavailableOfferings
from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import API_ERRORS, Conflicts, WhileUnavailable
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.reasons import Reason
from leeway.retirement.hooks import GroupCache, LifecycleActions
from leeway.retirement.progress import Drain, RemovalMethod, Stage
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.table import Record

# For annotations only: the modules of the steps import this one.
if TYPE_CHECKING:
    from leeway.capacity_requests import ProvisionNodes
    from leeway.clock import Clock
    from leeway.execution.attempt import Steps
    from leeway.execution.shared_cache import SharedCache
    from leeway.instances.facts import InstanceFacts
    from leeway.policy.rules import ClusterPolicies
    from leeway.ports.aws import GroupInstances, Groups, LeewayEvents, Targets
    from leeway.ports.kubernetes import Cluster
    from leeway.ports.kubernetes_objects import Node
    from leeway.ports.workloads import Workloads
    from leeway.retirement.outcome import RetirementTelemetry
    from leeway.table import Table


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of retire_node, which a warm function keeps for all of its executions.

    - `fast_table` is the table for calls that delay a drain: it gives up early.
    - `open_cluster` returns the API of the cluster with the given name, `open_workloads` its
      workloads.
    - Without `provision_nodes` the function of this name is not woken, and finds requests by
      itself.
    - `described`: facts about successors by their ids. They do not change, so EC2 is called once
      for each.
    """

    open_cluster: Callable[[str], Cluster]
    open_workloads: Callable[[str], Workloads]
    clock: Clock
    policies: ClusterPolicies
    table: Table
    groups: Groups
    instances: GroupInstances
    offerings: UnavailableOfferings
    region: str
    cache: SharedCache
    fast_table: Table
    events: LeewayEvents
    provision_nodes: ProvisionNodes | None
    telemetry: RetirementTelemetry
    targets: Targets
    described: dict[str, InstanceFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a retirement: its id, its durable steps, and the ports."""

    id: AttemptId
    steps: Steps
    ports: Ports

    def now(self) -> datetime:
        """Return the current time."""
        return self.ports.clock.now()

    @property
    def group_cache(self) -> GroupCache:
        """The rules of groups, which all executions share."""
        return GroupCache(self.ports.groups, self.ports.cache)

    @property
    def hooks(self) -> LifecycleActions:
        """The lifecycle actions of the instance."""
        return LifecycleActions(self.ports.groups, self.ports.clock, self.group_cache)

    def current(self) -> Retirement | None:
        """Read the record; None if a newer attempt has superseded this attempt."""
        record = self.ports.table.get(
            RETIREMENT, cluster=self.id.cluster, instance=self.id.instance
        )
        return record if record is not None and record.attempt == self.id.attempt else None

    def is_current(self) -> bool:
        """Return whether no newer attempt has superseded this attempt. True if the record cannot be
        read: the table may throttle during a storm, and the drain must continue."""
        try:
            return self.current() is not None
        except (CloudUnavailable, CloudRefused):
            return True

    def read(self) -> Retirement | None:
        """Read the record as `current` does; retry while the table is unavailable."""
        again = self.again()
        while True:
            with again:
                return self.current()

    def write[T](
        self, record: Retirement, change: Callable[[Retirement], tuple[Retirement, T]]
    ) -> tuple[Retirement, T] | None:
        """Change the record; return the written record and the result of `change`, None if a newer
        attempt has superseded this attempt.

        If another writer was faster, `change` runs again on a fresh read.

        Raises:
            CloudUnavailable: the table is not available, or every write conflicted.
        """
        conflicts = Conflicts(f"the retirement record of {self.id.instance}")
        while True:
            with conflicts:
                read = record if conflicts.first else self.current()
                if read is None:
                    return None
                changed, result = change(read)
                written = changed.model_copy(update={"version": read.version + 1})
                self.ports.table.put(RETIREMENT, written)
                return written, result

    def update(self, record: Retirement, **fields: Any) -> Retirement | None:
        """Change fields of the record's intent, if it has one; return the written record."""
        written = self.write(record, partial(with_intent, fields))
        return written[0] if written else None

    def again(self) -> WhileUnavailable:
        """Repeat a block while AWS or the API server is unavailable, for RETRY_TIMEOUT at most."""
        return WhileUnavailable(self.ports.clock)

    def node_of(self, record: Retirement, by_name: bool = False) -> tuple[Cluster, Node | None]:
        """Open the cluster and find the node of the instance: by its possible names, then, unless
        `by_name` is set, among all nodes."""
        cluster = self.ports.open_cluster(record.facts.cluster)
        names = tuple(n for n in (record.facts.private_dns_name, record.instance) if n)
        if not by_name:
            return cluster, cluster.node_of(record.instance, names)
        named = map(cluster.node, names)
        return cluster, next((n for n in named if n and n.runs_on(record.instance)), None)

    def describe(self, instance: str) -> InstanceFacts | None:
        """Return facts about a successor; None if EC2 does not know it. EC2 may know it before its
        DNS name."""
        known = self.ports.described.get(instance)
        if known is None or not known.private_dns_name:
            known = self.ports.instances.describe(instance)
            if known is not None:
                self.ports.described[instance] = known
        return known

    def successor_node(self, instance: str, cluster: Cluster) -> Node | None:
        """Find the node of a successor by its names."""
        facts = self.describe(instance)
        names = (facts.private_dns_name if facts else "", instance)
        found = (cluster.node(name) for name in names if name)
        return next((node for node in found if node and node.runs_on(instance)), None)


def with_intent(fields: Mapping[str, Any], record: Retirement) -> tuple[Retirement, None]:
    """Change fields of the intent of a record, if it has one; a change for `Attempt.write`."""
    intent = record.replacement_intent
    changed = intent.model_copy(update=fields) if intent else None
    return record.model_copy(update={"replacement_intent": changed}), None


@dataclass(frozen=True, slots=True)
class PodState:
    """The progress of one pod; `method` is None until the API server accepted a request."""

    pod: str
    stage: Stage
    method: RemovalMethod | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class DrainState:
    """The progress of a node's drain at a moment, in UTC. `problem` is what Leeway could not do
    then, such as reach the API server, or what the retirement waits for; None if there is nothing.
    """

    cluster: str
    instance: str
    attempt: int
    node: str
    at: datetime
    problem: Reason | None
    pods: tuple[PodState, ...]


DRAIN_STATE = Record(
    DrainState,
    "PROGRESS#{cluster}#{instance}",
    "DRAIN",
    kept_for=lambda state: state.at + timedelta(days=1),
)
"""The progress for `leeway status`. The record of the retirement keeps the outcome for longer."""


def summarise(attempt: AttemptId, node: str, drain: Drain, at: datetime) -> DrainState:
    """Return the progress of a drain, without the pods that stay on the node."""
    pods = tuple(
        PodState(pod.pod, pod.stage, pod.method if pod.requested_at else None, pod.reason)
        for pod in drain.pods.values()
        if pod.stage is not Stage.LEFT
    )
    return DrainState(
        attempt.cluster, attempt.instance, attempt.attempt, node, at, drain.problem, pods
    )


def publish_problem(attempt: Attempt, problem: Reason | None, node: str = "") -> None:
    """Publish what keeps a retirement from its drain, or that nothing does any more. A table that
    does not take it delays nothing."""
    state = summarise(attempt.id, node, Drain(problem=problem), attempt.now())
    with suppress(*API_ERRORS):
        attempt.ports.fast_table.put(DRAIN_STATE, state)
