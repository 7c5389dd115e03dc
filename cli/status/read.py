"""Reads the status of a cluster from the table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from leeway.admission.record import Admission
from leeway.aws.drain_states import DynamoDrainStatesReader
from leeway.aws.headroom import DynamoHeadroom
from leeway.aws.provisioning_records import DynamoProvisioningRecords
from leeway.aws.records import DynamoRecords
from leeway.clock import SystemClock
from leeway.drain.summary import DrainState
from leeway.headroom.status import HeadroomStatus
from leeway.manifests.cluster import Cluster
from leeway.manifests.reading import read_salvaged, read_stored
from leeway.provisioning.status import ProvisioningStatus
from leeway.retirement.record import Retirement
from leeway.wiring.clients import client

from cli.aws_errors import aws_errors
from cli.manifests.planned_change import CLUSTER
from cli.stack import Stack


@dataclass(frozen=True, slots=True)
class RetirementStatus:
    """A retirement and the last stored state of its drain."""

    record: Retirement
    drain: DrainState | None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The status of a cluster. `problems` are those of its manifests; `provisioning` is None before
    the first run of provision_nodes."""

    cluster: str
    paused: bool
    dry_run: bool
    manifests: int
    problems: tuple[str, ...]
    retirements: tuple[RetirementStatus, ...]
    admissions: tuple[Admission, ...]
    headroom: tuple[HeadroomStatus, ...]
    provisioning: ProvisioningStatus | None


def read_cluster_status(stack: Stack, cluster: str, recent: Iterable[str] = ()) -> ClusterStatus:
    """Read the status of a cluster. `recent` are instances whose retirements are read even if they
    have ended.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    database = partial(client, "dynamodb")
    records = DynamoRecords(database, stack.table)
    with aws_errors(stack.where):
        open_now = records.open_records(cluster).records
        found = {r.instance: r for r in open_now if isinstance(r, Retirement)}
        for instance in set(recent) - found.keys():
            ended = records.retirement(instance)
            if ended is not None:
                found[instance] = ended
        states = DynamoDrainStatesReader(database, stack.table, SystemClock()).of(found)
        headroom = DynamoHeadroom(database, stack.table).statuses(cluster)
        provisioning = DynamoProvisioningRecords(database, stack.table).status(cluster)
    policy = _policy(stack, cluster)
    retirements = [RetirementStatus(r, _current(r, states)) for r in found.values()]
    return ClusterStatus(
        cluster=cluster,
        paused=policy.paused,
        dry_run=policy.dry_run,
        manifests=policy.manifests,
        problems=policy.problems,
        retirements=tuple(sorted(retirements, key=lambda one: one.record.noticed_at)),
        admissions=tuple(a for a in open_now if isinstance(a, Admission)),
        headroom=tuple(headroom.values()),
        provisioning=provisioning,
    )


def _current(record: Retirement, states: Mapping[str, DrainState]) -> DrainState | None:
    """Return the state of the current attempt, None if the state belongs to an earlier one."""
    state = states.get(record.instance)
    return state if state is not None and state.attempt == record.attempt else None


@dataclass(frozen=True, slots=True)
class _Policy:
    paused: bool
    dry_run: bool
    manifests: int
    problems: tuple[str, ...]


def _policy(stack: Stack, cluster: str) -> _Policy:
    with aws_errors(stack.where):
        stored = stack.manifests().of(cluster)
    paused = dry_run = False
    problems: list[str] = []
    for one in stored:
        read = read_salvaged if one.resource == CLUSTER else read_stored
        reading = read(one.body, one.title)
        problems += [
            f"{problem} (written by leeway {one.written_by})" for problem in reading.problems
        ]
        for written in reading.written:
            if isinstance(written.meant, Cluster):
                paused, dry_run = written.meant.spec.paused, written.meant.spec.dry_run
    return _Policy(paused, dry_run, len(stored), tuple(problems))
