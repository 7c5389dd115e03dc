"""Reads the state of the clusters from the table, and prints it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from leeway.admission.record import ADMISSION, Admission
from leeway.capacity_requests import CAPACITY_REQUEST, CapacityRequest
from leeway.headroom.status import STATUS as HEADROOM_STATUS
from leeway.headroom.status import HeadroomStatus
from leeway.manifests.cluster import Cluster
from leeway.manifests.reading import read_salvaged, read_stored
from leeway.pool_pauses import POOL, PoolRecord
from leeway.printable import printable
from leeway.provisioning.report import STATUS, ProvisioningStatus
from leeway.reasons import Reason
from leeway.retirement.drain import DRAIN_STATE, DrainState
from leeway.retirement.progress import Stage
from leeway.retirement.record import (
    OVER,
    RETIREMENT,
    ReplacementIntent,
    Retirement,
    Successor,
)
from leeway.table import OPEN
from leeway.wiring.clients import table
from rich.console import Group, RenderableType
from rich.text import Text

from leeway_cli.errors import aws_errors
from leeway_cli.manifests.changes import CLUSTER, age
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
    records = table(name=stack.table)
    with aws_errors(stack.where):
        open_now = records.find(OPEN, cluster, RETIREMENT, ADMISSION, unreadable=lambda _: None)
        found = {r.instance: r for r in open_now if isinstance(r, Retirement)}
        for instance in set(recent) - found.keys():
            ended = records.get(RETIREMENT, cluster=cluster, instance=instance)
            if ended is not None:
                found[instance] = ended
        drains = records.get_many(
            DRAIN_STATE, [{"cluster": cluster, "instance": instance} for instance in found]
        )
        states = {one.instance: one for one in drains}
        headroom = records.list(HEADROOM_STATUS, cluster=cluster)
        pools = records.list(POOL, cluster=cluster)
        asked = records.list(CAPACITY_REQUEST, cluster=cluster)
        provisioning = records.get(STATUS, cluster=cluster)
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


MOST_PODS = 12
"""How many pods of a node are listed; the others are counted."""

_NOT_GONE = (Stage.BLOCKED, Stage.FAILED, Stage.PENDING, Stage.TERMINATING, Stage.RETURNED)


def as_view(statuses: Sequence[ClusterStatus], now: datetime) -> RenderableType:
    """Render for a terminal."""
    parts: list[RenderableType] = []
    for status in statuses:
        parts += [_heading(status), *_body(status, now), Text()]
    return Group(*parts[:-1])


def _heading(status: ClusterStatus) -> Text:
    heading = Text(status.cluster, style="bold")
    for on, word in ((status.paused, "paused"), (status.dry_run, "dry run")):
        if on:
            heading.append(f"  {word}", style="bold yellow")
    return heading


def _body(status: ClusterStatus, now: datetime) -> Iterator[RenderableType]:
    for problem in status.problems:
        yield Text(f"  problem: {problem}", style="red")
    for pool in status.paused_pools:
        since = f" since {age(now - pool.paused_at)}" if pool.paused_at else ""
        yield Text(f"  pool {pool.pool} paused{since}: {pool.paused}", style="yellow")
    for retirement in status.retirements:
        yield from _retirement_lines(retirement, now)
    for admission in status.admissions:
        left = age(admission.deadline - now)
        text = f"admission, {admission.phase}, {left} left: {admission.reason}"
        yield _line(admission.instance, admission.facts.private_dns_name, text)
    for kept in status.headroom:
        size = "unchanged" if kept.replicas is None else f"{kept.replicas} replicas"
        if kept.pending:
            size += f", {kept.pending} of them Pending"
        yield _line(kept.subject, kept.source, f"{size}: {kept.problem or kept.reason}")
    if status.provisioning is not None:
        yield from _provisioning_lines(status.provisioning, now)
    if not (status.retirements or status.admissions or status.headroom or status.provisioning):
        yield Text("  no retirement, admission, headroom or launch", style="dim")


def _provisioning_lines(one: ProvisioningStatus, now: datetime) -> Iterator[Text]:
    parts = [f"last run {age(now - one.run_at)} ago ({one.why or 'no reason given'})"]
    if one.dry_run:
        parts.append("dry run")
    if one.launched_at is not None:
        count, ago = one.launched_count, age(now - one.launched_at)
        parts.append(f"launched {count} instances {ago} ago: {_launched_kinds(one)}")
    waiting = sum(group.count for group in one.without_node) + one.others
    parts.append(f"{waiting} of {one.pods} pods without a place get no node")
    yield _line("launches", "", ", ".join(parts))
    if one.failure is not None:
        yield Text(f"      {_reason(one.failure)}", style="red")
    for ahead in one.ahead:
        yield Text(f"      {_reason(ahead)}")
    for problem in one.problems:
        yield Text(f"      {_reason(problem)}", style="yellow")
    for group in one.without_node[:MOST_PODS]:
        names = ", ".join(group.some) + (" …" if group.count > len(group.some) else "")
        yield Text(f"      {group.count} pods get no node: {_reason(group.reason)} ({names})")
    others = one.others + sum(group.count for group in one.without_node[MOST_PODS:])
    if others:
        yield Text(f"      {others} pods get no node for other reasons")
    if one.returned and one.returned_at is not None:
        count, ago = len(one.returned), age(now - one.returned_at)
        yield _line("gives back", "", f"{count} decisions {ago} ago")
        for reason in one.returned:
            yield Text(f"      {printable(reason.message)}")


def _launched_kinds(one: ProvisioningStatus) -> str:
    kinds = Counter((i.instance_type, i.zone, i.capacity_type) for i in one.launched)
    return ", ".join(f"{count} {' '.join(kind)}" for kind, count in kinds.most_common(MOST_PODS))


def _reason(reason: Reason) -> str:
    return f"{reason.code}: {printable(reason.message)}"


def _line(name: str, place: str, text: str) -> Text:
    line = Text("  ")
    line.append(name, style="bold")
    line.append(f"  {place}  " if place else "  ", style="dim")
    return line.append(text)


def _retirement_lines(one: RetirementStatus, now: datetime) -> Iterator[Text]:
    record, drain = one.record, one.drain
    parts = [f"{record.kind}, {record.phase}", *_terms(record), *_time_left(record, now)]
    if record.replacement_intent:
        parts.append(f"replacement {_replacement(record.replacement_intent)}")
    if record.phase in OVER and record.must_restore_capacity:
        parts.append("still in its group, although a successor was requested for it")
    if record.phase in OVER and record.needs_termination:
        parts.append("to be terminated by Leeway, not terminated yet")
    parts += _counts(drain)
    node = drain.node if drain else record.facts.private_dns_name
    yield _line(record.instance, node, ", ".join(parts))
    for line in (*_capacity(one.request), *_pods(drain)):
        yield Text(f"      {line}")


def _terms(record: Retirement) -> list[str]:
    """Why a node of Leeway's own is given back, and what that saves."""
    terms = record.returns
    if terms is None:
        return []
    saving = f"saves {terms.saving:.4f} USD per hour" if terms.saving else "saves nothing by itself"
    return [f"given back as {printable(terms.cause)}", saving]


def _replacement(intent: ReplacementIntent) -> str:
    successors = (f"{one.instance} ({one.instance_type}, {one.zone})" for one in intent.successors)
    return " ".join([intent.method, *successors])


def _capacity(request: CapacityRequest | None) -> Iterator[str]:
    """The answer to the request for nodes of Leeway's pools."""
    if request is None:
        return
    answer = request.answer
    if answer is None:
        yield "nodes are requested for its pods, and provision_nodes has not answered"
        return
    launched = ", ".join(answer.launched) or "none"
    yield f"nodes launched for its pods: {launched}; pods with a place before: {answer.existing}"
    for message in dict.fromkeys(reason.message for reason in answer.without_node):
        yield f"pods without a node: {message}"


def _time_left(record: Retirement, now: datetime) -> list[str]:
    if record.phase in OVER or record.deadline is None:
        return []
    left = record.deadline - now
    return [f"{age(left)} left" if left.total_seconds() >= 0 else f"{age(-left)} past the deadline"]


def _counts(drain: DrainState | None) -> list[str]:
    if drain is None:
        return []
    stages = Counter(pod.stage for pod in drain.pods)
    counts = [f"{stages[Stage.GONE]}/{len(drain.pods)} pods gone"]
    return counts + [f"{stages[stage]} {stage}" for stage in _NOT_GONE if stages[stage]]


def _pods(drain: DrainState | None) -> Iterator[str]:
    if drain is None:
        return
    if drain.problem:
        yield f"pods cannot be listed: {drain.problem}"
    remaining = [pod for pod in drain.pods if pod.stage in _NOT_GONE]
    for pod in remaining[:MOST_PODS]:
        yield f"{pod.pod} {pod.stage}: {pod.reason}"
    if len(remaining) > MOST_PODS:
        yield f"and {len(remaining) - MOST_PODS} more"


def as_data(statuses: Sequence[ClusterStatus]) -> dict[str, Any]:
    """Render as JSON."""
    return {"clusters": [_cluster(status) for status in statuses]}


def _cluster(status: ClusterStatus) -> dict[str, Any]:
    return {
        "cluster": status.cluster,
        "paused": status.paused,
        "dryRun": status.dry_run,
        "manifests": status.manifests,
        "problems": list(status.problems),
        "pausedPools": [
            {
                "pool": one.pool,
                "pausedAt": one.paused_at.isoformat() if one.paused_at else None,
                "reason": asdict(one.paused) if one.paused else None,
            }
            for one in status.paused_pools
        ],
        "retirements": [_retirement(one) for one in status.retirements],
        "admissions": [
            {
                "instance": one.instance,
                "phase": one.phase.value,
                "deadline": one.deadline.isoformat(),
                "reason": asdict(one.reason),
            }
            for one in status.admissions
        ],
        "headroom": [
            {
                "subject": one.subject,
                "manifest": one.source,
                "replicas": one.replicas,
                "pending": one.pending if one.ready is not None else None,
                "reason": asdict(one.reason) if one.reason else None,
                "problem": asdict(one.problem) if one.problem else None,
            }
            for one in status.headroom
        ],
        "provisioning": _provisioning(status.provisioning),
    }


def _provisioning(one: ProvisioningStatus | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "runAt": one.run_at.isoformat(),
        "why": one.why,
        "dryRun": one.dry_run,
        "pods": one.pods,
        "launchedAt": one.launched_at.isoformat() if one.launched_at else None,
        "launchedCount": one.launched_count,
        "launched": [
            {
                "instance": i.instance,
                "instanceType": i.instance_type,
                "zone": i.zone,
                "capacityType": i.capacity_type,
                "pool": i.pool,
            }
            for i in one.launched
        ],
        "ahead": [asdict(ahead) for ahead in one.ahead],
        "withoutNode": [
            {"reason": asdict(group.reason), "count": group.count, "pods": list(group.some)}
            for group in one.without_node
        ],
        "others": one.others,
        "problems": [asdict(problem) for problem in one.problems],
        "returnedAt": one.returned_at.isoformat() if one.returned_at else None,
        "returned": [asdict(reason) for reason in one.returned],
        "failure": asdict(one.failure) if one.failure else None,
    }


def _successors(record: Retirement) -> tuple[Successor, ...]:
    return record.replacement_intent.successors if record.replacement_intent else ()


def _returns(record: Retirement) -> dict[str, Any] | None:
    terms = record.returns
    return {"cause": terms.cause, "savingPerHour": round(terms.saving, 6)} if terms else None


def _retirement(one: RetirementStatus) -> dict[str, Any]:
    record, drain = one.record, one.drain
    return {
        "instance": record.instance,
        "node": drain.node if drain else record.facts.private_dns_name,
        "kind": record.kind.value,
        "returns": _returns(record),
        "attempt": record.attempt,
        "phase": record.phase.value,
        "noticedAt": record.noticed_at.isoformat(),
        "deadline": record.deadline.isoformat() if record.deadline else None,
        "replacement": record.replacement_intent.method if record.replacement_intent else None,
        "successors": [asdict(successor) for successor in _successors(record)],
        "capacityRequest": one.request.model_dump(mode="json") if one.request else None,
        "reason": asdict(record.reason),
        "seenAt": drain.at.isoformat() if drain else None,
        "pods": [
            {
                "pod": pod.pod,
                "stage": pod.stage.value,
                "method": pod.method.value if pod.method else None,
                "reason": asdict(pod.reason),
            }
            for pod in (drain.pods if drain else ())
        ],
    }
