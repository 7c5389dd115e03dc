"""Reads the status of a cluster from the table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from leeway.admission.record import Admission
from leeway.aws.capacity_requests import DynamoCapacityRequests
from leeway.aws.pool_records import DynamoPoolRecords
from leeway.aws.provisioning_records import DynamoProvisioningRecords
from leeway.aws.records import DynamoRecords
from leeway.capacity_requests import CapacityRequest
from leeway.headroom.status import STATUS, HeadroomStatus
from leeway.manifests.cluster import Cluster
from leeway.manifests.reading import read_salvaged, read_stored
from leeway.pool_pauses import PoolRecord
from leeway.provisioning.report import ProvisioningStatus
from leeway.retirement.drain import DRAIN_STATE, DrainState
from leeway.retirement.record import Retirement
from leeway.wiring.clients import client, table

from leeway_cli.errors import aws_errors
from leeway_cli.manifests.planned_change import CLUSTER
from leeway_cli.stack import Stack


@dataclass(frozen=True, slots=True)
class RetirementStatus:
    """A retirement, the last stored state of its drain, and its request for nodes of Leeway's
    pools."""

    record: Retirement
    drain: DrainState | None
    request: CapacityRequest | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The status of a cluster. `problems` are those of its manifests. `provisioning` is None before
    the first run of provision_nodes. `paused_pools` are the node pools from which Leeway launches
    nothing, because their instances never joined."""

    cluster: str
    paused: bool
    dry_run: bool
    manifests: int
    problems: tuple[str, ...]
    retirements: tuple[RetirementStatus, ...]
    admissions: tuple[Admission, ...]
    headroom: tuple[HeadroomStatus, ...]
    provisioning: ProvisioningStatus | None
    paused_pools: tuple[PoolRecord, ...] = ()


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
        drains = table(name=stack.table).get_many(
            DRAIN_STATE, [{"instance": instance} for instance in found]
        )
        states = {one.instance: one for one in drains}
        headroom = table(name=stack.table).list(STATUS, cluster=cluster)
        pools = DynamoPoolRecords(database, stack.table).pools_of(cluster)
        asked = DynamoCapacityRequests(database, stack.table).of_cluster(cluster)
        provisioning = DynamoProvisioningRecords(database, stack.table).status(cluster)
    policy = _policy(stack, cluster)
    requests = {one.instance: one for one in asked}
    retirements = [
        RetirementStatus(r, _current(r, states), requests.get(r.instance)) for r in found.values()
    ]
    return ClusterStatus(
        cluster=cluster,
        paused=policy.paused,
        dry_run=policy.dry_run,
        manifests=policy.manifests,
        problems=policy.problems,
        retirements=tuple(sorted(retirements, key=lambda one: one.record.noticed_at)),
        admissions=tuple(a for a in open_now if isinstance(a, Admission)),
        headroom=headroom,
        paused_pools=tuple(one for one in pools if one.paused is not None),
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
            if isinstance(written.manifest, Cluster):
                paused, dry_run = written.manifest.spec.paused, written.manifest.spec.dry_run
    return _Policy(paused, dry_run, len(stored), tuple(problems))
