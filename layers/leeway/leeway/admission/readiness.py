"""Whether a new node is ready for pods: one judgement, and what is missing, with its likely cause.

A pod that asks for a device is not scheduled to a node that does not offer it yet, so a node
without its devices is as good as none for it, although it is Ready.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class AdmissionResult(StrEnum):
    """How an admission ends."""

    ADMITTED = "admitted"
    POOLED = "pooled"
    NOT_READY = "not-ready"
    NOT_WAITED_FOR = "not-waited-for"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Device:
    """An extended resource that accelerators become.

    `names` are prefixes of the resources that it may show as: whole, shared or partitioned.
    `plugin` is what makes them allocatable.
    """

    resource: str
    names: tuple[str, ...]
    plugin: str


NVIDIA = Device("nvidia.com/gpu", ("nvidia.com/gpu", "nvidia.com/mig-"), "the NVIDIA device plugin")
AMD = Device("amd.com/gpu", ("amd.com/",), "the AMD GPU device plugin")
NEURON = Device("aws.amazon.com/neuron", ("aws.amazon.com/neuron",), "the AWS Neuron device plugin")
GAUDI = Device("habana.ai/gaudi", ("habana.ai/gaudi",), "the Intel Gaudi device plugin")

# By what DescribeInstanceTypes calls the maker of a GPU or an inference accelerator, in lower case.
# Source: EC2 API reference, "GpuDeviceInfo", "NeuronInfo"; the documents of each device plugin.
_BY_MAKER = {"nvidia": NVIDIA, "amd": AMD, "aws": NEURON, "habana": GAUDI}

# Labels by which a node tells itself that it has one. Sources: NVIDIA GPU feature discovery;
# Karpenter and EKS Auto Mode, "instance-gpu-manufacturer"; cluster autoscaler on AWS.
_MAKER_LABELS = (
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.k8s.aws/instance-accelerator-manufacturer",
    "eks.amazonaws.com/instance-gpu-manufacturer",
)
_PRESENT_LABELS = {"nvidia.com/gpu.present": NVIDIA, "k8s.amazonaws.com/accelerator": NVIDIA}


@dataclass(frozen=True, slots=True)
class Expected:
    """What a node is to have, by EC2's names of its accelerators' makers, and the keys of taints
    that are to be gone."""

    makers: tuple[str, ...] = ()
    startup_taints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node as it is: `devices` are allocatable extended resources with their counts, `taints` the
    keys of its taints."""

    ready: bool
    labels: Mapping[str, str]
    devices: Mapping[str, int]
    taints: Collection[str]


def missing(seen: ObservedNode | None, expected: Expected) -> tuple[str, ...]:
    """Say what a node still lacks, in words for people; nothing where it is ready for pods.

    `seen` is a fresh read; None says that no node has joined for the instance.
    """
    if seen is None:
        return ("no node has joined",)
    lacks = [] if seen.ready else ["the node is not Ready"]
    devices = devices_of(expected.makers, seen.labels)
    lacks.extend(
        f"{device.resource} is not allocatable: {device.plugin} does not run on it, or found no "
        "device"
        for device in devices
        if not _is_there(device, seen.devices)
    )
    there = (key for key in expected.startup_taints if key in seen.taints)
    lacks.extend(f"the startup taint {key} is still there" for key in there)
    return tuple(lacks)


def devices_of(makers: Iterable[str], labels: Mapping[str, str]) -> tuple[Device, ...]:
    """Return the devices of a node with accelerators of these makers and with these labels."""
    told = [labels[key] for key in _MAKER_LABELS if key in labels]
    named = [_BY_MAKER.get(maker.lower()) for maker in (*makers, *told)]
    present = [device for key, device in _PRESENT_LABELS.items() if _says_yes(labels.get(key))]
    found = [device for device in (*named, *present) if device is not None]
    return tuple(dict.fromkeys(found))


def _says_yes(value: str | None) -> bool:
    """Read a label that is `true`, or names the accelerator."""
    return value is not None and (value == "true" or value.startswith("nvidia"))


def _is_there(device: Device, devices: Mapping[str, int]) -> bool:
    return any(count > 0 and name.startswith(device.names) for name, count in devices.items())


@dataclass(frozen=True, slots=True)
class Readiness:
    """How an admission ends, and why in one sentence."""

    result: AdmissionResult
    reason: str


def decide(
    lacks: tuple[str, ...] | None,
    deadline: datetime,
    now: datetime,
    *,
    hooks_wait: bool,
    hooks_over: bool,
    into_pool: bool = False,
) -> Readiness | None:
    """Decide whether an admission is over, by what the node lacks; None says that it goes on.

    `lacks` is of a read that has just succeeded, None where that failed: a node that could not be
    looked at is given up by nobody, as long as a hook waits for it. An instance on its way into a
    warm pool has the same time to start up, and needs no node there: many join only out of it.
    """
    if lacks == ():
        return Readiness(AdmissionResult.ADMITTED, "the node is ready for pods")
    if hooks_over:
        return Readiness(
            AdmissionResult.NOT_WAITED_FOR,
            "its lifecycle hook was answered by others or has run out",
        )
    if now < deadline:
        return None
    if into_pool:
        return Readiness(
            AdmissionResult.POOLED, "it has had its time to start up, and joins out of the pool"
        )
    if lacks is not None:
        return Readiness(AdmissionResult.NOT_READY, "; ".join(lacks))
    if hooks_wait:
        return None
    return Readiness(AdmissionResult.UNSEEN, "the cluster could not be read when its time ran out")


def pause(
    asked_at: datetime, now: datetime, deadline: datetime, heartbeat: datetime | None
) -> timedelta:
    """Return how long to wait before looking again, at least a second.

    Most nodes join within two minutes. Past the deadline only a cluster that can't be read is
    waited for: for as long as its hook lasts, which may be two days.
    """
    if now >= deadline:
        rest = timedelta(minutes=5 if now >= deadline + timedelta(hours=1) else 1)
    else:
        young = now - asked_at < timedelta(minutes=5)
        rest = min(timedelta(seconds=5 if young else 15), deadline - now)
    if heartbeat is not None:
        rest = min(rest, heartbeat - now)
    return max(rest, timedelta(seconds=1))
