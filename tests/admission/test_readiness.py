"""When a new node is ready for pods, and how its admission ends."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.admission.readiness import (
    NODE_NOT_JOINED,
    NODE_STAYS_NOT_READY,
    ExpectedNode,
    ObservedNode,
    decide_admission,
    poll_interval,
    unmet_conditions,
)
from leeway.admission.record import AdmissionResult
from leeway.reasons import Reason

NOTICED = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
DEADLINE = NOTICED + timedelta(minutes=15)
LATE = DEADLINE + timedelta(seconds=1)


def node(**changes: Any) -> ObservedNode:
    given: dict[str, Any] = {"ready": True, "labels": {}, "devices": {}, "taints": ()}
    return ObservedNode(**given | changes)


def test_a_ready_node_without_accelerators_meets_all_conditions() -> None:
    assert unmet_conditions(node(), ExpectedNode()) == ()


def test_a_missing_node_and_a_node_that_is_not_ready_have_codes_of_their_own() -> None:
    assert unmet_conditions(None, ExpectedNode()) == (NODE_NOT_JOINED(),)
    assert unmet_conditions(node(ready=False), ExpectedNode()) == (NODE_STAYS_NOT_READY(),)


@pytest.mark.parametrize(
    ("manufacturer", "resource", "plugin"),
    [
        ("NVIDIA", "nvidia.com/gpu", "NVIDIA device plugin"),
        ("AMD", "amd.com/gpu", "AMD GPU device plugin"),
        ("AWS", "aws.amazon.com/neuron", "Neuron device plugin"),
        ("Habana", "habana.ai/gaudi", "Gaudi device plugin"),
    ],
)
def test_a_missing_device_is_reported_with_the_plugin_that_offers_it(
    manufacturer: str, resource: str, plugin: str
) -> None:
    expected = ExpectedNode((manufacturer,))
    (unmet,) = unmet_conditions(node(devices={resource: 0}), expected)
    assert unmet.code == "DeviceNotAllocatable"
    assert resource in unmet.message
    assert plugin in unmet.message
    assert unmet_conditions(node(devices={resource: 1}), expected) == ()


@pytest.mark.parametrize("resource", ["smarter-devices/fuse", "hugepages-2Mi"])
def test_a_resource_that_an_overlay_promises_is_awaited(resource: str) -> None:
    expected = ExpectedNode(promised=(resource,))
    for devices in ({}, {resource: 0}):
        (unmet,) = unmet_conditions(node(devices=devices), expected)
        assert unmet.code == "PromisedResourceMissing"
        assert unmet.message.startswith(f"{resource} is not allocatable, and a NodeOverlay")
    assert unmet_conditions(node(devices={resource: 1}), expected) == ()


@pytest.mark.parametrize(
    "key",
    [
        "readiness.k8s.io/cni-ready",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "example/agent",
    ],
)
def test_a_node_with_a_startup_taint_is_not_initialized(key: str) -> None:
    expected = ExpectedNode(startup_taints=("example/agent",))
    (unmet,) = unmet_conditions(node(taints=(key, key, "team")), expected)
    assert unmet.code == "StartupTaintPresent"
    assert key in unmet.message


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu"]
)
def test_a_shared_or_partitioned_gpu_meets_the_condition(resource: str) -> None:
    assert unmet_conditions(node(devices={resource: 4}), ExpectedNode(("NVIDIA",))) == ()


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.present": "true"},
        {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"},
        {"k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"},
    ],
)
def test_labels_of_the_node_name_devices_that_ec2_does_not_describe(
    labels: dict[str, str],
) -> None:
    (unmet,) = unmet_conditions(node(labels=labels), ExpectedNode())
    assert "nvidia.com/gpu" in unmet.message


def test_an_accelerator_without_a_known_device_adds_no_condition() -> None:
    assert unmet_conditions(node(), ExpectedNode(("Qualcomm",))) == ()
    assert unmet_conditions(node(labels={"nvidia.com/gpu.present": "false"}), ExpectedNode()) == ()


def test_startup_taints_are_unmet_conditions_and_other_taints_are_not() -> None:
    expected = ExpectedNode(startup_taints=("example.com/agent",))
    (unmet,) = unmet_conditions(node(taints=("example.com/agent", "dedicated")), expected)
    assert unmet.code == "StartupTaintPresent"
    assert "example.com/agent" in unmet.message
    assert unmet_conditions(node(taints=("dedicated",)), expected) == ()


UNMET = (NODE_STAYS_NOT_READY(),)


def result(
    unmet: tuple[Reason, ...] | None, now: datetime, **hooks: bool
) -> AdmissionResult | None:
    given = {"has_hooks": True, "hooks_ended": False} | hooks
    verdict = decide_admission(unmet, DEADLINE, now, **given)
    return verdict.result if verdict else None


def test_a_ready_node_is_admitted_before_and_after_the_deadline() -> None:
    assert result((), NOTICED) is AdmissionResult.ADMITTED
    assert result((), LATE) is AdmissionResult.ADMITTED


def test_a_node_that_is_not_ready_has_time_until_the_deadline() -> None:
    assert result(UNMET, NOTICED) is None
    assert result(UNMET, DEADLINE) is AdmissionResult.NOT_READY


def test_the_verdict_has_the_code_of_the_first_unmet_condition_and_names_all() -> None:
    verdict = decide_admission(
        (NODE_STAYS_NOT_READY(), Reason("Other", "Another condition.")),
        DEADLINE,
        LATE,
        has_hooks=True,
        hooks_ended=False,
    )
    assert verdict is not None
    assert verdict.reason == Reason(
        "NodeStaysNotReady", "The node is not Ready. Another condition."
    )


def test_a_node_that_could_not_be_read_is_not_abandoned_while_its_hook_waits() -> None:
    assert result(None, LATE) is None
    assert result(None, LATE, hooks_ended=True) is AdmissionResult.HOOK_ENDED
    assert result(None, LATE, has_hooks=False) is AdmissionResult.NOT_OBSERVED
    verdict = decide_admission(None, DEADLINE, LATE, has_hooks=False, hooks_ended=False)
    assert verdict is not None
    assert verdict.reason.code == "NodeNotObserved"


@given(
    unmet=st.one_of(st.none(), st.lists(st.just(UNMET[0]), max_size=2).map(tuple)),
    seconds=st.integers(0, 400_000),
    has_hooks=st.booleans(),
    hooks_ended=st.booleans(),
    into_pool=st.booleans(),
)
def test_only_a_read_that_succeeded_after_the_deadline_leads_to_not_ready(
    unmet: tuple[Reason, ...] | None,
    seconds: int,
    has_hooks: bool,
    hooks_ended: bool,
    into_pool: bool,
) -> None:
    now = NOTICED + timedelta(seconds=seconds)
    end = result(unmet, now, has_hooks=has_hooks, hooks_ended=hooks_ended, into_pool=into_pool)
    if end is AdmissionResult.NOT_READY:
        assert unmet
        assert not into_pool
        assert now >= DEADLINE
    assert (end is AdmissionResult.ADMITTED) == (unmet == ())


@given(seconds=st.integers(0, 200_000), heartbeat=st.one_of(st.none(), st.integers(-10, 7200)))
def test_the_next_poll_is_not_after_the_deadline_nor_after_a_heartbeat(
    seconds: int, heartbeat: int | None
) -> None:
    now = NOTICED + timedelta(seconds=seconds)
    beat = None if heartbeat is None else now + timedelta(seconds=heartbeat)
    interval = poll_interval(NOTICED, now, DEADLINE, beat)
    assert interval >= timedelta(seconds=1)
    if now < DEADLINE:
        assert now + interval <= DEADLINE
    if beat is not None and beat > now + timedelta(seconds=1):
        assert now + interval <= beat
