"""Admission of the nodes that Leeway launched: labels, taints, and instances that never join."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.admission.never_joined import decide_unjoined
from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.readiness import AdmissionResult
from leeway.admission.record import Admission, apply_request, repeated_launch_request
from leeway.execution.attempt import AttemptId, Phase
from leeway.instances.observed import ObservedInstance
from leeway.instances.owners import Owner, OwnerKind
from leeway.pool_pauses.join_times import JoinTime
from leeway.pool_pauses.record import FailedInstance, PoolRecord
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes_objects import Node, Taint
from leeway.selection.labels import INITIALIZED, JOINED, REGISTERED, UNREGISTERED

from tests.admission.admission_records import IN_15_MINUTES, LAUNCH, request
from tests.admission.test_admit_node import (
    ATTEMPT,
    MINUTE,
    NODE,
    SECOND,
    Dependencies,
    admit,
    joins,
    use_case,
)
from tests.retirement.retirements import FACTS, NOTICED

OURS = FACTS.model_copy(update={"owner": Owner(OwnerKind.LEEWAY, LAUNCH.pool)})
RUNS = ObservedInstance(OURS, "running", NOTICED, "", LAUNCH.intent)
POOL = Taint("team", "a", "NoSchedule")
AGENT = Taint("example.com/agent", "", "NoSchedule")


def launched(**more: Any) -> Admission:
    return request(None, "launch-1", hook=None, launch=LAUNCH, **more).record


def dependencies(record: Admission | None = None, **changes: Any) -> Dependencies:
    return Dependencies(record or launched(), observed=RUNS, **changes)


def test_an_instance_that_never_joins_is_terminated_after_15_minutes() -> None:
    deps = dependencies()
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.TERMINATED
    assert outcome.reason.code == "InstanceNeverJoined"
    assert outcome.needs_attention
    assert deps.terminated == [FACTS.instance]
    assert timedelta(0) <= outcome.ended_at - IN_15_MINUTES < 5 * SECOND
    assert deps.record.result is AdmissionResult.TERMINATED
    assert deps.record.phase is Phase.FINISHED
    assert "Leeway Node Not Admitted" in deps.reports
    stored = deps.pools.pool(FACTS.cluster, LAUNCH.pool)
    assert stored is not None
    assert [one.instance for one in stored.failures] == [FACTS.instance]


def test_an_instance_of_a_group_is_not_terminated() -> None:
    deps = Dependencies(request(None, "n-1").record, observed=RUNS)
    assert admit(deps).result is AdmissionResult.NOT_READY
    assert deps.terminated == []


def test_a_node_that_joined_and_is_not_ready_is_reported_and_not_terminated() -> None:
    deps = dependencies(nodes={NODE.name: replace(NODE, ready=False)})
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.NOT_READY
    assert outcome.reason.code == "NodeStaysNotReady"
    assert deps.terminated == []


def test_an_instance_whose_node_was_deleted_after_it_joined_is_not_terminated() -> None:
    deps = dependencies(nodes={NODE.name: replace(NODE, ready=False)})
    deps.at[NOTICED + 5 * MINUTE] = lambda deps: deps.nodes.clear()
    assert admit(deps).result is AdmissionResult.NOT_READY
    assert deps.terminated == []


def test_nothing_is_terminated_while_the_api_server_cannot_be_read() -> None:
    def recover(deps: Dependencies) -> None:
        deps.down = False

    deps = dependencies(down=True, at={NOTICED + 60 * MINUTE: recover})
    outcome = admit(deps)
    assert deps.terminated == [FACTS.instance]
    assert outcome.ended_at >= NOTICED + 60 * MINUTE
    late = dependencies(down=True, at={NOTICED + 60 * MINUTE: recover}, nodes={NODE.name: NODE})
    assert admit(late).result is AdmissionResult.ADMITTED
    assert late.terminated == []


def test_a_node_that_joins_before_the_last_read_is_admitted() -> None:
    class JoinsLate(Dependencies):
        def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
            if name.startswith("end"):
                self.nodes[NODE.name] = NODE
            return super().run(name, kind, work)

    deps = JoinsLate(launched(), observed=RUNS)
    assert admit(deps).result is AdmissionResult.ADMITTED
    assert deps.terminated == []


def test_an_api_server_that_fails_at_the_last_read_terminates_nothing() -> None:
    class GoesDown(Dependencies):
        def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
            if name.startswith("end") and not self.nodes:
                self.down = True
                self.nodes[NODE.name] = NODE
                self.at[self.now_ + 9 * MINUTE] = lambda deps: setattr(deps, "down", False)
            return super().run(name, kind, work)

    deps = GoesDown(launched(), observed=RUNS)
    assert admit(deps).result is AdmissionResult.ADMITTED
    assert deps.terminated == []


def test_an_instance_that_ec2_ended_is_no_failure_of_its_pool() -> None:
    deps = dependencies()
    deps.observed = replace(RUNS, state="terminated")
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.INSTANCE_ENDED
    assert not outcome.needs_attention
    assert deps.terminated == []
    assert deps.pools.stored == {}


def test_a_refused_termination_is_the_reason_of_the_outcome() -> None:
    deps = dependencies(terminate_errors=[CloudRefused("UnauthorizedOperation")])
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.NOT_READY
    assert outcome.reason.code == "UnjoinedInstanceNotTerminated"
    assert "UnauthorizedOperation" in outcome.message
    assert outcome.needs_attention


def test_an_unavailable_ec2_delays_the_termination() -> None:
    throttled = [CloudUnavailable("RequestLimitExceeded")] * 3
    deps = dependencies(terminate_errors=[*throttled], observe_errors=[*throttled])
    assert admit(deps).result is AdmissionResult.TERMINATED
    assert deps.terminated == [FACTS.instance]


def test_an_instance_that_may_not_be_read_is_not_terminated() -> None:
    deps = dependencies(observe_errors=[CloudRefused("UnauthorizedOperation")])
    assert admit(deps).reason.code == "UnjoinedInstanceNotTerminated"
    assert deps.terminated == []


@pytest.mark.parametrize(
    ("observed", "text"),
    [
        (replace(RUNS, group="ng"), "Auto Scaling group ng"),
        (replace(RUNS, facts=OURS.model_copy(update={"joined": True})), "has joined a cluster"),
        (replace(RUNS, intent="another"), "another launch intent"),
        (replace(RUNS, launched_at=NOTICED - 10 * MINUTE), "before its launch intent"),
        (replace(RUNS, facts=FACTS), "owner auto-scaling-group"),
        (
            replace(RUNS, facts=OURS.model_copy(update={"owner": Owner(OwnerKind.LEEWAY, "x")})),
            "pool x, not web",
        ),
        (replace(RUNS, facts=OURS.model_copy(update={"cluster": "other"})), "cluster other"),
    ],
)
def test_an_instance_that_is_not_the_launched_one_is_not_terminated(
    observed: ObservedInstance, text: str
) -> None:
    deps = dependencies()
    deps.observed = observed
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.NOT_READY
    assert outcome.reason.code == "InstanceNotOfLaunch"
    assert text in outcome.message
    assert deps.terminated == []
    assert deps.pools.stored == {}


def test_an_instance_whose_name_another_node_has_is_not_terminated() -> None:
    other = replace(NODE, provider_id="aws:///us-east-1a/i-0ffffffffffffffff")
    deps = dependencies(nodes={NODE.name: other})
    outcome = admit(deps)
    assert outcome.reason.code == "NodeNameTaken"
    assert (deps.terminated, deps.set_ups) == ([], [])


def test_a_pending_instance_is_terminated_too() -> None:
    verdict = decide_unjoined(launched(), LAUNCH, replace(RUNS, state="pending"), "")
    assert verdict.result is AdmissionResult.TERMINATED


def test_an_instance_that_ec2_does_not_know_has_ended() -> None:
    verdict = decide_unjoined(launched(), LAUNCH, None, "")
    assert verdict.result is AdmissionResult.INSTANCE_ENDED


# Labels and taints.


def test_a_node_gets_its_labels_when_it_joins_and_is_initialized_when_it_is_ready() -> None:
    deps = dependencies(launched(labels={"pool": "blue"}))
    deps.at[NOTICED + 40 * SECOND] = joins(replace(NODE, ready=False))
    deps.at[NOTICED + 80 * SECOND] = lambda deps: deps.nodes.update(
        {NODE.name: replace(deps.nodes[NODE.name], ready=True)}
    )
    assert admit(deps).result is AdmissionResult.ADMITTED
    first, last = deps.set_ups
    assert INITIALIZED not in first
    assert REGISTERED in first
    assert INITIALIZED in last
    assert deps.nodes[NODE.name].labels == {"pool": "blue", **JOINED}


def test_a_node_of_custom_user_data_gets_its_taints_once() -> None:
    gate = Taint(UNREGISTERED, "", "NoExecute")
    record = launched(taints=(POOL, AGENT), startup_taints=(AGENT.key,))
    deps = dependencies(record, nodes={NODE.name: replace(NODE, taints=(gate,))})

    def agent_is_ready(deps: Dependencies) -> None:
        node = deps.nodes[NODE.name]
        assert {*node.taints} == {POOL, AGENT}
        assert REGISTERED in node.labels
        assert INITIALIZED not in node.labels
        deps.nodes[NODE.name] = replace(node, taints=(POOL,))

    deps.at[NOTICED + MINUTE] = agent_is_ready
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.ADMITTED
    assert outcome.ended_at >= NOTICED + MINUTE
    assert deps.nodes[NODE.name].taints == (POOL,), "a startup taint is not put on again"


def test_a_label_that_another_client_changes_is_put_on_again() -> None:
    deps = dependencies(launched(labels={"pool": "blue"}))
    deps.at[NOTICED + 20 * SECOND] = joins(replace(NODE, ready=False))
    deps.at[NOTICED + 60 * SECOND] = joins(
        replace(NODE, labels={"pool": "red", **JOINED, "own": "x"})
    )
    assert admit(deps).result is AdmissionResult.ADMITTED
    assert deps.nodes[NODE.name].labels == {"pool": "blue", **JOINED, "own": "x"}


def test_a_node_that_is_replaced_while_it_is_labelled_is_not_admitted() -> None:
    class Replaced(Dependencies):
        def node(self, name: str) -> Node | None:
            found = super().node(name)
            return found and replace(found, uid="of-before")

    deps = Replaced(launched(), nodes={NODE.name: NODE}, observed=RUNS)
    outcome = admit(deps)
    assert outcome.reason.code == "NodeReplaced"
    assert deps.nodes[NODE.name].labels == {}


def test_a_launched_gpu_node_without_its_device_plugin_names_the_cause() -> None:
    deps = dependencies(manufacturers=("NVIDIA",), nodes={NODE.name: NODE})
    outcome = admit(deps)
    assert outcome.reason.code == "DeviceNotAllocatable"
    assert "the NVIDIA device plugin does not run on the node" in outcome.message
    assert INITIALIZED not in deps.nodes[NODE.name].labels
    assert deps.terminated == []


# Pauses.

BEFORE = [
    FailedInstance(instance=f"i-{number:017x}", launched_at=NOTICED - MINUTE) for number in (8, 9)
]


def with_failures() -> Dependencies:
    deps = dependencies()
    stored = PoolRecord(cluster=FACTS.cluster, pool=LAUNCH.pool, failures=tuple(BEFORE))
    deps.pools.write_pool(stored)
    return deps


def test_the_third_failure_pauses_the_pool_and_is_reported() -> None:
    deps = with_failures()
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.TERMINATED
    stored = deps.pools.pool(FACTS.cluster, LAUNCH.pool)
    assert stored is not None
    assert stored.paused is not None
    assert f"leeway resume {FACTS.cluster} --pool web" in stored.paused.message
    assert deps.reports[:2] == ["NodesNeverJoined", "Leeway Pool Paused"]
    assert deps.details[0]["paused"]["code"] == "NodesNeverJoined"


def test_a_refused_event_about_a_pause_stops_no_other_step() -> None:
    deps = with_failures()
    deps.events_allowed = False
    assert admit(deps).result is AdmissionResult.TERMINATED
    assert deps.reports[:2] == ["NodesNeverJoined", "PauseEventNotPut"]


def test_the_third_launched_node_without_its_devices_pauses_the_pool_and_is_reported() -> None:
    deps = dependencies(manufacturers=("NVIDIA",), nodes={NODE.name: NODE})
    stored = PoolRecord(cluster=FACTS.cluster, pool=LAUNCH.pool, unready=tuple(BEFORE))
    deps.pools.write_pool(stored)
    assert admit(deps).result is AdmissionResult.NOT_READY
    found = deps.pools.pool(FACTS.cluster, LAUNCH.pool)
    assert found is not None
    assert found.paused is not None
    assert "the NVIDIA device plugin does not run on the node" in found.paused.message
    assert deps.reports[:2] == ["NodesNeverReady", "Leeway Pool Paused"]
    assert deps.terminated == []


def test_a_node_that_is_admitted_resets_the_row_of_nodes_that_were_never_ready() -> None:
    deps = dependencies(nodes={NODE.name: NODE})
    stored = PoolRecord(cluster=FACTS.cluster, pool=LAUNCH.pool, unready=tuple(BEFORE))
    deps.pools.write_pool(stored)
    assert admit(deps).result is AdmissionResult.ADMITTED
    found = deps.pools.pool(FACTS.cluster, LAUNCH.pool)
    assert found is not None
    assert (found.unready, found.ready_from) == ((), LAUNCH.at)


def test_a_join_resets_the_row() -> None:
    deps = with_failures()
    deps.nodes[NODE.name] = NODE
    admit(deps)
    stored = deps.pools.pool(FACTS.cluster, LAUNCH.pool)
    assert stored is not None
    assert (stored.failures, stored.counted_from) == ((), LAUNCH.at)


def test_a_table_that_does_not_take_a_join_delays_no_admission() -> None:
    deps = dependencies(nodes={NODE.name: NODE})

    def refuse(record: PoolRecord) -> None:
        raise CloudUnavailable("throttled")

    def refuse_time(join_time: JoinTime) -> None:
        raise CloudUnavailable("throttled")

    deps.pools.write_pool = refuse  # type: ignore[method-assign]
    deps.pools.write_join_time = refuse_time  # type: ignore[method-assign]
    assert admit(deps).result is AdmissionResult.ADMITTED


def test_the_time_until_a_launched_node_is_ready_is_kept_for_its_pool() -> None:
    deps = dependencies()
    deps.at[NOTICED + 40 * SECOND] = joins(replace(NODE, ready=False))
    deps.at[NOTICED + 80 * SECOND] = joins(NODE)
    outcome = admit(deps)
    (found,) = deps.pools.join_times(FACTS.cluster)
    assert (found.pool, found.instance) == (LAUNCH.pool, FACTS.instance)
    assert 80 <= found.seconds <= (outcome.ended_at - LAUNCH.at).total_seconds()


@pytest.mark.parametrize("again", [True, False])
def test_no_time_is_kept_of_other_admissions(again: bool) -> None:
    record = launched().model_copy(update={"attempt": 2}) if again else request(None, "n-1").record
    attempt = replace(ATTEMPT, attempt=record.attempt)
    deps = dependencies(record, nodes={NODE.name: NODE})
    outcome = use_case(deps).admit(attempt, deps)
    assert outcome is not None
    assert outcome.result is AdmissionResult.ADMITTED
    assert deps.pools.join_times(FACTS.cluster) == []


# Kills.


class Killed(BaseException):
    """The process was killed."""


class Dies(Dependencies):
    """Dies once: at the port call or the step with this number, before or after it. The durable
    engine returns the stored results of the steps that have ended."""

    die_at = 0
    moment = "before"
    calls = 0
    results: dict[str, Any]
    count = False

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        if name in self.results:
            return self.results[name]  # type: ignore[no-any-return]
        self.count = self.count or name.startswith("end")
        result = super().run(name, kind, work)
        self._call("step", lambda: self.results.update({name: result}))
        return result

    def wait(self, name: str, seconds: int) -> None:
        if name not in self.results:
            super().wait(name, seconds)
            self.results[name] = None

    def _call[T](self, name: str, work: Callable[[], T]) -> T:
        if not self.count:
            return work()
        self.calls += 1
        number = self.calls
        if (number, self.moment) == (self.die_at, "before"):
            raise Killed
        result = work()
        if (number, self.moment) == (self.die_at, "after"):
            raise Killed
        return result

    def write(self, record: Admission) -> None:
        self._call("write", lambda: Dependencies.write(self, record))

    def terminate(self, instance: str) -> None:
        self._call("terminate", lambda: Dependencies.terminate(self, instance))

    def observe(self, instance: str) -> ObservedInstance | None:
        return self._call("observe", lambda: Dependencies.observe(self, instance))

    def publish(self, detail_type: str, detail: str) -> None:
        self._call("publish", lambda: Dependencies.publish(self, detail_type, detail))


class DyingPools:
    """The PoolRecords Protocol of `Dies`."""

    def __init__(self, deps: Dies) -> None:
        self._deps, self._pools = deps, deps.pools

    def pools_of(self, cluster: str) -> list[PoolRecord]:
        return self._pools.pools_of(cluster)

    def pool(self, cluster: str, pool: str) -> PoolRecord | None:
        return self._deps._call("pool", lambda: self._pools.pool(cluster, pool))

    def write_pool(self, record: PoolRecord) -> None:
        self._deps._call("write_pool", lambda: self._pools.write_pool(record))


def dying(number: int, moment: str) -> Dies:
    before = with_failures()
    deps = Dies(launched(), observed=RUNS, pools=before.pools)
    deps.results, deps.die_at, deps.moment = {}, number, moment
    deps.pools = DyingPools(deps)  # type: ignore[assignment]
    return deps


def run_to_the_end(deps: Dies) -> AdmissionOutcome:
    try:
        return admit(deps)
    except Killed:
        return admit(deps)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_execution_that_is_killed_at_any_step_terminates_and_pauses_once(moment: str) -> None:
    unharmed = dying(0, moment)
    run_to_the_end(unharmed)
    assert unharmed.calls > 10
    for number in range(1, unharmed.calls + 1):
        deps = dying(number, moment)
        outcome = run_to_the_end(deps)
        where = f"killed {moment} call {number}"
        assert outcome.result is AdmissionResult.TERMINATED, where
        assert {*deps.terminated} == {FACTS.instance}, where
        assert "Leeway Pool Paused" in deps.reports, where
        stored = deps.pools.pool(FACTS.cluster, LAUNCH.pool)
        assert stored is not None
        assert len(stored.failures) == 3, where
        assert deps.record.phase is Phase.FINISHED, where


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_execution_that_dies_for_ever_is_continued_by_the_next_attempt(moment: str) -> None:
    unharmed = dying(0, moment)
    run_to_the_end(unharmed)
    for number in range(1, unharmed.calls + 1):
        deps = dying(number, moment)
        try:
            admit(deps)
        except Killed:
            if deps.record.phase is Phase.FINISHED:
                assert deps.terminated, "a closed record has no running instance"
                continue
        else:
            continue
        now = deps.now_ + 11 * MINUTE
        wanted = repeated_launch_request(deps.record, now)
        deps.record = request_again(deps.record, wanted)
        deps.results, deps.now_, deps.count = {}, now, True
        if deps.terminated:
            deps.observed = replace(RUNS, state="shutting-down")
        outcome = use_case(deps).admit(AttemptId(ATTEMPT.instance, ATTEMPT.cluster, 2), deps)
        assert outcome is not None
        assert deps.terminated == [FACTS.instance], f"killed {moment} call {number}"
        stored = deps.pools.pool(FACTS.cluster, LAUNCH.pool)
        assert stored is not None
        assert len(stored.failures) == 3


def request_again(record: Admission, wanted: Any) -> Admission:
    change = apply_request(record, wanted, record.facts)
    assert change.start
    assert change.record.attempt == record.attempt + 1
    assert change.record.launch == record.launch
    return change.record
