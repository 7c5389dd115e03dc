"""Reads the state of the clusters from the table, and prints it."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from leeway.admission.record import ADMISSION, Admission
from leeway.capacity_requests import CAPACITY_REQUEST, CapacityRequest
from leeway.clock import SystemClock
from leeway.headroom.reconciler import STATUS as HEADROOM_STATUS
from leeway.headroom.reconciler import HeadroomStatus
from leeway.hibernation import SLEEPING, SleepingPool
from leeway.manifests.cluster import Cluster
from leeway.manifests.configuration import MANIFEST_INVALID
from leeway.pool_pauses import MOST_FAILURES, POOL, PoolRecord
from leeway.printable import printable
from leeway.provisioning.report import STATUS, ProvisioningStatus
from leeway.reasons import Reason, counted
from leeway.retirement.context import DRAIN_STATE, DrainState
from leeway.retirement.progress import Stage
from leeway.retirement.reasons import (
    BUDGET_EXHAUSTED,
    CLUSTER_PAUSED,
    EVICTION_DENIED,
    INSTANCE_ENTERS_SERVICE,
    POD_DOES_NOT_END,
    POD_EVICTED,
    TARGETS_DRAIN,
)
from leeway.retirement.record import OVER, RETIREMENT, ReplacementIntent, Retirement
from leeway.table import OPEN, UnreadableRecord
from leeway.wiring.clients import table
from rich.console import Group, RenderableType
from rich.text import Text

from leeway_cli.errors import aws_errors
from leeway_cli.manifests.changes import age, reading_of
from leeway_cli.output import as_json, picked
from leeway_cli.stack import Stack
from leeway_cli.status.rolls import (
    RollStatus,
    read_rolls,
    roll_as_data,
    roll_lines,
    rolls_now,
)


@dataclass(frozen=True, slots=True)
class Attention:
    """What a person has to look at. `subject` is an instance, a pool, a pod or a manifest; `more`
    counts others with the same reason; `runbook` is the anchor of a section of docs/runbook.md."""

    subject: str
    reason: Reason
    more: int = 0
    runbook: str = ""


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
    the first run of provision_nodes. `pools` are the node pools whose last instances never joined
    or were never ready; Leeway launches nothing from those that are paused. Those
    that a person woke are among them, and `sleeping` are those that hibernate. `rolls` are
    the groups whose nodes follow their launch templates now. `unreadable` are the records
    that cannot be read: another version of Leeway may have written them."""

    cluster: str
    paused: bool
    dry_run: bool
    manifests: int
    problems: tuple[str, ...]
    retirements: tuple[RetirementStatus, ...]
    admissions: tuple[Admission, ...]
    headroom: tuple[HeadroomStatus, ...]
    provisioning: ProvisioningStatus | None
    pools: tuple[PoolRecord, ...] = ()
    sleeping: tuple[SleepingPool, ...] = ()
    rolls: tuple[RollStatus, ...] = ()
    unreadable: tuple[str, ...] = ()


def read_cluster_status(stack: Stack, cluster: str, recent: Iterable[str] = ()) -> ClusterStatus:
    """Read the status of a cluster. `recent` are instances whose retirements are read even if they
    have ended.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    records = table(name=stack.table)
    unread: list[UnreadableRecord] = []
    report = unread.append
    with aws_errors(stack.where):
        open_now = records.find(OPEN, cluster, RETIREMENT, ADMISSION, unreadable=report)
        found = {r.instance: r for r in open_now if isinstance(r, Retirement)}
        for instance in set(recent) - found.keys():
            ended = records.get(RETIREMENT, cluster=cluster, instance=instance, unreadable=report)
            if ended is not None:
                found[instance] = ended
        drains = records.get_many(
            DRAIN_STATE,
            [{"cluster": cluster, "instance": instance} for instance in found],
            unreadable=report,
        )
        states = {one.instance: one for one in drains}
        headroom = records.list(HEADROOM_STATUS, cluster=cluster, unreadable=report)
        pools = records.list(POOL, cluster=cluster, unreadable=report)
        asked = records.list(CAPACITY_REQUEST, cluster=cluster, unreadable=report)
        provisioning = records.get(STATUS, cluster=cluster, unreadable=report)
        sleeping = records.get(SLEEPING, cluster=cluster, unreadable=report)
        rolls = rolls_now(read_rolls(records, cluster, unreadable=report))
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
        pools=tuple(
            one for one in pools if one.paused or one.failures or one.unready or one.woken_until
        ),
        provisioning=provisioning,
        sleeping=sleeping.at(SystemClock().now()) if sleeping else (),
        rolls=rolls,
        unreadable=tuple(dict.fromkeys(map(str, unread))),
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
        reading = reading_of(one)
        problems += [
            f"{problem} (written by leeway {one.written_by})" for problem in reading.problems
        ]
        for written in reading.written:
            if isinstance(written.manifest, Cluster):
                paused, dry_run = written.manifest.spec.paused, written.manifest.spec.dry_run
    return _Policy(paused, dry_run, len(stored), tuple(problems))


MOST_PODS = 12
"""How many pods of a node are listed; the others are counted."""

MOST_UNREADABLE = 5
"""How many unreadable records are named; the others are counted."""

_NOT_GONE = (Stage.BLOCKED, Stage.FAILED, Stage.PENDING, Stage.TERMINATING, Stage.RETURNED)


def attention(status: ClusterStatus, now: datetime) -> tuple[Attention, ...]:
    """Return what needs a person."""
    if not codes_of(status, now):
        return ()
    from leeway_cli.reason_codes import declared_codes  # It imports what declares codes.

    runbook = {one.name: one.runbook for one in declared_codes() if one.runbook}
    return needs_a_person(status, runbook, now)


def as_view(statuses: Sequence[ClusterStatus], now: datetime) -> RenderableType:
    """Render for a terminal: clusters that need a person first."""
    told = [(attention(status, now), status) for status in statuses]
    parts: list[RenderableType] = []
    for needs, status in sorted(told, key=lambda one: not one[0]):
        parts += [_heading(status, needs), *map(_attention_line, needs)]
        parts += [*_body(status, {one.reason for one in needs}, now), Text()]
    return Group(*parts[:-1])


def _heading(status: ClusterStatus, needs: Sequence[Attention]) -> Text:
    heading = Text(status.cluster, style="bold")
    for on, word in ((status.paused, "paused"), (status.dry_run, "dry run")):
        if on:
            heading.append(f"  {word}", style="bold yellow")
    if needs:
        heading.append(f"  needs a person: {len(needs)}", style="bold red")
    return heading


def _attention_line(one: Attention) -> Text:
    more = f" and {one.more} more" if one.more else ""
    line = Text("  ! ", style="bold red")
    line.append(f"{printable(one.subject)}{more}  ", style="bold")
    return line.append(f"{_reason(one.reason)} (runbook: {one.runbook})", style="not bold default")


def _body(
    status: ClusterStatus, told: Collection[Reason], now: datetime
) -> Iterator[RenderableType]:
    """What Leeway does. The sentences of `told` stand above it."""
    yield from _unreadable_lines(status)
    yield from _pool_lines(status, told, now)
    for asleep in status.sleeping:
        yield Text(f"  pool {printable(asleep.pool)}  hibernates until {printable(asleep.until)}")
    for one in status.pools:
        if one.woken_until is not None and one.woken_until > now:
            by = f", by {printable(one.woken_by)}" if one.woken_by else ""
            until = f"{one.woken_until:%Y-%m-%d %H:%M} UTC"
            yield Text(f"  pool {printable(one.pool)}  was woken, and is awake until {until}{by}")
    for rolling in status.rolls:
        first, *others = roll_lines(rolling)
        yield _line(f"group {printable(rolling.roll.group)}", "", first)
        yield from (Text(f"      {one}") for one in others)
    for retirement in status.retirements:
        yield from _retirement_lines(retirement, told, now)
    late = {
        instance
        for pool in (status.provisioning.late if status.provisioning else ())
        for instance in pool.instances
    }
    for admission in status.admissions:
        left = age(admission.deadline - now)
        text = f"admission, {admission.phase}, {left} left: {admission.reason}"
        if admission.instance in late:
            text += " It is late, see its pool."
        yield _line(admission.instance, admission.facts.private_dns_name, text)
    for kept in status.headroom:
        size = "unchanged" if kept.replicas is None else counted(kept.replicas, "replica")
        if kept.pending:
            size += f", {kept.pending} of them Pending"
        why = kept.problem or kept.reason
        said = why.message if why is not None and why not in told else "see above"
        yield _line(kept.subject, kept.source, f"{size}: {said}")
    if status.provisioning is not None:
        yield from _provisioning_lines(status.provisioning, told, now)
    known = status.retirements or status.admissions or status.headroom or status.provisioning
    if not (known or status.unreadable):
        yield Text("  no retirement, admission, headroom or launch", style="dim")


def _unreadable_lines(status: ClusterStatus) -> Iterator[Text]:
    for problem in status.unreadable[:MOST_UNREADABLE]:
        yield Text(f"  a record is not readable: {printable(problem)}", style="yellow")
    if more := len(status.unreadable[MOST_UNREADABLE:]):
        yield Text(f"  {counted(more, 'more record')} cannot be read", style="yellow")


def _reason(reason: Reason, told: Collection[Reason] = ()) -> str:
    return (
        f"{reason.code}, see above"
        if reason in told
        else f"{reason.code}: {printable(reason.message)}"
    )


def _pool_lines(status: ClusterStatus, told: Collection[Reason], now: datetime) -> Iterator[Text]:
    """The pools whose instances do not join: how many failed in a row, and which are late now."""
    late = {one.pool: one for one in (status.provisioning.late if status.provisioning else ())}
    records = {one.pool: one for one in status.pools}
    for name in sorted(late.keys() | records.keys()):
        parts = []
        record = records.get(name)
        if record is not None and record.paused is not None:
            since = f" since {age(now - record.paused_at)}" if record.paused_at else ""
            parts.append(f"paused{since}: {_reason(record.paused, told)}")
        elif record is not None:
            for row, what in ((record.joins, "joined"), (record.admissions, "were ready")):
                if row.failures:
                    count = f"{len(row.failures)} of {MOST_FAILURES} never {what}"
                    parts.append(f"{count} ({row.instances}); at {MOST_FAILURES} it is paused")
        if name in late:
            parts.append(_reason(late[name].reason, told))
        for part in parts:
            yield Text(f"  pool {printable(name)}  {printable(part)}", style="yellow")


def _provisioning_lines(
    one: ProvisioningStatus, told: Collection[Reason], now: datetime
) -> Iterator[Text]:
    parts = [f"last run {age(now - one.run_at)} ago ({one.why or 'no reason given'})"]
    if one.dry_run:
        parts.append("dry run")
    if one.launched_at is not None:
        count, ago = one.launched_count, age(now - one.launched_at)
        parts.append(f"launched {counted(count, 'instance')} {ago} ago: {_launched_kinds(one)}")
    waiting = sum(group.count for group in one.without_node) + one.others
    homeless = f"{waiting} of {one.pods} pods without a place get no node"
    parts.append(homeless if one.pods else "every pod has a place")
    yield _line("launches", "", ", ".join(parts))
    if one.failure is not None:
        yield Text(f"      {_reason(one.failure, told)}", style="red")
    yield from (
        Text(f"      pool {printable(each.pool)} has {each.nodes} of its {each.replicas} nodes")
        for each in one.static_pools
    )
    for each in one.spending:
        whose = f"nodes of pool {printable(each.pool)}" if each.pool else "nodes of all pools"
        yield Text(f"      {whose} cost {each.used:.2f} of at most {each.most:.2f} USD per hour")
    for ahead in one.ahead:
        yield Text(f"      {_reason(ahead)}")
    for problem in one.problems:
        yield Text(f"      {_reason(problem, told)}", style="yellow")
    for group in one.without_node[:MOST_PODS]:
        names = ", ".join(group.some) + (" …" if group.count > len(group.some) else "")
        what = counted(group.count, "pod gets", "pods get")
        yield Text(f"      {what} no node: {_reason(group.reason, told)} ({names})")
    others = one.others + sum(group.count for group in one.without_node[MOST_PODS:])
    if others:
        yield Text(f"      {counted(others, 'pod gets', 'pods get')} no node for other reasons")
    if one.without_event:
        yield Text(f"      pods without an Event until now: {one.without_event}")
    if one.returned and one.returned_at is not None:
        count, ago = len(one.returned), age(now - one.returned_at)
        yield _line("gives back", "", f"{counted(count, 'decision')} {ago} ago")
        for reason in one.returned:
            yield Text(f"      {printable(reason.message)}")


def _launched_kinds(one: ProvisioningStatus) -> str:
    kinds = Counter((i.instance_type, i.zone, i.capacity_type) for i in one.launched)
    return ", ".join(f"{count} {' '.join(kind)}" for kind, count in kinds.most_common(MOST_PODS))


def _line(name: str, place: str, text: str) -> Text:
    line = Text("  ")
    line.append(name, style="bold")
    line.append(f"  {place}  " if place else "  ", style="dim")
    return line.append(text)


def _retirement_lines(
    one: RetirementStatus, told: Collection[Reason], now: datetime
) -> Iterator[Text]:
    record, drain = one.record, one.drain
    parts = [f"{record.kind}, {record.phase}", *_terms(record), *_time_left(record, now)]
    if record.replacement_intent:
        parts.append(f"replacement {_replacement(record.replacement_intent)}")
    if record.phase in OVER and record.must_restore_capacity:
        parts.append("still in its group, although a successor was requested for it")
    if record.phase in OVER and record.needs_termination:
        parts.append("to be terminated by Leeway, not terminated yet")
    parts += _counts(drain)
    yield _line(record.instance, _node_of(one), ", ".join(parts))
    for line in (*_problem(drain, told, now), *_capacity(one.request), *_pods(drain)):
        yield Text(f"      {line}")


def _node_of(one: RetirementStatus) -> str:
    return (one.drain and one.drain.node) or one.record.facts.private_dns_name


def _problem(drain: DrainState | None, told: Collection[Reason], now: datetime) -> Iterator[str]:
    """What keeps the retirement from its next step."""
    if drain is not None and drain.problem is not None:
        yield f"{_reason(drain.problem, told)} ({age(now - drain.at)} ago)"


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
    remaining = [pod for pod in drain.pods if pod.stage in _NOT_GONE]
    for pod in remaining[:MOST_PODS]:
        yield f"{pod.pod} {pod.stage}: {pod.reason}"
    if len(remaining) > MOST_PODS:
        yield f"and {len(remaining) - MOST_PODS} more"


def as_data(statuses: Sequence[ClusterStatus], now: datetime) -> dict[str, Any]:
    """Render as JSON."""
    return {"clusters": [_cluster(status, now) for status in statuses]}


def _cluster(status: ClusterStatus, now: datetime) -> dict[str, Any]:
    headroom = ("subject", "replicas", "reason", "problem")
    return {
        **picked(status, "cluster", "paused", "dry_run"),
        "needsAPerson": as_json(attention(status, now)),
        **picked(status, "manifests", "problems", "unreadable", "provisioning"),
        "pausedPools": [
            picked(one, "pool", "paused_at", reason="paused")
            for one in status.pools
            if one.paused is not None
        ],
        "pools": [_pool(one) for one in status.pools],
        "hibernatingPools": [picked(one, "pool", "until", "opens") for one in status.sleeping],
        "latePools": [
            picked(one, "pool", "instances", "count", "since", "reason")
            for one in (status.provisioning.late if status.provisioning else ())
        ],
        "rolls": [roll_as_data(one) for one in status.rolls],
        "retirements": [_retirement(one) for one in status.retirements],
        "admissions": [
            picked(one, "instance", "phase", "deadline", "reason") for one in status.admissions
        ],
        "headroom": [
            {
                **picked(one, *headroom, manifest="source"),
                "pending": one.pending if one.ready is not None else None,
            }
            for one in status.headroom
        ],
    }


def _pool(one: PoolRecord) -> dict[str, Any]:
    return {
        **picked(one, "pool"),
        "paused": one.paused is not None,
        "neverJoined": [failure.instance for failure in one.failures],
        "neverReady": [failure.instance for failure in one.unready],
        "mostInARow": MOST_FAILURES,
        **picked(one, "woken_until", "woken_at", "woken_by"),
    }


def _retirement(one: RetirementStatus) -> dict[str, Any]:
    record, drain, intent = one.record, one.drain, one.record.replacement_intent
    terms = record.returns
    return {
        **picked(record, "instance", "kind", "attempt", "phase", "noticed_at"),
        **picked(record, "deadline", "reason"),
        "returns": terms and picked(terms, "cause", savingPerHour="saving"),
        "node": _node_of(one),
        "problem": as_json(drain.problem if drain else None),
        "replacement": intent.method if intent else None,
        "successors": as_json(intent.successors if intent else ()),
        "capacityRequest": as_json(one.request),
        "seenAt": as_json(drain.at if drain else None),
        "pods": [
            picked(pod, "pod", "stage", "method", "reason") for pod in (drain.pods if drain else ())
        ],
    }


TIME_OF_A_DRAIN = timedelta(minutes=10)
"""After this time since its notice, a pod that does not leave its node needs a person. Before, it
waits for a budget, as drains do."""


def needs_a_person(
    status: ClusterStatus, runbook: Mapping[str, str], now: datetime
) -> tuple[Attention, ...]:
    """Return what needs a person: first nodes that stop with their pods, then pods that get no
    node, then what will cause either. `runbook` has the section of each code that somebody has to
    act on; other codes are left out."""
    found: dict[Reason, Attention] = {}
    for subject, reason, more in _candidates(status, now):
        if (section := runbook.get(reason.code)) is None:
            continue
        before = found.get(reason)
        if before is None:
            found[reason] = Attention(subject, reason, more, section)
        elif before.subject != subject:
            found[reason] = Attention(before.subject, reason, before.more + 1 + more, section)
    return tuple(found.values())


def codes_of(status: ClusterStatus, now: datetime) -> Collection[str]:
    """Return the codes of all that may need a person: empty for a healthy cluster."""
    return {reason.code for _, reason, _ in _candidates(status, now)}


def _candidates(status: ClusterStatus, now: datetime) -> Iterator[tuple[str, Reason, int]]:
    """Yield subjects, reasons, and how many others have the same."""
    for one in status.retirements:
        yield from ((_name(one), reason, 0) for reason in _of_retirement(one, now))
    run = status.provisioning
    if run is not None:
        if run.failure is not None:
            yield status.cluster, run.failure, 0
        for group in run.without_node:
            yield f"pod {group.some[0]}", group.reason, group.count - 1
    for pool in status.pools:
        if pool.paused is not None:
            yield f"pool {pool.pool}", pool.paused, 0
    rolls = [one.roll for one in status.rolls]
    yield from ((f"group {one.group}", one.halted, 0) for one in rolls if one.halted)
    if run is not None:
        yield from ((f"pool {late.pool}", late.reason, 0) for late in run.late)
        yield from ((status.cluster, problem, 0) for problem in run.problems)
    for kept in status.headroom:
        if kept.problem is not None:
            yield kept.subject, kept.problem, 0
    for invalid in status.problems:
        yield status.cluster, MANIFEST_INVALID(problem=invalid, author=""), 0


def _name(one: RetirementStatus) -> str:
    return (one.drain and one.drain.node) or one.record.instance


_WAITS = frozenset(
    one.name for one in (BUDGET_EXHAUSTED, CLUSTER_PAUSED, INSTANCE_ENTERS_SERVICE, TARGETS_DRAIN)
)
"""Brakes that work as their settings say: nobody has to act on a retirement that waits for them."""

_REMAIN = frozenset({Stage.PENDING, Stage.BLOCKED, Stage.TERMINATING, Stage.RETURNED})


def _of_retirement(one: RetirementStatus, now: datetime) -> Iterator[Reason]:
    record, drain = one.record, one.drain
    if drain is None or record.phase in OVER:
        return
    if drain.problem is not None and drain.problem.code not in _WAITS:
        yield drain.problem
    late = record.deadline is not None and now > record.deadline
    late = late or now - record.noticed_at > TIME_OF_A_DRAIN
    for pod in drain.pods:
        denied = pod.reason.code == EVICTION_DENIED.name
        if denied or pod.stage is Stage.FAILED or (late and pod.stage in _REMAIN):
            evicted = pod.reason.code == POD_EVICTED.name
            yield POD_DOES_NOT_END(pod.reason) if evicted else pod.reason
