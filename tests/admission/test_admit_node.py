"""An admission whose dependencies are late, fail or refuse: it ends correctly, with a reason."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import count, pairwise
from typing import Any

import pytest
from leeway.admission.record import AdmissionResult
from leeway.execution.attempt import Phase
from leeway.instances.facts import ObservedInstance
from leeway.notices import LifecycleHook
from leeway.ports.aws import CloudRefused, CloudUnavailable, HookResult
from leeway.ports.kubernetes_objects import Taint
from leeway.selection.labels import JOINED, LAUNCHED
from leeway.table import Key

from tests.admission.admission_records import LAUNCH, request
from tests.admission.admission_run import (
    ATTEMPT,
    MINUTE,
    NODE,
    SECOND,
    Dependencies,
    admit,
    joins,
    use_case,
)
from tests.fakes.failing import failing
from tests.retirement.retirements import FACTS, NOTICED


def dependencies(**changes: Any) -> Dependencies:
    return Dependencies(request(None, "n-1").record, **changes)


def test_a_node_that_joins_and_becomes_ready_is_admitted_at_once() -> None:
    deps = dependencies(
        at={
            NOTICED + 40 * SECOND: joins(replace(NODE, ready=False)),
            NOTICED + 55 * SECOND: joins(),
        }
    )
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.ADMITTED
    assert deps.answers == [HookResult.CONTINUE]
    assert NOTICED + 55 * SECOND <= outcome.ended_at < NOTICED + 62 * SECOND
    assert deps.reports == [outcome.message, "Leeway Node Admitted"]
    assert deps.events == [("NodeAdmitted", outcome.message)]
    (detail,) = deps.details
    assert detail["reason"] == {"code": "NodeAdmitted", "message": outcome.reason.message}
    assert not outcome.needs_attention
    assert deps.record.phase is Phase.FINISHED
    assert deps.lists == 0, "the node has its instance's name: no list of all nodes is read"


def test_an_instance_that_never_joins_is_abandoned_at_the_deadline_and_not_before() -> None:
    deps = dependencies(timeout=60)
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.NOT_READY
    assert outcome.reason.code == "NodeNotJoined"
    assert deps.answers == [HookResult.ABANDON]
    assert timedelta(0) <= outcome.ended_at - (NOTICED + 15 * MINUTE) < 5 * SECOND
    assert "Leeway Node Not Admitted" in deps.reports
    assert outcome.needs_attention
    beats = deps.heartbeats
    assert len(beats) > 10
    assert max(b - a for a, b in pairwise(beats)) < MINUTE
    assert deps.operations < 300


def test_an_instance_that_has_joined_another_cluster_is_not_abandoned() -> None:
    joined = FACTS.model_copy(update={"cluster": "dev", "joined": True})
    deps = dependencies(observed=ObservedInstance(joined, "running", NOTICED))
    deps.observe_errors = [CloudUnavailable("Throttling")]
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.OTHER_CLUSTER
    assert deps.answers == [HookResult.CONTINUE]
    assert "The instance has joined cluster dev" in outcome.message
    assert outcome.needs_attention


@pytest.mark.parametrize(
    "changes", [{"joined": True}, {"cluster": "dev"}], ids=["own-cluster", "tag-of-anybody"]
)
def test_an_instance_without_a_node_is_abandoned_unless_eks_names_another_cluster(
    changes: dict[str, Any],
) -> None:
    observed = ObservedInstance(FACTS.model_copy(update=changes), "running", NOTICED)
    deps = dependencies(observed=observed)
    assert admit(deps).result is AdmissionResult.NOT_READY
    assert deps.answers == [HookResult.ABANDON]


def test_a_gpu_node_without_its_device_plugin_is_abandoned_with_the_likely_cause() -> None:
    deps = dependencies(manufacturers=("NVIDIA",), nodes={NODE.name: NODE})
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.NOT_READY
    assert "nvidia.com/gpu is not allocatable: the NVIDIA device plugin" in outcome.message
    assert deps.events == [("DeviceNotAllocatable", outcome.message)]
    assert deps.answers == [HookResult.ABANDON]


def test_a_gpu_node_is_admitted_when_its_device_is_allocatable() -> None:
    with_gpu = replace(NODE, devices={"nvidia.com/gpu": 4})
    deps = dependencies(manufacturers=("NVIDIA",), nodes={NODE.name: NODE})
    deps.at[NOTICED + 4 * MINUTE] = joins(with_gpu)
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.ADMITTED
    assert outcome.ended_at >= NOTICED + 4 * MINUTE


def test_no_node_is_abandoned_while_the_cluster_cannot_be_read() -> None:
    def recover(deps: Dependencies) -> None:
        deps.down = False

    deps = dependencies(down=True, nodes={NODE.name: NODE}, at={NOTICED + 3 * 60 * MINUTE: recover})
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.ADMITTED
    assert deps.answers == [HookResult.CONTINUE]
    assert outcome.ended_at > NOTICED + 3 * 60 * MINUTE


def test_an_unreadable_cluster_is_retried_until_the_hook_ends_and_no_answer_is_given() -> None:
    deps = dependencies(down=True, timeout=3600)
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.HOOK_ENDED
    assert deps.answers == []
    assert timedelta(hours=47) < outcome.ended_at - NOTICED <= timedelta(hours=48, minutes=6)
    assert deps.operations < 2500, "a durable execution has room for 3,000"


def test_an_admission_goes_on_while_auto_scaling_does_not_answer() -> None:
    deps = dependencies(timeout=3600, at={NOTICED + 5 * MINUTE: joins()})
    for call in ("hook_settings", "heartbeat"):
        error = CloudUnavailable("Throttling: Rate exceeded")
        failing(deps, call, error, lambda: deps.now_ < NOTICED + 4 * MINUTE)
    assert admit(deps).result is AdmissionResult.ADMITTED
    assert deps.answers == [HookResult.CONTINUE]


def test_a_node_that_joins_between_the_last_check_and_abandon_is_admitted() -> None:
    class JoinsLate(Dependencies):
        def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
            if name.startswith("finish"):
                self.timeout = 7200
                self.nodes[NODE.name] = NODE
            return super().run(name, kind, work)

    deps = JoinsLate(request(None, "n-1").record)
    outcome = admit(deps)
    assert outcome.ended_at >= NOTICED + 15 * MINUTE
    assert outcome.result is AdmissionResult.ADMITTED
    assert deps.answers == [HookResult.CONTINUE]


def test_a_node_is_checked_again_if_the_cluster_is_down_just_before_abandon() -> None:
    class GoesDown(Dependencies):
        def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
            if name.startswith("finish") and not self.nodes:
                self.down = True
                self.nodes[NODE.name] = NODE
                self.at[self.now_ + 60 * MINUTE] = lambda deps: setattr(deps, "down", False)
            return super().run(name, kind, work)

    deps = GoesDown(request(None, "n-1").record)
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.ADMITTED
    assert deps.answers == [HookResult.CONTINUE], "heartbeats kept the hook waiting meanwhile"
    assert outcome.ended_at > NOTICED + 75 * MINUTE


def test_a_node_with_another_name_is_found_in_the_list_of_all_nodes() -> None:
    named = replace(NODE, name="custom-hostname")
    deps = dependencies(nodes={named.name: named})
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.ADMITTED
    assert outcome.node == "custom-hostname"
    assert deps.lists == 1


def test_a_node_with_the_name_on_another_instance_is_not_admitted() -> None:
    other = replace(NODE, provider_id="aws:///us-east-1a/i-0ffffffffffffffff")
    outcome = admit(dependencies(nodes={NODE.name: other}))
    assert outcome.result is AdmissionResult.NOT_READY


def test_labels_are_added_and_the_admission_waits_for_startup_taints() -> None:
    agent = Taint("example.com/agent", "", "NoSchedule")
    wanted = request(
        None,
        "n-1",
        hook=None,
        launch=LAUNCH,
        labels={"pool": "blue"},
        startup_taints=("example.com/agent",),
    )
    deps = Dependencies(wanted.record, {NODE.name: replace(NODE, taints=(agent,))})
    deps.at[NOTICED + MINUTE] = lambda deps: deps.nodes.update(
        {NODE.name: replace(deps.nodes[NODE.name], taints=())}
    )
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.ADMITTED
    assert outcome.ended_at >= NOTICED + MINUTE
    registered = ("karpenter.sh/registered", LAUNCHED, "pool")
    assert deps.set_ups == [registered, ("karpenter.sh/initialized", *registered)]
    assert deps.nodes[NODE.name].labels == {"pool": "blue", LAUNCHED: "true", **JOINED}


def test_a_refusal_of_the_labels_is_the_reason_why_the_node_is_not_admitted() -> None:
    wanted = request(None, "n-1", hook=None, launch=LAUNCH, labels={"pool": "blue"}).record
    outcome = admit(Dependencies(wanted, {NODE.name: NODE}, labels_allowed=False))
    assert outcome.result is AdmissionResult.NOT_READY
    assert outcome.reason.code == "NodeLabelsRefused"
    assert "cannot patch" in outcome.reason.message


def test_an_answer_of_another_client_to_the_hook_ends_the_admission() -> None:
    deps = dependencies(at={NOTICED + MINUTE: lambda deps: deps.answers.append(HookResult.ABANDON)})
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.HOOK_ENDED
    assert len(deps.answers) == 1
    assert outcome.ended_at < NOTICED + 4 * MINUTE


def test_a_refused_answer_is_reported_and_retried_until_it_is_accepted() -> None:
    deps = dependencies(nodes={NODE.name: NODE}, refusals=3)
    outcome = admit(deps)
    (refused,) = outcome.refused
    assert refused.code == "HookAnswerRefused"
    assert "CompleteLifecycleAction" in outcome.message
    assert outcome.needs_attention
    assert deps.answers == [HookResult.CONTINUE]


def test_leeway_does_not_answer_a_hook_that_notifies_a_target() -> None:
    ready = dependencies(nodes={NODE.name: NODE}, has_target=True)
    assert admit(ready).result is AdmissionResult.ADMITTED
    late = dependencies(has_target=True)
    assert admit(late).result is AdmissionResult.HOOK_ENDED
    for deps in (ready, late):
        assert (deps.answers, deps.heartbeats) == ([], [])


def test_the_record_has_the_time_when_the_admission_ended() -> None:
    deps = dependencies(nodes={NODE.name: NODE})
    outcome = admit(deps)
    assert deps.record.ended_at is not None
    assert NOTICED < deps.record.ended_at <= outcome.ended_at


def test_a_superseded_attempt_answers_no_hook() -> None:
    deps = dependencies(nodes={NODE.name: NODE})
    deps.record = deps.record.model_copy(update={"attempt": 2})
    assert use_case(deps).admit(ATTEMPT, deps) is None
    assert deps.answers == []


def test_the_record_is_closed_although_another_writer_changes_it_at_the_same_time() -> None:
    deps, conflicts = Dependencies(request(None, "n-1").record, nodes={NODE.name: NODE}), count(1)

    def change(operation: str, key: Key) -> None:
        if operation == "put" and (number := next(conflicts)) <= 3:
            another = LifecycleHook("ng", f"another-{number}")
            deps.record = request(deps.record, another.name, hook=another).record

    deps.table.before = change
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.ADMITTED
    assert len(outcome.hooks) == 4, "all hooks that joined meanwhile are answered"
    assert deps.record.phase is Phase.FINISHED


def test_an_instance_without_a_hook_in_an_unreadable_cluster_is_not_observed() -> None:
    wanted = request(None, "n-1", hook=None).record
    outcome = admit(Dependencies(wanted, down=True))
    assert outcome.result is AdmissionResult.NOT_OBSERVED
    assert outcome.needs_attention


@pytest.mark.parametrize(
    "errors",
    [[CloudUnavailable("Throttling")] * 3, [CloudRefused("InvalidInstanceType")]],
)
def test_a_type_that_ec2_does_not_describe_at_first_delays_no_admission_for_long(
    errors: list[Exception],
) -> None:
    outcome = admit(dependencies(nodes={NODE.name: NODE}, type_errors=errors))
    assert outcome.result is AdmissionResult.ADMITTED
    assert outcome.ended_at < NOTICED + MINUTE


def test_a_refused_leeway_event_stops_neither_the_log_line_nor_the_kubernetes_event() -> None:
    deps = dependencies(nodes={NODE.name: NODE}, events_allowed=False)
    outcome = admit(deps)
    assert deps.reports == [outcome.message, "AdmissionNotReported"]
    assert [code for code, _ in deps.events] == ["NodeAdmitted"]


def test_an_instance_that_never_joins_enters_its_warm_pool_and_is_not_abandoned() -> None:
    deps = Dependencies(request(None, "n-1", into_pool=True).record)
    outcome = admit(deps)
    assert outcome.result is AdmissionResult.POOLED
    assert deps.answers == [HookResult.CONTINUE]
    assert outcome.ended_at >= NOTICED + 15 * MINUTE, "the instance may still be starting"
    assert "Leeway Node Pooled" in deps.reports
    assert not outcome.needs_attention


def test_an_unreadable_cluster_keeps_no_instance_out_of_its_warm_pool() -> None:
    deps = Dependencies(request(None, "n-1", into_pool=True).record, down=True)
    assert admit(deps).result is AdmissionResult.POOLED
    assert deps.answers == [HookResult.CONTINUE]


def test_a_node_that_joins_before_its_instance_enters_the_warm_pool_is_admitted_at_once() -> None:
    deps = Dependencies(request(None, "n-1", into_pool=True).record, nodes={NODE.name: NODE})
    assert admit(deps).result is AdmissionResult.ADMITTED
    assert deps.now_ < NOTICED + MINUTE
