"""When a new node is ready for pods, and how its admission ends."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.admission.readiness import (
    AdmissionResult,
    Expected,
    ObservedNode,
    decide,
    missing,
    pause,
)

ASKED = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
DEADLINE = ASKED + timedelta(minutes=15)
LATE = DEADLINE + timedelta(seconds=1)


def seen(**changes: Any) -> ObservedNode:
    node: dict[str, Any] = {"ready": True, "labels": {}, "devices": {}, "taints": ()}
    return ObservedNode(**node | changes)


def test_a_node_that_is_ready_and_should_have_no_device_lacks_nothing() -> None:
    assert missing(seen(), Expected()) == ()


def test_a_node_that_has_not_joined_or_is_not_ready_says_so() -> None:
    assert missing(None, Expected()) == ("no node has joined",)
    assert missing(seen(ready=False), Expected()) == ("the node is not Ready",)


@pytest.mark.parametrize(
    ("maker", "resource", "plugin"),
    [
        ("NVIDIA", "nvidia.com/gpu", "NVIDIA device plugin"),
        ("AMD", "amd.com/gpu", "AMD GPU device plugin"),
        ("AWS", "aws.amazon.com/neuron", "Neuron device plugin"),
        ("Habana", "habana.ai/gaudi", "Gaudi device plugin"),
    ],
)
def test_a_missing_device_is_named_with_the_plugin_that_would_offer_it(
    maker: str, resource: str, plugin: str
) -> None:
    (lack,) = missing(seen(devices={resource: 0}), Expected((maker,)))
    assert resource in lack
    assert plugin in lack
    assert missing(seen(devices={resource: 1}), Expected((maker,))) == ()


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu"]
)
def test_a_gpu_that_is_shared_or_cut_up_is_there(resource: str) -> None:
    assert missing(seen(devices={resource: 4}), Expected(("NVIDIA",))) == ()


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.present": "true"},
        {"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"},
        {"k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"},
    ],
)
def test_a_nodes_own_labels_tell_of_devices_that_its_type_does_not(labels: dict[str, str]) -> None:
    assert "nvidia.com/gpu" in missing(seen(labels=labels), Expected())[0]


def test_a_maker_that_nobody_knows_a_device_of_is_waited_for_by_nobody() -> None:
    assert missing(seen(), Expected(("Qualcomm",))) == ()
    assert missing(seen(labels={"nvidia.com/gpu.present": "false"}), Expected()) == ()


def test_startup_taints_are_waited_for_and_other_taints_are_not() -> None:
    expected = Expected(startup_taints=("example.com/agent",))
    (lack,) = missing(seen(taints=("example.com/agent", "dedicated")), expected)
    assert "example.com/agent" in lack
    assert missing(seen(taints=("dedicated",)), expected) == ()


def end(lacks: tuple[str, ...] | None, now: datetime, **hooks: bool) -> AdmissionResult | None:
    asked = {"hooks_wait": True, "hooks_over": False} | hooks
    verdict = decide(lacks, DEADLINE, now, **asked)
    return verdict.result if verdict else None


def test_a_ready_node_is_admitted_however_late() -> None:
    assert end((), ASKED) is AdmissionResult.ADMITTED
    assert end((), LATE) is AdmissionResult.ADMITTED


def test_a_node_that_is_not_ready_has_until_the_deadline() -> None:
    assert end(("the node is not Ready",), ASKED) is None
    assert end(("the node is not Ready",), DEADLINE) is AdmissionResult.NOT_READY


def test_a_node_that_could_not_be_looked_at_is_not_given_up_while_its_hook_waits() -> None:
    assert end(None, LATE) is None
    assert end(None, LATE, hooks_over=True) is AdmissionResult.NOT_WAITED_FOR
    assert end(None, LATE, hooks_wait=False) is AdmissionResult.UNSEEN


@given(
    lacks=st.one_of(st.none(), st.lists(st.just("x"), max_size=2).map(tuple)),
    seconds=st.integers(0, 400_000),
    hooks_wait=st.booleans(),
    hooks_over=st.booleans(),
    into_pool=st.booleans(),
)
def test_only_a_read_that_succeeded_after_the_deadline_gives_a_node_up(
    lacks: tuple[str, ...] | None,
    seconds: int,
    hooks_wait: bool,
    hooks_over: bool,
    into_pool: bool,
) -> None:
    now = ASKED + timedelta(seconds=seconds)
    result = end(lacks, now, hooks_wait=hooks_wait, hooks_over=hooks_over, into_pool=into_pool)
    if result is AdmissionResult.NOT_READY:
        assert lacks
        assert not into_pool
        assert now >= DEADLINE
    assert (result is AdmissionResult.ADMITTED) == (lacks == ())


@given(seconds=st.integers(0, 200_000), heartbeat=st.one_of(st.none(), st.integers(-10, 7200)))
def test_pauses_are_never_past_the_deadline_nor_a_heartbeat(
    seconds: int, heartbeat: int | None
) -> None:
    now = ASKED + timedelta(seconds=seconds)
    beat = None if heartbeat is None else now + timedelta(seconds=heartbeat)
    rest = pause(ASKED, now, DEADLINE, beat)
    assert rest >= timedelta(seconds=1)
    if now < DEADLINE:
        assert now + rest <= DEADLINE
    if beat is not None and beat > now + timedelta(seconds=1):
        assert now + rest <= beat
