"""Admission of the nodes that Leeway launched: labels, taints, and instances that never join."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from leeway.admission.readiness import decide_unjoined
from leeway.admission.record import AdmissionResult
from leeway.execution.attempt import Phase
from leeway.instances.facts import ObservedInstance, Owner, OwnerKind
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT, Node, Taint
from leeway.selection.labels import INITIALIZED, JOINED, LAUNCHED, REGISTERED, UNREGISTERED

from tests.admission.admission_records import IN_15_MINUTES, LAUNCH, request
from tests.admission.admission_run import MINUTE, NODE, SECOND, Dependencies, admit, joins
from tests.admission.launched import OURS, RUNS, dependencies, launched
from tests.retirement.retirements import FACTS, NOTICED

POOL = Taint("team", "a", "NoSchedule")
AGENT = Taint("example.com/agent", "", "NoSchedule")


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
    stored = deps.pools[LAUNCH.pool]
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
    assert not deps.pools


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
    assert not deps.pools


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
    assert deps.nodes[NODE.name].labels == {"pool": "blue", LAUNCHED: "true", **JOINED}


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


def test_a_node_gets_the_annotations_of_its_pool_once() -> None:
    given = {DO_NOT_DISRUPT: "true", "example.com/owner": "shop"}
    deps = dependencies(launched(annotations=given))
    theirs = {"example.com/owner": "kubelet", "example.com/other": "x"}
    deps.at[NOTICED + 20 * SECOND] = joins(replace(NODE, ready=False, annotations=theirs))

    def somebody_removes_it(deps: Dependencies) -> None:
        node = deps.nodes[NODE.name]
        assert node.annotations == {**theirs, **given}
        deps.nodes[NODE.name] = replace(node, ready=True, annotations={})

    deps.at[NOTICED + 60 * SECOND] = somebody_removes_it
    assert admit(deps).result is AdmissionResult.ADMITTED
    assert deps.nodes[NODE.name].annotations == {}, "who unprotects one node wants that"


def test_a_label_that_another_client_changes_is_put_on_again() -> None:
    deps = dependencies(launched(labels={"pool": "blue"}))
    deps.at[NOTICED + 20 * SECOND] = joins(replace(NODE, ready=False))
    deps.at[NOTICED + 60 * SECOND] = joins(
        replace(NODE, labels={"pool": "red", **JOINED, "own": "x"})
    )
    assert admit(deps).result is AdmissionResult.ADMITTED
    assert deps.nodes[NODE.name].labels == {"pool": "blue", LAUNCHED: "true", **JOINED, "own": "x"}


def test_a_node_that_is_replaced_while_it_is_labelled_is_not_admitted() -> None:
    class Replaced(Dependencies):
        def node(self, name: str) -> Node | None:
            found = super().node(name)
            return found and replace(found, uid="of-before")

    deps = Replaced(launched(), nodes={NODE.name: NODE}, observed=RUNS)
    outcome = admit(deps)
    assert outcome.reason.code == "NodeLabelsRefused"
    assert deps.nodes[NODE.name].labels == {}


def test_a_launched_gpu_node_without_its_device_plugin_names_the_cause() -> None:
    deps = dependencies(manufacturers=("NVIDIA",), nodes={NODE.name: NODE})
    outcome = admit(deps)
    assert outcome.reason.code == "DeviceNotAllocatable"
    assert "the NVIDIA device plugin does not run on the node" in outcome.message
    assert INITIALIZED not in deps.nodes[NODE.name].labels
    assert deps.terminated == []
