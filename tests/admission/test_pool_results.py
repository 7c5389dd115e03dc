"""What launched nodes leave in the record of their pool: failures in a row, join times."""

from dataclasses import replace

import pytest
from leeway.admission.record import AdmissionResult
from leeway.pool_pauses import JOIN_TIME, FailedInstance, PoolRecord
from leeway.ports.aws import CloudUnavailable
from leeway.reasons import Reason

from tests.admission.admission_records import LAUNCH, request
from tests.admission.admission_run import ATTEMPT, NODE, SECOND, admit, joins, use_case
from tests.admission.launched import BEFORE, dependencies, launched, with_failures
from tests.retirement.retirements import FACTS, NOTICED


def test_the_third_failure_pauses_the_pool_and_is_reported() -> None:
    deps = with_failures()
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.TERMINATED
    stored = deps.pools[LAUNCH.pool]
    assert stored.paused is not None
    assert f"leeway resume {FACTS.cluster} --pool web" in stored.paused.message
    assert deps.reports[:2] == ["NodesNeverJoined", "Leeway Pool Paused"]
    assert deps.details[0]["paused"]["code"] == "NodesNeverJoined"


def test_a_refused_event_about_a_pause_stops_no_other_step() -> None:
    deps = with_failures()
    deps.events_allowed = False
    assert admit(deps).result is AdmissionResult.TERMINATED
    assert deps.reports[:2] == ["NodesNeverJoined", "AdmissionNotReported"]


def test_the_third_launched_node_without_its_devices_pauses_the_pool_and_is_reported() -> None:
    deps = dependencies(manufacturers=("NVIDIA",), nodes={NODE.name: NODE})
    stored = PoolRecord(cluster=FACTS.cluster, pool=LAUNCH.pool, unready=tuple(BEFORE))
    deps.pools[stored.pool] = stored
    assert admit(deps).result is AdmissionResult.NOT_READY
    found = deps.pools[LAUNCH.pool]
    assert found.paused is not None
    assert "the NVIDIA device plugin does not run on the node" in found.paused.message
    assert deps.reports[:2] == ["NodesNeverReady", "Leeway Pool Paused"]
    assert deps.terminated == []


def test_a_node_that_is_admitted_resets_the_row_of_nodes_that_were_never_ready() -> None:
    deps = dependencies(nodes={NODE.name: NODE})
    stored = PoolRecord(cluster=FACTS.cluster, pool=LAUNCH.pool, unready=tuple(BEFORE))
    deps.pools[stored.pool] = stored
    assert admit(deps).result is AdmissionResult.ADMITTED
    found = deps.pools[LAUNCH.pool]
    assert (found.unready, found.ready_from) == ((), LAUNCH.at)


def test_a_node_that_is_not_ready_in_two_admissions_counts_once() -> None:
    record = launched().model_copy(update={"attempt": 2})
    deps = dependencies(record, manufacturers=("NVIDIA",), nodes={NODE.name: NODE})
    first = FailedInstance(instance=FACTS.instance, launched_at=LAUNCH.at)
    before = PoolRecord(cluster=FACTS.cluster, pool=LAUNCH.pool, unready=(BEFORE[0], first))
    deps.pools[before.pool] = before
    outcome = use_case(deps).admit(replace(ATTEMPT, attempt=2), deps)
    assert outcome is not None
    assert outcome.result is AdmissionResult.NOT_READY
    found = deps.pools[LAUNCH.pool]
    assert (found.unready, found.paused) == ((BEFORE[0], first), None)


def test_a_node_that_paused_its_pool_and_is_admitted_later_reports_no_pause_again() -> None:
    record = launched().model_copy(update={"attempt": 2})
    deps = dependencies(record, nodes={NODE.name: NODE})
    before = PoolRecord(
        cluster=FACTS.cluster,
        pool=LAUNCH.pool,
        paused=Reason("NodesNeverReady", "Paused."),
        paused_at=NOTICED,
        paused_by=FACTS.instance,
    )
    deps.pools[before.pool] = before
    outcome = use_case(deps).admit(replace(ATTEMPT, attempt=2), deps)
    assert outcome is not None
    assert outcome.result is AdmissionResult.ADMITTED
    assert deps.pools[LAUNCH.pool].paused == before.paused
    assert "Leeway Pool Paused" not in deps.reports


def test_a_join_resets_the_row() -> None:
    deps = with_failures()
    deps.nodes[NODE.name] = NODE
    admit(deps)
    stored = deps.pools[LAUNCH.pool]
    assert (stored.failures, stored.counted_from) == ((), LAUNCH.at)


def test_a_table_that_does_not_take_a_join_delays_no_admission() -> None:
    deps = dependencies(nodes={NODE.name: NODE})
    deps.table.fail(CloudUnavailable("throttled"), "put", key="POOLS#")
    assert admit(deps).result is AdmissionResult.ADMITTED


def test_the_time_until_a_launched_node_is_ready_is_kept_for_its_pool() -> None:
    deps = dependencies()
    deps.at[NOTICED + 40 * SECOND] = joins(replace(NODE, ready=False))
    deps.at[NOTICED + 80 * SECOND] = joins(NODE)
    outcome = admit(deps)
    (found,) = deps.table.list(JOIN_TIME, cluster=FACTS.cluster)
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
    assert not deps.table.list(JOIN_TIME, cluster=FACTS.cluster)
