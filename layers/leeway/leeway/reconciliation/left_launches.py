"""Use case of reconcile: continue launches that were left undone, and remove what they leave."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from leeway.admission.readiness import (
    CLOCKS_DIFFER_BY,
    ExpectedNode,
    ObservedNode,
    unmet_conditions,
)
from leeway.admission.record import (
    ADMISSION,
    Admission,
    AdmissionRequest,
    AdmissionResult,
    Launch,
    apply_request,
    repeated_launch_request,
)
from leeway.clock import Clock
from leeway.execution.attempt import OVERDUE
from leeway.execution.retrying import API_ERRORS, Conflicts
from leeway.instances.facts import InstanceFacts, ObservedInstance, OwnerKind
from leeway.interruption.instance_state import InstanceState, read_instance
from leeway.launch.carry_out import LAUNCHED_NODE_NOT_ADMITTED, NODE_LAUNCHED
from leeway.launch.intent import (
    INTENT,
    INTENT_BY_HAND,
    JOIN_WITHIN,
    REPEAT_WITHIN,
    LaunchIntent,
    all_intents,
)
from leeway.launch.templates import OwnedLaunchTemplates, OwnedTemplate
from leeway.parallel import in_parallel
from leeway.policy.rules import Action, OnBlocked, Replacement, Ruling
from leeway.pool_pauses import POOL
from leeway.ports.functions import AdmitNode, RetireNode
from leeway.ports.kubernetes_objects import Node
from leeway.reasons import Reason, ReasonCode, clause
from leeway.reconciliation.clean_up import ClusterNodes
from leeway.reconciliation.report import RECONCILE_INCOMPLETE, HandledFinding, LaunchCheck
from leeway.reconciliation.unhealthy_nodes import by_instance
from leeway.retirement.attempts import apply_return
from leeway.retirement.reasons import NODE_DELETED
from leeway.retirement.record import (
    ENDED_WITHOUT_NODE_AFTER,
    RETIREMENT,
    Retirement,
    ReturnTerms,
)
from leeway.selection.labels import CAPACITY_TYPE, NODEPOOL
from leeway.table import Table, UnreadableRecord

LAUNCH_NOT_ADMITTED = ReasonCode(
    "LaunchNotAdmitted",
    "Launched instance {instance} of pool {pool} has not been admitted: {why}.",
    "nodes-are-not-ready",
)
LAUNCH_UNKNOWN = ReasonCode(
    "LaunchUnknown",
    "The tags of instance {instance} say that Leeway launched it for pool {pool}, and the table "
    "has neither an admission nor a launch intent that names it. Leeway does not terminate it: "
    "find out who launched or tagged it, and terminate it if it is not needed.",
    "an-instance-is-tagged-as-leeways",
)
NODES_VANISHED = ReasonCode(
    "NodesVanished",
    "{count} of {launched} running instances that Leeway launched for cluster {cluster} have no "
    "Node ({instances}): Leeway ends none of them, because the API server may have lost its "
    "objects. Check the cluster; restart the kubelets of the instances, or end them.",
    "the-node-of-an-instance-was-deleted",
)

TEMPLATES_CHECKED_EVERY = timedelta(minutes=59)
"""How long a check of a cluster's launch templates is claimed."""

AT_ONCE = 8

MOST_NAMED = 10
"""Instances that a sentence about many names."""


class LeftLaunches:
    """The launches of clusters."""

    def __init__(
        self,
        table: Table,
        admit_node: AdmitNode,
        retire_node: RetireNode,
        templates: OwnedLaunchTemplates,
        clock: Clock,
    ) -> None:
        self._table = table
        self._admit_node = admit_node
        self._retire_node = retire_node
        self._templates = templates
        self._clock = clock

    def check_instances(self, cluster: str, instances: Sequence[ObservedInstance]) -> LaunchCheck:
        """Start the admissions of launched instances that have none or whose execution has died.
        Nobody else starts those of instances that a person launched."""
        now = self._clock.now()
        new = [one for one in instances if may_be_new(one, now)]
        by_hand = self._by_hand(cluster) if new else ()
        mine = {one.id for one in by_hand}
        suspects = [one for one in instances if may_be_left(one, now)]
        suspects += [one for one in new if one.intent in mine and one not in suspects]
        if not suspects:
            return LaunchCheck()
        intents = self._table.list(INTENT, cluster=cluster)

        def check(one: ObservedInstance, known: InstanceState) -> LeftInstance | None:
            return check_left_instance(one, known.admission, intents, by_hand, self._clock.now())

        return _checked(in_parallel(partial(self._check, check), suspects, AT_ONCE))

    def check_late_nodes(
        self, cluster: str, instances: Sequence[ObservedInstance], nodes: ClusterNodes
    ) -> LaunchCheck:
        """Start the admissions of joined instances again that ended before the nodes were ready for
        pods, and whose nodes are now, and those whose execution has died."""
        now = self._clock.now()
        joined = {
            one.facts.instance: one
            for one in instances
            if has_joined(one) and now - one.launched_at >= JOIN_WITHIN
        }
        if not joined:
            return LaunchCheck()
        late = by_instance(nodes.uninitialized(), joined)

        def check(one: ObservedInstance, known: InstanceState) -> LeftInstance | None:
            return check_late_node(late[one.facts.instance], known, self._clock.now())

        suspects = [joined[instance] for instance in late]
        return _checked(in_parallel(partial(self._check, check), suspects, AT_ONCE))

    def _by_hand(self, cluster: str) -> tuple[LaunchIntent, ...]:
        return self._table.list(INTENT_BY_HAND, cluster=cluster, unreadable=lambda _: None)

    def _check(
        self,
        check: Callable[[ObservedInstance, InstanceState], "LeftInstance | None"],
        observed: ObservedInstance,
    ) -> HandledFinding | Reason | None:
        """Check one instance; an error is a problem of this instance alone."""
        instance = observed.facts.instance
        try:
            left = check(observed, self._known(observed.facts))
            if left is None or left.request is None:
                return None if left is None else left.reason
            attempt = self._admit(observed.facts, left.request)
        except (*API_ERRORS, UnreadableRecord) as error:
            return LAUNCHED_NODE_NOT_ADMITTED(instance=instance, error=clause(error))
        return HandledFinding(
            instance, left.reason, f"Leeway started attempt {attempt} of the admission."
        )

    def _known(self, facts: InstanceFacts) -> InstanceState:
        return read_instance(self._table, facts.instance, [facts.cluster])

    def _admit(self, facts: InstanceFacts, request: AdmissionRequest) -> int:
        """Start an admission; returns its attempt."""
        conflicts = Conflicts(f"the admission of {facts.instance}")
        while True:
            with conflicts:
                change = apply_request(self._known(facts).admission, request, facts)
                if change.write:
                    self._table.put(ADMISSION, change.record)
                if change.start:
                    self._admit_node.start(facts.instance, facts.cluster, change.record.attempt)
                return change.record.attempt

    def check_nodes(
        self, cluster: str, instances: Sequence[ObservedInstance], nodes: ClusterNodes
    ) -> LaunchCheck:
        """Start the retirement of joined instances whose Node was deleted. If most of them have no
        Node, start none."""
        joined = [one for one in instances if has_joined(one)]
        without = _without_node(joined, nodes) if joined else []
        if have_vanished(len(without), len(joined)):
            some = ", ".join(sorted(one.facts.instance for one in without)[:MOST_NAMED])
            vanished = NODES_VANISHED(
                count=len(without), launched=len(joined), cluster=cluster, instances=some
            )
            return LaunchCheck(problems=(vanished,))
        return _checked(in_parallel(self._check_node, without, AT_ONCE))

    def _check_node(self, observed: ObservedInstance) -> HandledFinding | Reason | None:
        """Check one instance without a Node; an error is a problem of this instance alone."""
        instance, now = observed.facts.instance, self._clock.now()
        try:
            known = self._known(observed.facts)
            reason = check_deleted_node(observed, known.admission, known.retirement, now)
            if reason is None or reason.code != NODE_DELETED.name:
                return reason
            attempt = self._retire(observed.facts, reason, now)
        except (*API_ERRORS, UnreadableRecord) as error:
            what = f"end instance {instance}, which has no Node"
            return RECONCILE_INCOMPLETE(what=what, error=clause(error))
        return HandledFinding(instance, reason, f"Attempt {attempt} of its retirement was started.")

    def _retire(self, facts: InstanceFacts, reason: Reason, now: datetime) -> int:
        """Start the retirement of an instance without a Node; returns its attempt."""
        ruling = Ruling(Action.RETIRE, None, Replacement.NONE, OnBlocked.WAIT, reason)
        terms = ReturnTerms(cause=NODE_DELETED.name)
        conflicts = Conflicts(f"the retirement of {facts.instance}")
        while True:
            with conflicts:
                stored = self._known(facts).retirement
                change = apply_return(stored, facts, ruling, terms, now)
                if change.write:
                    self._table.put(RETIREMENT, change.record)
                if change.start:
                    self._retire_node.start(facts.instance, facts.cluster, change.record.attempt)
                return change.record.attempt

    def delete_unused_templates(self, cluster: str) -> Sequence[str]:
        """Delete launch templates that no launch uses, at most once an hour."""
        now = self._clock.now()
        if not self._table.claim(f"launch-templates-{cluster}", now + TEMPLATES_CHECKED_EVERY):
            return ()
        owned = self._templates.owned_by(cluster)
        if not owned:
            return ()
        unused = unused_templates(cluster, owned, all_intents(self._table, cluster, now), now)
        in_parallel(lambda one: self._templates.delete_template(one.id), unused, AT_ONCE)
        return [one.name for one in unused]

    def paused_pools(self, cluster: str) -> Sequence[Reason]:
        """Read why pools of a cluster are paused."""
        records = self._table.list(POOL, cluster=cluster)
        return [one.paused for one in records if one.paused is not None]


def _checked(results: Collection[HandledFinding | Reason | None]) -> LaunchCheck:
    return LaunchCheck(
        tuple(one for one in results if isinstance(one, HandledFinding)),
        tuple(one for one in results if isinstance(one, Reason)),
    )


def _without_node(
    joined: Sequence[ObservedInstance], nodes: ClusterNodes
) -> list[ObservedInstance]:
    """Return the instances that the cluster has no Node for. All Nodes are read only if no Node has
    a name of an instance: a user may have chosen other names."""
    names = nodes.names()
    unnamed = [
        one for one in joined if not names & {one.facts.private_dns_name, one.facts.instance}
    ]
    if not unnamed:
        return []
    read = nodes.nodes()
    return [one for one in unnamed if not any(node.runs_on(one.facts.instance) for node in read)]


ADMITTED_AGAIN_AFTER = timedelta(hours=1)
"""How long after an admission ended without a node that is ready for pods it is repeated: a missing
permission to terminate the instance or to label the node, for example, may have been granted."""

RETURNED_AGAIN_AFTER = timedelta(minutes=10)
"""How long after the retirement of an instance without a Node ended it is repeated: the cluster or
EC2 may not have answered."""

WATCHED_FOR = timedelta(days=29)
"""How long after its launch an instance is checked: admission records are kept for 30 days."""


@dataclass(frozen=True, slots=True)
class LeftInstance:
    """A launched instance that needs an admission (`request`), or a person (None)."""

    reason: Reason
    request: AdmissionRequest | None = None


def may_be_left(observed: ObservedInstance, now: datetime) -> bool:
    """Whether the records of an instance are to be checked. EKS tags an instance that joins, so
    most need no read."""
    age = now - observed.launched_at
    return (
        observed.facts.owner.kind is OwnerKind.LEEWAY
        and not observed.group
        and not observed.facts.joined
        and observed.state in {"pending", "running"}
        and REPEAT_WITHIN <= age < WATCHED_FOR
    )


def may_be_new(observed: ObservedInstance, now: datetime) -> bool:
    """Whether an instance may be one that a person launched, and that nobody has admitted."""
    leeway = observed.facts.owner.kind is OwnerKind.LEEWAY and not observed.group
    age = now - observed.launched_at
    return leeway and observed.state in {"pending", "running"} and age < JOIN_WITHIN


def check_left_instance(
    observed: ObservedInstance,
    admission: Admission | None,
    intents: Collection[LaunchIntent],
    by_hand: Collection[LaunchIntent],
    now: datetime,
) -> LeftInstance | None:
    """Check an instance that may be left; None if there is nothing to do now. `intents` are those
    of provision_nodes, `by_hand` those that people wrote.

    An instance without an admission and without a launch intent that names it is only reported:
    everybody with the right to tag instances can write its tags.
    """
    instance = observed.facts.instance
    if admission is not None:
        why = "it runs, and its admission ended without a node"
        return _of_admission(admission, now, why, ADMITTED_AGAIN_AFTER)
    named = (one for one in (*intents, *by_hand) if one.id == observed.intent)
    intent = next(named, None)
    if intent is None or not _launched(intent, observed):
        if now - observed.launched_at < JOIN_WITHIN:
            return None
        pool = observed.facts.owner.name
        return LeftInstance(LAUNCH_UNKNOWN(instance=instance, pool=pool))
    if intent in intents and now < intent.created_at + REPEAT_WITHIN:
        return None
    why = "no admission of it was started"
    reason = LAUNCH_NOT_ADMITTED(instance=instance, pool=intent.pool, why=why)
    return LeftInstance(reason, _request(intent, observed, now))


def check_late_node(node: Node, known: InstanceState, now: datetime) -> LeftInstance | None:
    """Check a node that is not initialized, of an instance whose time to join is over; None if
    there is nothing to do now.

    Only an admission initializes a node. One that has ended is repeated once the Node meets the
    conditions, so that each repetition but a few succeeds: the first time at once, then after an
    hour. Karpenter, too, initializes a node whenever it becomes ready.
    """
    admission, retirement = known.admission, known.retirement
    if admission is None or (retirement is not None and retirement.is_open):
        return None
    expected = ExpectedNode((), admission.startup_taints, admission.promised)
    if not admission.is_open and unmet_conditions(ObservedNode.of(node), expected):
        return None
    why = "its node is ready for pods, and was not when its admission ended"
    again_after = ADMITTED_AGAIN_AFTER if admission.attempt > 1 else timedelta(0)
    return _of_admission(admission, now, why, again_after)


def has_joined(observed: ObservedInstance) -> bool:
    """Whether an instance that runs has joined, by the tags that only EC2 and EKS write, and is
    Leeway's, by its other tags."""
    facts = observed.facts
    own = facts.owner.kind is OwnerKind.LEEWAY and not observed.group
    return own and facts.joined and facts.from_fleet and observed.state == "running"


def have_vanished(without_node: int, joined: int) -> bool:
    """Whether so many of the joined instances have no Node that the API server may have lost its
    objects: more than half of them, and more than one."""
    return without_node > 1 and 2 * without_node > joined


def check_deleted_node(
    observed: ObservedInstance,
    admission: Admission | None,
    retirement: Retirement | None,
    now: datetime,
) -> Reason | None:
    """Check an instance that has joined and that the cluster has no Node for; None if there is
    nothing to do now. NODE_DELETED: it is to be returned. LAUNCH_UNKNOWN: no record says that
    Leeway launched it, so a person has to look at it."""
    facts = observed.facts
    instance, pool = facts.instance, facts.owner.name
    launch = admission.launch if admission is not None else None
    if admission is None or launch is None or admission.facts.cluster != facts.cluster:
        return LAUNCH_UNKNOWN(instance=instance, pool=pool)
    if (launch.pool, launch.intent) != (pool, observed.intent):
        return LAUNCH_UNKNOWN(instance=instance, pool=pool)
    if admission.is_open or (retirement is not None and _covers(retirement, now)):
        return None
    return NODE_DELETED(
        instance=instance,
        pool=pool,
        cluster=facts.cluster,
        minutes=ENDED_WITHOUT_NODE_AFTER.total_seconds() / 60,
    )


def _covers(retirement: Retirement, now: datetime) -> bool:
    ended_at = retirement.ended_at
    return retirement.is_open or (ended_at is not None and now < ended_at + RETURNED_AGAIN_AFTER)


def _of_admission(
    admission: Admission, now: datetime, ended: str, again_after: timedelta
) -> LeftInstance | None:
    """`ended` says why an admission that has ended is repeated, after this time."""
    if admission.launch is None or admission.result is AdmissionResult.ADMITTED:
        return None
    instance = admission.instance
    if admission.is_open:
        if now <= admission.deadline + OVERDUE:
            return None
        why = "the execution of its admission has died"
    else:
        ended_at = admission.ended_at or admission.deadline
        if now < ended_at + again_after:
            return None
        why = ended
    reason = LAUNCH_NOT_ADMITTED(instance=instance, pool=admission.launch.pool, why=why)
    return LeftInstance(reason, repeated_launch_request(admission, now))


def _launched(intent: LaunchIntent, observed: ObservedInstance) -> bool:
    """Whether an intent can have launched an instance whose tag names it."""
    named = {one.instance for one in intent.instances}
    facts = observed.facts
    return (
        intent.cluster == facts.cluster
        and intent.pool == facts.owner.name
        and observed.launched_at >= intent.created_at - CLOCKS_DIFFER_BY
        and (not intent.is_answered or facts.instance in named)
    )


def _request(intent: LaunchIntent, observed: ObservedInstance, now: datetime) -> AdmissionRequest:
    instance = observed.facts.instance
    return AdmissionRequest(
        id=f"left-{intent.id}",
        requested_at=now,
        deadline=max(intent.created_at + JOIN_WITHIN, now),
        reason=NODE_LAUNCHED(instance=instance, pool=intent.pool),
        launch=Launch(intent=intent.id, pool=intent.pool, at=intent.created_at),
        labels={
            **intent.labels_for_admission,
            NODEPOOL: intent.pool,
            CAPACITY_TYPE: observed.facts.capacity_type,
            **(observed.facts.reservation.labels if observed.facts.reservation else {}),
        },
        annotations=intent.annotations,
        taints=intent.taints_for_admission,
        startup_taints=intent.startup_taints,
        promised=intent.promised,
    )


UNUSED_AFTER = timedelta(hours=1)
"""The age from which a launch template is deleted if no intent names it. The table keeps intents
for an hour, so no launch has used it in that time. A launch that needs it later creates it again,
with one call; templates that stay would reach EC2's quota of 5,000 in a region, since each process
makes its own, and new ones for each AMI release and each change of user data."""

MOST_DELETED = 200
"""How many templates one run deletes. The others follow an hour later."""


def unused_templates(
    cluster: str,
    templates: Iterable[OwnedTemplate],
    intents: Iterable[LaunchIntent],
    now: datetime,
) -> tuple[OwnedTemplate, ...]:
    """Return the templates to delete, the oldest first.

    The form of the name is checked too: everybody with the right to tag launch templates can write
    the tags of other ones.
    """
    form = re.compile(rf"leeway-{re.escape(cluster)}-[0-9a-f]{{12}}-[0-9a-f]{{6}}")
    used = {template for intent in intents for template in intent.templates}
    found = [
        one
        for one in templates
        if form.fullmatch(one.name) and one.id not in used and now - one.created_at >= UNUSED_AFTER
    ]
    return tuple(sorted(found, key=lambda one: one.created_at)[:MOST_DELETED])
