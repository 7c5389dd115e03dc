"""One run of launches: what it plans and prepares, what EC2 has refused, and its outcome."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from leeway.capacity_requests import PriceLimit
from leeway.catalog.unavailable import Offering, UnavailableOfferings
from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS
from leeway.hibernation import Sleeping
from leeway.instances.facts import InstanceFacts
from leeway.launch.carry_out import CarriedOut, unanswered
from leeway.launch.fleet_errors import DENIED, REFUSALS, Cause, cause_of, consequences_of
from leeway.launch.fleets import FleetInstance, Fleets, LaunchGroup, Offers, groups_of
from leeway.launch.images import variant_of
from leeway.launch.intent import (
    POD_WITHOUT_NODE,
    LaunchedNode,
    LaunchIntent,
    LaunchOutcome,
    PodWithoutNode,
    doubted_pools,
    labels_for_admission,
    nodes_on_the_way,
    overdue_nodes,
)
from leeway.launch.node_settings import NodeSettings, NotLaunchable, settings_of
from leeway.launch.prepare import PreparedLaunch, machines_of, prepare
from leeway.launch.prices import (
    ROUNDING,
    PriceCeiling,
    Prices,
    SpendingLimit,
    affordable,
    ceilings,
    lowest,
    too_dear,
    within_limit,
)
from leeway.launch.reservations import RESERVATIONS_NOT_READ
from leeway.launch.resolve_pools import NodeSources, PoolResolver
from leeway.launch.static_pools import plan_static_pools, replacements, shortages
from leeway.launch.templates import LaunchTemplates
from leeway.manifests.base import Manifest
from leeway.parallel import in_parallel
from leeway.policy.rules import UNAVAILABLE_FOR
from leeway.pool_pauses import PoolRecord
from leeway.ports.functions import AdmitNode
from leeway.reasons import Reason, ReasonCode, clause
from leeway.selection.labels import ZONE
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.offers.reservations import Reservation
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import LAUNCHES, pack
from leeway.selection.packing.refused_offerings import refused_offerings
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec, Taint, Toleration
from leeway.selection.requirements import Requirement, Requirements
from leeway.table import Record, Table

POOL_NOT_READ = ReasonCode(
    "PoolNotRead",
    "Leeway cannot read from AWS what nodes of pool {pool} need: {error}.",
    "a-node-pool-launches-no-nodes",
)

NODE_NOT_LAUNCHED = ReasonCode("NodeNotLaunched", "The node is not launched yet: {why}.")

REPLACEMENT_TOO_DEAR = ReasonCode(
    "ReplacementTooDear",
    "No new node for the pods that move costs less than the nodes that would go.",
)

LAUNCHES_CAPPED = ReasonCode(
    "LaunchesCapped",
    "Cluster {cluster} has reached its maximum of launches in ten minutes: Leeway continues as "
    "time passes; spec.launches.atMost of the Cluster manifest changes the maximum.",
    "launches-are-held-back",
)


_IN_DOUBT = Taint("leeway.sh/join-in-doubt")
"""A taint that only plans know (see `LaunchRun.plan`)."""

_TOLERATION = Toleration(_IN_DOUBT.key, "Exists")


class InstanceDescriptions(Protocol):
    """Instances of EC2."""

    def describe_all(self, instances: Collection[str]) -> Mapping[str, InstanceFacts]:
        """Read instances by their ids. Those that EC2 does not know yet, and those whose tags do
        not name exactly one cluster, are left out."""
        ...


IMPROVE_FOR = timedelta(seconds=1)
"""How long a plan is improved. Pods wait for it meanwhile, and most batches are planned to the end
in less."""

AT_ONCE = 8
"""Fleets that one run requests at the same time, and offerings that it marks."""

SHOWN_AFTER = timedelta(minutes=1)
"""How long after a launch EC2 may not list its instances yet."""


@dataclass(frozen=True, slots=True)
class LaunchDependencies:
    """The ports of a launch. `intents` is the kind of intents that it writes: INTENT, or
    INTENT_BY_HAND. Without `admit_node`, reconcile starts the admissions. `new_id` makes ids of
    intents."""

    sources: NodeSources
    templates: LaunchTemplates
    fleets: Fleets
    table: Table
    intents: Record[LaunchIntent]
    offerings: UnavailableOfferings
    admit_node: AdmitNode | None
    instances: InstanceDescriptions
    clock: Clock
    new_id: Callable[[], str]


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """The pods to launch nodes for, and the state of their cluster.

    `nodes` are those that run, `joined` the instances that have a Node, with the name of the Node,
    `daemons` the pods of DaemonSets. `closed` are instances that take no pods: they retire, or
    their Node is being deleted. They count against the limits of their pools. `unavailable` are
    offerings that this run does not request. `price_limits` are those of what is launched for some
    of the pods, by pod. `most` is the maximum number of instances that it launches, and `ceiling`
    what all nodes may cost, None for no maximum. It begins no round after `until`, and improves no
    plan any longer. `retiring` are the instances of each static pool that retire and that another
    one is launched for; None leaves static pools as they are. `moving` are the pods of nodes that
    work and are given back. Nothing is launched from the pools `sleeping`. `launch_block` says,
    right before each round, why nothing is launched at all.
    """

    cluster: str
    manifests: Sequence[Manifest]
    catalog: Catalog
    pods: Sequence[Pod]
    nodes: Sequence[ExistingNode] = ()
    joined: Mapping[str, str] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    daemons: Sequence[PodSpec] = ()
    unavailable: frozenset[Unavailable] = frozenset()
    price_limits: Mapping[str, PriceLimit] = field(default_factory=dict)
    most: int | None = None
    ceiling: PriceCeiling | None = None
    until: datetime | None = None
    retiring: Mapping[str, Sequence[str]] | None = None
    moving: frozenset[str] = frozenset()
    sleeping: Sleeping = field(default_factory=dict)
    launch_block: Callable[[datetime], Reason | None] = lambda _: None


@dataclass
class Supplies:
    """The supplies of the last plans, the oldest first."""

    _kept: list[tuple[object, Catalog, Supply]] = field(default_factory=list)

    def of(
        self,
        pools: Sequence[NodePool],
        catalog: Catalog,
        unavailable: Iterable[Unavailable],
        daemons: Sequence[PodSpec],
    ) -> Supply:
        """Return the supply of these pools."""
        key = (tuple(pools), frozenset(unavailable), tuple(daemons))
        self._kept = [one for one in self._kept if one[2].arrays <= MOST_ARRAYS]
        for known in self._kept:
            if known[1] is catalog and known[0] == key:
                self._kept.remove(known)
                break
        else:
            known = (key, catalog, Supply(pools, catalog, key[1], daemons))
        self._kept = [*self._kept, known][-MOST_KEPT:]
        return known[2]


@dataclass
class LaunchRun:
    """The state of one run: what it has launched, and what it no longer requests. `found` are the
    instances of requests that an earlier run left without an answer. `denied` are the pools of
    which EC2 denied a launch: another launch of them is tried once. `records` are those of pools.
    Pools that hibernate are `blocked` too.
    """

    deps: LaunchDependencies
    order: LaunchOrder
    supplies: Supplies
    intents: list[LaunchIntent]
    blocked: dict[str, Reason] = field(default_factory=dict)
    records: Sequence[PoolRecord] = ()
    unavailable: set[Unavailable] = field(default_factory=set)
    exhausted: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    launched: dict[str, LaunchedNode] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)
    reasons: list[Reason] = field(default_factory=list)
    stopped: tuple[Reason, ...] = ()
    throttled: bool = False
    capped: Reason | None = None
    added: int = 0
    spent: dict[str, float] = field(default_factory=dict)
    dear: frozenset[str] = frozenset()
    short: dict[str, Reason] = field(default_factory=dict)
    otherwise: str = "EC2 did not launch it, and the next run tries again"
    places: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._settings = settings_of(self.order.manifests)
        self._resolver = PoolResolver(self.deps.sources, self.order.cluster)
        with suppress(*API_ERRORS):  # without the marks, EC2 itself refuses
            region, now = self.order.catalog.region, self.deps.clock.now()
            self.unavailable |= self.deps.offerings.now(region, now)
        self.unavailable |= self.order.unavailable
        self._gone = self._ended_instances()
        self._doubted: frozenset[str] = frozenset()
        if self.order.moving:
            known = {*self.order.joined, *self.order.closed, *self._gone}
            now = self.deps.clock.now()
            self._doubted = doubted_pools(self.records, self.intents, known, now)
        self.prices = Prices(self.order.catalog)
        self._unread: set[str] = set()
        self._ceiling = self.order.ceiling or PriceCeiling()
        self._spending_limits: tuple[SpendingLimit, ...] | None = None

    def _ended_instances(self) -> frozenset[str]:
        """The launched instances without a Node that do not start or run any more: a Spot
        interruption may end an instance before it joins, or delete its Node. While EC2 does not
        answer, none."""
        now = self.deps.clock.now()
        limited = {pool.name for pool in self._pools if pool.is_limited}
        awaited = {
            instance.instance
            for intent in self.intents
            if now - intent.created_at > SHOWN_AFTER
            if intent.may_join(now) or intent.pool in limited
            for instance in intent.instances
        } - self.order.joined.keys()
        if not awaited:
            return frozenset()
        try:
            return frozenset(awaited) - self.deps.fleets.alive(awaited)
        except API_ERRORS:
            return frozenset()

    def check_time(self) -> None:
        """Stop if the run has no time for a further round."""
        until = self.order.until
        if until is not None and self.deps.clock.now() >= until:
            self.stopped = (
                *self.stopped,
                NODE_NOT_LAUNCHED(why="the run has no time left, and the next run goes on"),
            )

    def plan(self) -> Plan:
        """Plan for all pods: on nodes that exist, on launched ones, and on new ones."""
        now, catalog = self.deps.clock.now(), self.order.catalog
        nodes, limits = [*itertools.chain(*self._known_nodes())], self.order.price_limits
        pools = [pool for one in self._settings if (pool := self._open(one)) is not None]
        wanted: Sequence[Pod] = self.order.pods
        daemons = self.order.daemons
        if self._doubted:
            nodes, pools, wanted = self._with_doubts(nodes, pools)
            daemons = tuple(map(_tolerant, daemons))
        supply = self.supplies.of(pools, catalog, self.unavailable, daemons)
        self.dear = frozenset()
        while True:
            pods = [pod for pod in wanted if pod.name not in self.dear]
            plan = pack(pods, supply, nodes, LAUNCHES, self._may_improve(now))
            dear = too_dear(plan, limits)
            if not dear:
                return plan
            self.dear |= dear

    def _with_doubts(
        self, nodes: Iterable[ExistingNode], pools: Sequence[NodePool]
    ) -> tuple[list[ExistingNode], list[NodePool], list[Pod]]:
        """Return nodes, pools and pods with which pods of nodes that are given back come to no
        instance on its way in a pool in doubt, unless it was launched for them, and to a new one
        only if no other pool has any. For the plan, such an instance has a taint that all other
        pods tolerate."""
        now = self.deps.clock.now()
        launched = {each.instance for one in self.intents for each in one.instances}
        coming = launched - self.order.joined.keys() - self._gone
        tainted = [
            replace(one, taints=(*one.taints, _IN_DOUBT))
            if one.pool in self._doubted and one.name in coming
            else one
            for one in nodes
        ]
        last = min((one.weight for one in pools), default=0) - 1
        ordered = [replace(p, weight=last) if p.name in self._doubted else p for p in pools]
        served = {
            pod
            for one in self.intents
            if one.may_join(now) and any(each.instance in coming for each in one.instances)
            for pod in one.pods
        }
        moving = self.order.moving - served
        tolerant: dict[int, PodSpec] = {}
        pods = []
        for pod in self.order.pods:
            if pod.name not in moving:
                spec = tolerant.get(id(pod.spec))
                if spec is None:
                    spec = tolerant[id(pod.spec)] = _tolerant(pod.spec)
                pods.append(replace(pod, spec=spec))
            else:
                pods.append(pod)
        return tainted, ordered, pods

    def plan_static(self) -> Plan:
        """Plan the nodes that static pools lack, and say which lack more than is planned."""
        retiring, order = self.order.retiring or {}, self.order
        nodes, overdue = self._known_nodes()
        leaving = {order.joined.get(one, one) for one in order.closed}
        leaving |= {one.name for one in overdue}
        awake = [one for one in self._pools if one.name not in self.order.sleeping]
        short = shortages(awake, [*nodes, *overdue], leaving)
        opened = {
            one.pool: pool
            for one in self._settings
            if any(each.pool.name == one.pool for each in short)
            if (pool := self._open(one)) is not None
        }
        replaced = self._replacements(leaving)
        static = plan_static_pools(
            [replace(one, pool=opened[one.pool.name]) for one in short if one.pool.name in opened],
            {pool: [one for one in some if one not in replaced] for pool, some in retiring.items()},
            lambda pool: self.supplies.of((pool,), order.catalog, self.unavailable, order.daemons),
        )
        self.places = static.places
        last = next(iter(self.stopped or self.reasons[-1:]), None)
        self.short = {
            one.pool.name: one.reason(
                self.blocked.get(one.pool.name)
                or static.problems.get(one.pool.name)
                or one.at_limit
                or self.capped
                or last
                or NODE_NOT_LAUNCHED(why=self.otherwise)
            )
            for one in short
        }
        return static.plan

    def _replacements(self, lost: Collection[str]) -> dict[str, tuple[str, ...]]:
        """The instances in the places of those that retire from static pools. `lost` are names of
        nodes and ids of instances that have not joined."""
        retiring = {one for some in (self.order.retiring or {}).values() for one in some}
        names = {instance: name for instance, name in self.order.joined.items() if name in lost}
        gone = {*self._gone, *names, *lost}
        return replacements(self.intents, retiring, gone) if retiring else {}

    def _known_nodes(self) -> tuple[list[ExistingNode], tuple[ExistingNode, ...]]:
        """The nodes that exist and those on the way; and those that are too late to join."""
        now, catalog = self.deps.clock.now(), self.order.catalog
        ended = self.order.joined.keys() - self.found | self._gone
        on_the_way = nodes_on_the_way(self.intents, ended, self._pools, catalog, now)
        overdue = overdue_nodes(self.intents, ended, self._pools, catalog, now)
        nodes = self._nodes(on_the_way)
        if self._spending_limits is None:
            self._spending_limits = self._ceiling.spending_limits(
                self.order.cluster, self._pools, [*nodes, *overdue], self.prices
            )
        return nodes, overdue

    def _may_improve(self, begun: datetime) -> Callable[[], bool]:
        """Return whether a plan that began at this time may be improved further."""
        clock, until = self.deps.clock, begun + IMPROVE_FOR
        if self.order.until is not None:
            until = min(until, self.order.until)
        return lambda: clock.now() < until

    def _nodes(self, on_the_way: Sequence[ExistingNode]) -> list[ExistingNode]:
        """The nodes that exist, and those on the way.

        A found instance may have a Node that starts. Without the answer to its request the Node was
        read without its pool: it counts as what was launched, with the pods that it has.
        """
        joined, closed = self.order.joined, self.order.closed
        launched = [one.closed() if one.name in closed else one for one in on_the_way]
        promised = {joined[one.name]: one for one in launched if one.name in joined}
        coming = [one for one in launched if one.name not in joined]
        return [*(_as_promised(one, promised.get(one.name)) for one in self.order.nodes), *coming]

    def pool_settings(self, pool: str) -> NodeSettings | None:
        """Return the settings of a pool; None if it has no manifest any more."""
        return next((one for one in self._settings if one.pool == pool), None)

    @property
    def _pools(self) -> list[NodePool]:
        return [one.template.pool for one in self._settings]

    def _open(self, settings: NodeSettings) -> NodePool | None:
        """The pool in the zones that have a subnet; None if nothing is launched from it."""
        if settings.pool in self.blocked:
            return None
        choice = self._unless_blocked(
            settings, lambda: self._resolver.subnets(settings, self.exhausted)
        )
        if choice is None:
            return None
        if not choice.by_zone:
            self.blocked[settings.pool] = choice.left_out[0]
            return None
        zones = Requirements([Requirement.of(ZONE, "In", list(choice.by_zone))])
        pool = settings.template.pool
        within = within_limit(pool, self.spending_limits(), self.prices)
        return replace(
            within,
            requirements=within.requirements.intersection(zones),
            reservations=self._reservations(settings),
        )

    def _reservations(self, settings: NodeSettings) -> tuple[Reservation, ...]:
        """The reservations of a pool. Pods do not wait for them: if they cannot be read, other
        capacity is launched, and this run does not read them again."""
        if settings.pool in self._unread:
            return ()
        try:
            usable, not_used = self._resolver.reservations(
                settings, self.intents, self.deps.clock.now()
            )
        except API_ERRORS as error:
            self._unread.add(settings.pool)
            self.reasons.append(RESERVATIONS_NOT_READ(pool=settings.pool, error=clause(error)))
            return ()
        self.reasons += (one for one in not_used if one not in self.reasons)
        return usable

    def spending_limits(self) -> tuple[SpendingLimit, ...]:
        """Return what further nodes may cost, after those that this run has launched."""
        return tuple(limit.after(self.spent) for limit in self._spending_limits or ())

    def prepare(self, plan: Plan) -> tuple[PreparedLaunch, ...]:
        """Prepare the launches of a plan; pools that cannot be launched from become blocked."""
        by_name = {one.pool: one for one in self._settings}
        limits = ceilings(plan, self.order.price_limits)
        found = []
        for group, billed in self._within_ceiling(self._within_cap(groups_of(plan))):
            settings = by_name[group.pool.name]
            below = lowest(limits, group.nodes)
            work = partial(self._prepared, group, settings, below, billed)
            prepared = self._unless_blocked(settings, work)
            if prepared is not None:
                found.append(prepared)
        return tuple(found)

    def _within_cap(self, groups: Iterable[LaunchGroup]) -> Iterator[LaunchGroup]:
        """The groups, with as many nodes as may still be launched."""
        most = self.order.most
        if most is None:
            yield from groups
            return
        left = max(0, most - self.added)
        for group in groups:
            if len(group.nodes) > left:
                self.capped = LAUNCHES_CAPPED(cluster=self.order.cluster)
            if left:
                yield replace(group, nodes=group.nodes[:left])
            left = max(0, left - len(group.nodes))

    def _within_ceiling(self, groups: Iterable[LaunchGroup]) -> Iterator[tuple[LaunchGroup, float]]:
        """The groups with the nodes that limits in money allow, and what each is billed less than.

        A pool without room for any of its nodes becomes blocked, so that the next plan uses other
        pools.
        """
        given = list(groups)
        moving = {**self._ceiling.moving, **self.places}
        wanted = (node for group in given for node in group.nodes)
        allowed = affordable(wanted, self.spending_limits(), moving, self.prices)
        open_pools = {group.pool.name for group in given if allowed.keep(group.nodes)}
        for limit, reason in allowed.refused.items():
            if not limit.pool:
                self.capped = reason
            elif limit.pool not in open_pools:
                self.blocked[limit.pool] = reason
        for group in given:
            if nodes := allowed.keep(group.nodes):
                yield replace(group, nodes=nodes), lowest(allowed.below, nodes)

    def capped_pods(self, plan: Plan, prepared: Sequence[PreparedLaunch]) -> list[str]:
        """The planned pods whose nodes the maximum or the ceiling excludes."""
        launched = {pod for one in prepared for pod in one.intent.pods}
        return [pod for pod in planned_pods(plan) if pod not in launched] if self.capped else []

    def _prepared(
        self, group: LaunchGroup, settings: NodeSettings, below: float, billed: float
    ) -> PreparedLaunch:
        catalog, unavailable = self.order.catalog, tuple(self.unavailable)
        bills = Offers(catalog, unavailable)
        overlaid = bool(group.pool.node_class.overlays)
        offers = Offers(catalog, unavailable, group.pool.node_class) if overlaid else bills
        machines = machines_of(group, catalog)
        variants = {variant_of(machine) for machine in machines.values()}
        pool = self._resolver.resolve(settings, variants, self.exhausted)
        now, intent = self.deps.clock.now(), self.deps.new_id()
        prepared = prepare(group, pool, catalog, offers, intent, now, below, bills, billed)
        moving = {**self._ceiling.moving, **self.places}
        replaces = sorted({moving[pod] for pod in group.pods if pod in moving})
        update: dict[str, object] = {"replaces": tuple(replaces)}
        if settings.template.pool.replicas is not None:
            update["pods"] = ()
        return replace(prepared, intent=prepared.intent.model_copy(update=update))

    def _unless_blocked[T](self, settings: NodeSettings, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except NotLaunchable as problem:
            self.blocked[settings.pool] = problem.reason
        except API_ERRORS as error:
            self.blocked[settings.pool] = POOL_NOT_READ(pool=settings.pool, error=clause(error))
        return None

    def accept(self, results: Sequence[CarriedOut]) -> None:
        """Add intents after their requests, and leave out what EC2 has refused. What the table has
        refused blocks its pool only: the other launches of the round were carried out."""
        marks: dict[Unavailable, str] = {}
        self.throttled = False
        denied: set[str] = set()
        for one in results:
            if one.refused is not None:
                self.blocked[one.intent.pool] = one.refused
                continue
            self.intents.append(one.intent)
            pool, codes = one.intent.pool, {error.code for error in one.errors}
            found = consequences_of(
                pool,
                one.errors,
                denied_before=pool in self.denied,
                settings=self.pool_settings(pool),
            )
            if DENIED in codes or Cause.TEMPLATE in map(cause_of, codes):
                # It may have been deleted since it was created: the next round looks for it.
                self.deps.templates.doubt(one.intent.templates)
            self.reasons += found.reasons
            self.unavailable |= found.unavailable.keys() | found.avoided
            self.exhausted |= found.exhausted
            self.throttled |= found.repeat
            marks |= found.unavailable
            if found.blocked is not None:
                self.blocked[pool] = found.blocked
            denied |= {pool} if DENIED in codes else set()
        self.denied |= denied
        self.stopped = (*self.stopped, *unanswered(results))
        if self.deps.admit_node is not None:  # people do not write for other runs
            in_parallel(self._mark, list(marks.items()), AT_ONCE)

    def _mark(self, marked: tuple[Unavailable, str]) -> None:
        """Mark an offering for other runs; this one leaves it out in any case."""
        one, code = marked
        region, until = self.order.catalog.region, self.deps.clock.now() + UNAVAILABLE_FOR
        offering = Offering(region, one.instance_type, one.zone, one.capacity_type)
        with suppress(*API_ERRORS):
            self.deps.offerings.mark(offering, code, until)

    def labels(self, intent: LaunchIntent, instance: FleetInstance) -> dict[str, str]:
        """The labels that admission puts on the node of an instance."""
        pool = next((one for one in self._pools if one.name == intent.pool), None)
        if pool is None:
            return dict(intent.labels_for_admission)
        return dict(labels_for_admission(intent, instance, pool, self.order.catalog))

    def outcome(self, plan: Plan, waiting: Iterable[str] = ()) -> LaunchOutcome:
        """The outcome, with the last plan; `waiting` are planned pods whose nodes were not
        launched."""
        blocked = self._blocked_pods(plan)
        others = [one for one in self.reasons if one not in self.blocked.values()]
        last = (*others[-1:], *self.stopped)
        missing = {one.pod: one.reason for one in plan.unschedulable if one.pod not in blocked}
        missing |= self._refused_pods(missing)
        refusals = [one for one in others if one.code in REFUSALS]
        waits = self.capped or next(
            iter((*refusals[-1:], *self.stopped, *others[-1:])),
            NODE_NOT_LAUNCHED(why=self.otherwise),
        )
        missing |= dict.fromkeys(waiting, waits)
        missing |= dict.fromkeys(sorted(self.dear), REPLACEMENT_TOO_DEAR())
        whys = {pod: _why(cause, last) for pod, cause in missing.items()}
        whys |= {pod: _why(cause, self.stopped) for pod, cause in blocked.items()}
        without = tuple(
            PodWithoutNode(pod, POD_WITHOUT_NODE(pod=pod, why=whys[pod]), cause=cause)
            for pod, cause in {**missing, **blocked}.items()
        )
        problems = (why for pool, why in self.blocked.items() if pool not in self.order.sleeping)
        shown = [*self.reasons, *problems, *self.stopped]
        if self.capped is not None:
            shown.append(self.capped)
        return LaunchOutcome(
            tuple(self.launched.values()),
            plan.existing,
            without,
            tuple(dict.fromkeys([*shown, *self.short.values()])),
            self.short,
            self._replacements({self.order.joined.get(one, one) for one in self.order.closed}),
        )

    def _refused_pods(self, missing: Iterable[str]) -> Mapping[str, Reason]:
        """Those of the pods without a node that EC2 has refused the offerings for."""
        without = {*missing}
        if not (without and self.unavailable):
            return {}
        nodes, overdue = self._known_nodes()
        return refused_offerings(
            [pod for pod in self.order.pods if pod.name in without],
            [pool for one in self._settings if (pool := self._open(one)) is not None],
            self.order.catalog,
            self.unavailable,
            self.order.daemons,
            [*nodes, *overdue],
        )

    def _blocked_pods(self, plan: Plan) -> dict[str, Reason]:
        """The pods without a node that a blocked pool, or one at its limit in money, has nodes for,
        each with the reason. The plan does not know these nodes, and would name the mismatch with
        another pool."""
        without = {one.pod for one in plan.unschedulable}
        limits = {one.pool: one for one in self.spending_limits() if one.pool}
        pools = [one for one in self._pools if one.name in self.blocked or one.name in limits]
        if not without or not pools:
            return {}
        pods = [pod for pod in self.order.pods if pod.name in without]
        supply = Supply(pools, self.order.catalog, (), self.order.daemons)
        # Without the nodes that exist: they have room for other pods of the plan.
        possible = pack(pods, supply, proceed=lambda: False)
        found = dict[str, Reason]()
        for node in possible.launches:
            price, limit = self.prices.of_planned(node), limits.get(node.pool)
            reason = self.blocked.get(node.pool)
            if reason is None and limit is not None and price > limit.widest + ROUNDING:
                reason = limit.reached(price)
            found |= dict.fromkeys(node.pods, reason) if reason is not None else {}
        return found


def _as_promised(node: ExistingNode, promise: ExistingNode | None) -> ExistingNode:
    if promise is None:
        return node
    return replace(
        node,
        labels={**node.labels, **promise.labels},
        allocatable=promise.allocatable,
        capacity=promise.capacity,
        taints=promise.taints,
        pool=promise.pool,
    )


def planned_pods(plan: Plan) -> list[str]:
    """Return the pods of a plan's new nodes."""
    return [pod for node in plan.launches for pod in node.pods]


LONGEST_WHY = 4_000
"""Characters of the causes in the reason of a pod. A cause quotes what the pod requires, and each
of its replicas has a copy; an Event shows 1,024 characters."""


def _why(cause: Reason, others: Iterable[Reason]) -> str:
    whole = " ".join(dict.fromkeys([cause.message, *(one.message for one in others)]))
    return whole if len(whole) <= LONGEST_WHY else f"{whole[:LONGEST_WHY]}…"


MOST_KEPT = 4
"""Supplies that are kept. One takes some megabytes."""

MOST_ARRAYS = 1000
"""A supply that holds more arrays is not kept: it has one for each requirement that a pod has had,
and whoever may create pods may write any."""


def _tolerant(spec: PodSpec) -> PodSpec:
    """Return a pod that a plan may place on an instance in doubt."""
    return replace(spec, tolerations=(*spec.tolerations, _TOLERATION))
