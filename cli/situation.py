"""How it stands with a cluster: what the table has about it, read for those who watch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from leeway.admission.record import Admission
from leeway.aws.drain_states import DynamoDrainStatesReader
from leeway.aws.headroom import DynamoHeadroom
from leeway.aws.records import DynamoRecords
from leeway.clock import SystemClock
from leeway.drain.summary import DrainState
from leeway.headroom.status import HeadroomStatus
from leeway.manifests.cluster import Cluster
from leeway.manifests.reading import read_salvaged, read_stored
from leeway.retirement.record import Retirement
from leeway.wiring.clients import client

from cli.aws import aws_trouble
from cli.changes import CLUSTER
from cli.stack import Stack


@dataclass(frozen=True, slots=True)
class Leaving:
    """A retirement, and how far its drain was when that was last told."""

    record: Retirement
    drain: DrainState | None


@dataclass(frozen=True, slots=True)
class Situation:
    """A cluster now. `problems` are what cannot be read of its manifests."""

    cluster: str
    paused: bool
    dry_run: bool
    manifests: int
    problems: tuple[str, ...]
    retirements: tuple[Leaving, ...]
    arrivals: tuple[Admission, ...]
    headroom: tuple[HeadroomStatus, ...]


def read_situation(stack: Stack, cluster: str, watched: Iterable[str] = ()) -> Situation:
    """Read how it stands with a cluster; `watched` are instances whose retirements are told even
    if they have ended.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    database = partial(client, "dynamodb")
    records = DynamoRecords(database, stack.table)
    with aws_trouble(stack.where):
        open_now = records.unfinished(cluster).records
        found = {r.instance: r for r in open_now if isinstance(r, Retirement)}
        for instance in set(watched) - found.keys():
            ended = records.retirement(instance)
            if ended is not None:
                found[instance] = ended
        states = DynamoDrainStatesReader(database, stack.table, SystemClock()).of(found)
        headroom = DynamoHeadroom(database, stack.table).of(cluster)
    policy = _policy(stack, cluster)
    leaving = [Leaving(r, _current(r, states)) for r in found.values()]
    return Situation(
        cluster=cluster,
        paused=policy.paused,
        dry_run=policy.dry_run,
        manifests=policy.manifests,
        problems=policy.problems,
        retirements=tuple(sorted(leaving, key=lambda one: one.record.noticed_at)),
        arrivals=tuple(a for a in open_now if isinstance(a, Admission)),
        headroom=tuple(headroom.values()),
    )


def _current(record: Retirement, states: Mapping[str, DrainState]) -> DrainState | None:
    """What was told of an earlier attempt tells nothing of this one."""
    state = states.get(record.instance)
    return state if state is not None and state.attempt == record.attempt else None


@dataclass(frozen=True, slots=True)
class _Policy:
    paused: bool
    dry_run: bool
    manifests: int
    problems: tuple[str, ...]


def _policy(stack: Stack, cluster: str) -> _Policy:
    with aws_trouble(stack.where):
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
