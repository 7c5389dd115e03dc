"""Reads the nodes of a cluster again and again, for a table and for the page of `leeway view`."""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.admission.record import ADMISSION, Admission
from leeway.disruption.explain import Course, as_kept, follow
from leeway.provisioning.cluster_state import ClusterStates
from leeway.provisioning.report import STATUS, PodsWithoutNode
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.table import OPEN
from leeway.wiring.clients import table

from leeway_cli.errors import CannotBeDoneError, aws_errors
from leeway_cli.explain.capacity import (
    AccountReading,
    Capacity,
    KeptOffers,
    Source,
    read_capacity,
    time_limit,
)
from leeway_cli.nodes.rows import NodeRow, Records, rows_of
from leeway_cli.output import write_stderr
from leeway_cli.stack import cluster_name, find_stack, warn_of_unreadable

PLANNED_EVERY = 60.0
"""Seconds after which it is planned again what is given back."""

PLANNED_SECONDS = 3.0
"""How long later steps are simulated."""


RUN_WITHIN = timedelta(minutes=5)
"""How old the last run of provision_nodes is at most whose reasons are shown."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one read has found: the cluster, what is given back next (None if there is no pool to
    plan for), a row for each node, and why pods got no node in the last run of provision_nodes."""

    capacity: Capacity
    course: Course | None
    rows: tuple[NodeRow, ...]
    without_node: tuple[PodsWithoutNode, ...] = ()

    @property
    def saving(self) -> float | None:
        """What all steps save, in USD per hour; None if nothing was planned."""
        return None if self.course is None else sum(step.saving for step in self.course.steps)

    @property
    def complete(self) -> bool:
        """Whether there was time to simulate all steps."""
        return self.course is None or self.course.complete


class NodeReading:
    """Reads a cluster. What would be given back is planned once a minute. What AWS says of prices
    and groups is kept for some minutes. Clusters of a region may share its `offers`."""

    def __init__(self, source: Source, offers: KeptOffers | None = None) -> None:
        self.source = source
        self._account = AccountReading(offers or KeptOffers(source))
        self._course: Course | None = None
        self._planned_at = float("-inf")

    def read(self, states: ClusterStates | None) -> Seen:
        """Return the cluster as it is now. `states` reads it, by default as the source says.

        Raises:
            BadInputError: an option is invalid.
            CannotBeDoneError: the API server did not answer, or refused.
        """
        read = read_capacity(self.source, states, self._account)
        if time.monotonic() - self._planned_at > PLANNED_EVERY and read.snapshot.rules:
            self._course = _planned(read)
            self._planned_at = time.monotonic()
        course, now = self._course, read.snapshot.now
        records, without = _records(self.source, now)
        rules = read.snapshot.rules.items()
        asleep = {pool: one.hibernates.until for pool, one in rules if one.hibernates}
        own, foreign = read.snapshot.own, read.foreign
        return Seen(read, course, rows_of(own, foreign, course, records, now, asleep), without)


def _planned(read: Capacity) -> Course:
    """Decide what is given back, and simulate what follows, as `leeway explain cluster` does."""
    snapshot, decision = read.decide()
    return follow(as_kept(snapshot, read.foreign), decision, time_limit(PLANNED_SECONDS))


def _records(source: Source, now: datetime) -> tuple[Records, tuple[PodsWithoutNode, ...]]:
    """Read from the table the open retirements and admissions of the cluster, and why pods got no
    node."""
    if not source.cluster:
        return Records(), ()
    try:
        deployment = find_stack(source.stack)
        with aws_errors(deployment.where):
            stored, name = table(name=deployment.table), cluster_name(source.cluster)
            found = stored.find(OPEN, name, RETIREMENT, ADMISSION, unreadable=warn_of_unreadable)
            run = stored.get(STATUS, cluster=name, unreadable=warn_of_unreadable)
    except CannotBeDoneError as error:
        write_stderr(f"warning: retirements and launches are not known: {error}")
        return Records(), ()
    records = Records(
        {one.instance: one for one in found if isinstance(one, Retirement)},
        {one.facts.instance: one for one in found if isinstance(one, Admission)},
    )
    return records, run.without_node if run and now - run.run_at < RUN_WITHIN else ()
