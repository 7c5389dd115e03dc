"""The use case: plan, prepare, launch, and plan again with what is left, within one run."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from leeway.execution.retrying import API_ERRORS
from leeway.hibernation import stopped_pools
from leeway.instances.facts import InstanceFacts
from leeway.launch.carry_out import IntentExecutor
from leeway.launch.fleet_errors import launch_refused
from leeway.launch.fleets import groups_of
from leeway.launch.intent import (
    INTENT_BY_HAND,
    LatePool,
    LaunchedNode,
    LaunchIntent,
    LaunchOutcome,
    all_intents,
    intents_by_hand,
    late_pools,
)
from leeway.launch.launch_run import (
    AT_ONCE,
    NODE_NOT_LAUNCHED,
    LaunchDependencies,
    LaunchOrder,
    LaunchRun,
    Supplies,
    planned_pods,
)
from leeway.launch.prepare import PreparedLaunch
from leeway.parallel import in_parallel
from leeway.pool_pauses import POOL
from leeway.reasons import clause
from leeway.selection.packing.plan import Placement, Plan

MOST_ROUNDS = 6
"""How often one run plans and launches. Each round leaves out what EC2 has refused."""

THROTTLED_PAUSE = 2.0
"""Seconds before the next round if EC2 throttled overrides of a fleet."""


@dataclass(frozen=True, slots=True)
class LaunchPreview:
    """The first round of a launch, which was not carried out."""

    plan: Plan
    prepared: tuple[PreparedLaunch, ...]
    outcome: LaunchOutcome


class LaunchNodes:
    """Launches nodes for pods."""

    def __init__(self, deps: LaunchDependencies) -> None:
        self._deps = deps
        self._supplies = Supplies()
        self._executor = IntentExecutor(
            deps.fleets,
            deps.table,
            deps.intents,
            deps.admit_node,
            deps.clock,
        )

    def preview(self, order: LaunchOrder) -> LaunchPreview:
        """Plan and prepare; write nothing and launch nothing.

        Raises:
            CloudUnavailable, CloudRefused: the table cannot be read.
        """
        records = self._deps.table.list(POOL, cluster=order.cluster)
        intents = all_intents(self._deps.table, order.cluster, self._deps.clock.now())
        stopped = stopped_pools(records, order.sleeping)
        run = LaunchRun(self._deps, order, self._supplies, intents, stopped, records)
        if order.retiring is not None:
            run.otherwise = "this run only plans"
            _prepared_plan(run, run.plan_static)
        plan, prepared = _prepared_plan(run, run.plan)
        return LaunchPreview(plan, prepared, run.outcome(plan, run.capped_pods(plan, prepared)))

    def late_pools(
        self, intents: Sequence[LaunchIntent], known: Collection[str]
    ) -> tuple[LatePool, ...]:
        """Return the pools with instances that run and are late to join. `known` are instances that
        have a Node or retire. EC2 is called only if there are others."""
        now = self._deps.clock.now()
        missing = {name for one in late_pools(intents, known, now) for name in one.instances}
        if not missing:
            return ()
        ended: frozenset[str] = frozenset()
        with suppress(*API_ERRORS):  # while EC2 does not answer, all of them
            ended = frozenset(missing) - self._deps.fleets.alive(missing)
        return late_pools(intents, {*known, *ended}, now)

    def launch(self, order: LaunchOrder) -> LaunchOutcome:
        """Launch nodes, and start the admission of each.

        Raises:
            CloudUnavailable, CloudRefused: the table cannot be read.
        """
        table = self._deps.table
        records, now = table.list(POOL, cluster=order.cluster), self._deps.clock.now()
        if self._deps.intents is INTENT_BY_HAND:
            intents = intents_by_hand(table, order.cluster, now)
        else:
            intents = list(table.list(self._deps.intents, cluster=order.cluster))
        stopped = stopped_pools(records, order.sleeping)
        answered = [one for one in intents if one.is_answered]
        # The instances of the other kind of intents count. Who wrote these admits them.
        answered += [
            one.with_admissions(each.instance for each in one.instances)
            for one in all_intents(table, order.cluster, now)
            if one.is_answered and one not in intents
        ]
        run = LaunchRun(self._deps, order, self._supplies, answered, stopped, records)
        # To repeat a request may launch its instances. Those of such a pool are found by their
        # tag, after the time in which a request is repeated.
        waiting = [one for one in intents if one.pool in stopped and one.may_repeat(now)]
        results = [
            self._executor.carry_out(one, new=False)
            for one in intents
            if not one.is_answered and one not in waiting
        ]
        run.accept(results)
        run.found = {one.instance for result in results for one in result.intent.instances}
        self._admit(run)
        if order.retiring is not None:
            self._fill_static_pools(run)
        for _ in range(MOST_ROUNDS):
            run.check_time()
            if run.stopped:
                break
            blocked, plan = len(run.blocked), run.plan()
            prepared = run.prepare(plan)
            if not prepared and len(run.blocked) == blocked:
                return run.outcome(plan, planned_pods(plan))
            launched = self._round(run, prepared)
            self._admit(run)
            placed = _placed(plan, launched)
            if placed is not None:
                # Another plan would find the same places, and takes as long as the first one.
                return run.outcome(replace(plan, launches=(), existing=(*plan.existing, *placed)))
            if run.throttled:
                self._deps.clock.sleep(THROTTLED_PAUSE)
        plan = run.plan()
        return run.outcome(plan, planned_pods(plan))

    def _fill_static_pools(self, run: LaunchRun) -> None:
        """Launch the nodes that static pools lack: pods of the same run find them on their way."""
        for _ in range(MOST_ROUNDS):
            run.check_time()
            blocked, plan = len(run.blocked), run.plan_static()
            prepared = () if run.stopped else run.prepare(plan)
            if not prepared and (run.stopped or len(run.blocked) == blocked):
                break
            self._round(run, prepared)
            self._admit(run)
            if run.throttled:
                self._deps.clock.sleep(THROTTLED_PAUSE)
        run.plan_static()

    def _round(self, run: LaunchRun, prepared: Sequence[PreparedLaunch]) -> list[LaunchIntent]:
        """Launch a round's groups side by side; return their intents with the instances."""
        ready = self._with_templates(run, prepared)
        # Something may speak against a launch by now. What this run has launched stays.
        try:
            blocked = run.order.launch_block(self._deps.clock.now()) if ready else None
        except API_ERRORS as error:
            blocked = NODE_NOT_LAUNCHED(why=f"Leeway cannot read whether it may: {clause(error)}")
        if blocked is not None:
            run.stopped = (*run.stopped, blocked)
        if run.stopped:
            return []
        intents = [one.intent for one in ready]
        results = in_parallel(self._executor.carry_out, intents, AT_ONCE)
        new = [instance for one in results for instance in one.intent.instances]
        run.added += len(new)
        for one in results:
            price = sum(map(run.prices.of_instance, one.intent.instances))
            run.spent[one.intent.pool] = run.spent.get(one.intent.pool, 0.0) + price
        run.accept(results)
        return [one.intent for one in results]

    def _with_templates(
        self, run: LaunchRun, prepared: Sequence[PreparedLaunch]
    ) -> list[PreparedLaunch]:
        """Create the launch templates of each launch before its intent is written: an intent can
        always be repeated."""
        ready = []
        for one in prepared:
            run.reasons += one.warnings
            try:
                ready.append(one.created_as(self._deps.templates.ensure(one.templates)))
            except API_ERRORS as error:
                run.blocked[one.intent.pool] = launch_refused(
                    one.intent.pool,
                    f"a launch template is not created: {error}",
                    "correct its EC2NodeClass, or grant the missing permission",
                    run.pool_settings(one.intent.pool),
                )
        return ready

    def _admit(self, run: LaunchRun) -> None:
        """Start the admissions of all instances that have none, with one description of them. EC2
        may not describe a new instance yet, or not answer: an admission starts without it."""
        new = [one.instance for intent in run.intents for one in intent.to_admit]
        if not new:
            return
        facts: Mapping[str, InstanceFacts] = {}
        with suppress(*API_ERRORS):
            facts = self._deps.instances.describe_all(new)
        for position, intent in enumerate(run.intents):
            if intent.to_admit:
                run.launched |= {
                    one.instance: LaunchedNode(one, intent.pool, intent.id)
                    for one in intent.to_admit
                }
                run.intents[position], failed = self._executor.admit(intent, facts, run.labels)
                run.reasons += failed


def _prepared_plan(
    run: LaunchRun, plan_now: Callable[[], Plan]
) -> tuple[Plan, tuple[PreparedLaunch, ...]]:
    """Plan and prepare until no further pool is blocked."""
    for _ in range(MOST_ROUNDS):
        blocked, plan = len(run.blocked), plan_now()
        prepared = run.prepare(plan)
        if len(run.blocked) == blocked:
            break
    return plan, prepared


def _placed(plan: Plan, launched: Iterable[LaunchIntent]) -> tuple[Placement, ...] | None:
    """Return the instances for the pods of a plan's new nodes; None if EC2 launched fewer.

    The nodes of an intent are equal: each instance serves the pods of any of them.
    """
    instances = {one.pods: [instance.instance for instance in one.instances] for one in launched}
    found: list[Placement] = []
    for group in groups_of(plan):
        names = instances.get(group.pods, [])
        if len(names) != len(group.nodes):
            return None
        placed = zip(names, group.nodes, strict=True)
        found += (Placement(name, node.pods) for name, node in placed)
    return tuple(found)
