"""Use case of reconcile: nodes of Auto Scaling groups follow the launch templates of their groups.

Each run reads what the groups of a cluster launch now, settles what became of the nodes that it
began with, decides, and starts retirements. The record is written before them, so of two runs, or
of a run and a person who stops it, one begins. A run that is missed or late does no harm.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache

from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS, Conflicts
from leeway.instances.facts import ObservedInstance, OwnerKind
from leeway.instances.group_template import GroupNow
from leeway.interruption.instance_state import read_instance
from leeway.policy.rules import (
    Action,
    ClusterPolicy,
    GroupDrift,
    OnBlocked,
    Replacement,
    Ruling,
)
from leeway.ports.aws import Groups, GroupTemplates
from leeway.ports.functions import RetireNode
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason, clause
from leeway.reconciliation.decide_roll import (
    GROUP_ROLL,
    GROUP_ROLL_HALTED,
    GroupRoll,
    KeptNode,
    SeenMember,
    decide_roll,
    drifted_members,
    first_kept,
)
from leeway.reconciliation.report import RECONCILE_INCOMPLETE, HandledFinding
from leeway.reconciliation.unhealthy_nodes import by_instance
from leeway.retirement.attempts import apply_return
from leeway.retirement.disruption_budget import read_ledger
from leeway.retirement.reasons import SUCCESSOR_NOT_READY
from leeway.retirement.record import RETIREMENT, ReturnTerms
from leeway.table import OPEN, RecordChanged, Table

NOT_STARTED_AFTER = timedelta(minutes=5)
"""How long after a run wrote that it begins with a node its retirement may be missing: then the run
ended between the two writes."""

DRIFTED = "Drifted"


@dataclass(slots=True)
class RollReport:
    """What a run did: the retirements that it began, problems, and why groups are halted."""

    begun: list[HandledFinding] = field(default_factory=list)
    problems: list[Reason] = field(default_factory=list)
    halted: list[Reason] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GroupRolls:
    """Lets nodes follow the launch templates of their groups."""

    table: Table
    templates: GroupTemplates
    groups: Groups
    retire_node: RetireNode
    clock: Clock

    def run(
        self,
        cluster: str,
        policy: ClusterPolicy,
        here: Mapping[str, ObservedInstance],
        read_nodes: Callable[[], Sequence[Node]],
    ) -> RollReport:
        """Begin with nodes that drifted, as far as the policy allows. `here` are the instances of
        the cluster by id. The API server is read only if there are such nodes.

        Raises:
            CloudUnavailable, CloudRefused: the records, or the groups, cannot be read.
        """
        report = RollReport()
        of_groups = _of_groups(here.values())
        if not of_groups:
            return report
        rolls = {one.group: one for one in self.table.list(GROUP_ROLL, cluster=cluster)}
        under_way = {name for name, one in rolls.items() if not one.is_over}
        for name in sorted(under_way - of_groups.keys()):
            self._end(rolls[name])
        wanted = {name for name in of_groups if policy.group_drift.automatic or name in under_way}
        if not wanted:
            return report
        now = self.templates.now(wanted)
        nodes = cache(read_nodes)
        for name in sorted(wanted & now.keys()):
            try:
                self._roll(
                    rolls.get(name), cluster, policy, now[name], of_groups[name], nodes, report
                )
            except API_ERRORS as error:
                what = f"replace drifted nodes of group {name}"
                report.problems.append(RECONCILE_INCOMPLETE(what=what, error=clause(error)))
        return report

    def _end(self, roll: GroupRoll) -> None:
        """End the roll of a group that has no node in the cluster any more: nodes that it launches
        later follow its template, and an old request replaces none of them."""
        ended = _ended(self.clock.now())
        with suppress(RecordChanged):
            self.table.put(GROUP_ROLL, roll.changed(left=0, moving={}, **ended))

    def _roll(
        self,
        stored: GroupRoll | None,
        cluster: str,
        policy: ClusterPolicy,
        group: GroupNow,
        members: Mapping[str, ObservedInstance],
        nodes: Callable[[], Sequence[Node]],
        report: RollReport,
    ) -> None:
        """Do one step of a group, and write how far it is."""
        if group.unread:
            what = f"read what group {group.name} launches"
            report.problems.append(RECONCILE_INCOMPLETE(what=what, error=group.unread))
            return
        now = self.clock.now()
        images = {name: one.facts.image for name, one in members.items()}
        drifted = drifted_members(group, images)
        if (stored is None or stored.is_over) and not drifted:
            return
        roll = _begun(stored, cluster, group, now)
        roll = self._settled(roll, group, now)
        fields: dict[str, object] = {"left": len(drifted), "waits": None}
        begin: Mapping[str, Reason] = {}
        if not drifted and not roll.moving:
            fields |= _ended(now)
        elif roll.halted is not None:
            report.halted.append(roll.halted)
        elif roll.asked_at is None and not policy.group_drift.automatic:
            fields["ended_at"] = now  # the cluster has it no more
        elif roll.stopped_at is None and drifted:
            decision = self._decide(roll, policy, group, drifted, members, nodes(), now)
            begin, fields["waits"] = decision
        if begin:
            fields["moving"] = {**roll.moving, **dict.fromkeys(begin, now)}
        changed = roll.model_copy(update=fields)
        if changed != stored:
            version = stored.version if stored is not None else 0
            try:
                self.table.put(GROUP_ROLL, changed.model_copy(update={"version": version + 1}))
            except RecordChanged:
                return  # a person, or another run, was faster
        if changed.halted is not None and (stored is None or stored.halted != changed.halted):
            report.problems.append(changed.halted)
        settings = roll.settings(policy.group_drift)
        for instance, reason in begin.items():
            attempt = self._retire(members[instance], reason, settings, now)
            done = f"Attempt {attempt} of its retirement was started."
            report.begun.append(HandledFinding(instance, reason, done))

    def _settled(self, roll: GroupRoll, group: GroupNow, now: datetime) -> GroupRoll:
        """Return the record with what became of the nodes that are being replaced."""
        members = {one.instance: one for one in group.members}
        moving, kept = dict(roll.moving), dict(roll.kept)
        replaced, halted = roll.replaced, roll.halted
        for instance, since in roll.moving.items():
            member = members.get(instance)
            if member is None or member.lifecycle_state.startswith("Terminating"):
                del moving[instance]
                replaced += 1
                continue
            ended = self._how_it_ended(roll.cluster, instance, since, now)
            if ended is None:
                continue
            del moving[instance]
            kept[instance] = KeptNode(at=now, reason=ended)
            not_ready = ended.code == SUCCESSOR_NOT_READY.name
            later = since >= (roll.launches_since or since)
            if not_ready and later and roll.stopped_at is None:
                halted = GROUP_ROLL_HALTED(
                    group=roll.group,
                    cluster=roll.cluster,
                    why=ended.message,
                    launches=roll.launches,
                )
        kept = {name: one for name, one in first_kept(kept) if name in members}
        return roll.model_copy(
            update={"moving": moving, "kept": kept, "replaced": replaced, "halted": halted}
        )

    def _how_it_ended(
        self, cluster: str, instance: str, since: datetime, now: datetime
    ) -> Reason | None:
        """Return why a node was kept whose retirement has ended; None if it goes on."""
        stored = read_instance(self.table, instance, [cluster]).retirement
        if stored is None or stored.noticed_at < since:
            return _NOT_STARTED if now - since >= NOT_STARTED_AFTER else None
        return None if stored.is_open or not stored.had_no_effect else stored.reason

    def _decide(
        self,
        roll: GroupRoll,
        policy: ClusterPolicy,
        group: GroupNow,
        drifted: Mapping[str, tuple[str, ...]],
        members: Mapping[str, ObservedInstance],
        nodes: Sequence[Node],
        now: datetime,
    ) -> tuple[Mapping[str, Reason], Reason | None]:
        found = by_instance(nodes, members)
        seen = {
            name: SeenMember(one.facts.image, one.launched_at, found.get(name))
            for name, one in members.items()
        }
        open_ = self.table.find(OPEN, roll.cluster, RETIREMENT, unreadable=lambda _: None)
        retiring = {one.instance for one in open_} | roll.moving.keys()
        ready = sum(node.ready for node in nodes)
        budget = read_ledger(self.table, roll.cluster).left(ready, policy.churn, now)
        rules = self.groups.rules(group.name)
        decision = decide_roll(roll, group, rules, drifted, seen, retiring, policy, budget, now)
        return decision.begin, decision.waits

    def _retire(
        self, observed: ObservedInstance, reason: Reason, settings: GroupDrift, now: datetime
    ) -> int:
        """Start the retirement of a node; returns its attempt."""
        facts = observed.facts
        blocked = OnBlocked.DELETE if settings.force else OnBlocked.WAIT
        deadline = now + settings.node_timeout
        ruling = Ruling(Action.RETIRE, deadline, Replacement.BEFORE, blocked, reason)
        terms = ReturnTerms(cause=DRIFTED, optional=True, forced=settings.force)
        conflicts = Conflicts(f"the retirement of {facts.instance}")
        while True:
            with conflicts:
                stored = read_instance(self.table, facts.instance, [facts.cluster]).retirement
                change = apply_return(stored, facts, ruling, terms, now)
                if change.write:
                    self.table.put(RETIREMENT, change.record)
                if change.start:
                    self.retire_node.start(facts.instance, facts.cluster, change.record.attempt)
                return change.record.attempt


_NOT_STARTED = RECONCILE_INCOMPLETE(what="start its retirement", error="the run ended before that")


def _of_groups(
    instances: Iterable[ObservedInstance],
) -> dict[str, dict[str, ObservedInstance]]:
    """Return the running instances of each group. EKS replaces the nodes of managed node groups."""
    found: dict[str, dict[str, ObservedInstance]] = {}
    for one in instances:
        if one.facts.owner.kind is OwnerKind.AUTO_SCALING_GROUP and one.state == "running":
            found.setdefault(one.group, {})[one.facts.instance] = one
    return found


def _ended(now: datetime) -> dict[str, object]:
    """Return the fields of a roll that ends because no node is left: nothing of a request stays."""
    nothing = dict.fromkeys(("asked_at", "stopped_at", "waits", "halted"))
    return {"ended_at": now, "kept": {}, **nothing}


def _begun(stored: GroupRoll | None, cluster: str, group: GroupNow, now: datetime) -> GroupRoll:
    """Return the record of a group with what it launches now. A group that launches something else
    than before is not halted any more."""
    if stored is None:
        stored = GroupRoll(cluster=cluster, group=group.name, begun_at=now)
    elif stored.is_over:
        stored = GroupRoll(cluster=cluster, group=group.name, begun_at=now, version=stored.version)
    if stored.launches == group.launches:
        return stored
    launches = {"launches": group.launches, "launches_since": now, "halted": None, "kept": {}}
    return stored.model_copy(update=launches)
