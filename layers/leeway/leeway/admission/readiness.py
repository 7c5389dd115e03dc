"""Decides whether a new node is ready for pods, and if not, which conditions it does not meet; and
whether a launched instance whose node has not joined in time is terminated.

The scheduler places no pod that requests a device on a node that does not offer the device. A node
without its devices is therefore not ready, although its Ready condition is true.

The tags of an instance can be written by everybody with the right to tag instances. So the tags are
compared with the record of the launch, which only Leeway writes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.admission.record import Admission, AdmissionResult, Launch
from leeway.instances.facts import ObservedInstance, OwnerKind
from leeway.ports.kubernetes_objects import Node, Taint
from leeway.reasons import Reason, ReasonCode
from leeway.selection.labels import READINESS, UNINITIALIZED

NODE_ADMITTED = ReasonCode("NodeAdmitted", "The node is ready for pods.")
ADMISSION_ENDED = ReasonCode("AdmissionEnded", "{why}")
NODE_NOT_OBSERVED = ReasonCode(
    "NodeNotObserved",
    "Leeway could not read the node before the deadline and did nothing to the instance. Check the "
    "network and the access entry of the function admit_node.",
    "nodes-are-not-ready",
)
NODE_NOT_JOINED = ReasonCode(
    "NodeNotJoined",
    "No node has joined the cluster for the instance. Check its user data, its security groups and "
    "its node role.",
    "nodes-are-not-ready",
)
NODE_STAYS_NOT_READY = ReasonCode(
    "NodeStaysNotReady", "The node is not Ready.", "nodes-are-not-ready"
)
DEVICE_NOT_ALLOCATABLE = ReasonCode(
    "DeviceNotAllocatable",
    "{resource} is not allocatable: {plugin} does not run on the node, or it found no device. "
    "Check whether its DaemonSet tolerates the taints of the node.",
    "nodes-are-not-ready",
)
STARTUP_TAINT_PRESENT = ReasonCode(
    "StartupTaintPresent", "The node still has the startup taint {taint}.", "nodes-are-not-ready"
)
PROMISED_RESOURCE_MISSING = ReasonCode(
    "PromisedResourceMissing",
    "{resource} is not allocatable, and a NodeOverlay promises it. Check whether the DaemonSet of "
    "its device plugin tolerates the taints of the node; for huge pages, check the user data.",
    "nodes-are-not-ready",
)
INSTANCE_NEVER_JOINED = ReasonCode(
    "InstanceNeverJoined",
    "No node has joined the cluster for the instance since Leeway launched it for pool {pool} at "
    "{time:%H:%M} UTC, so Leeway terminates it. Check the user data, the AMI, the security groups "
    "and the access entry of the node role.",
    "nodes-are-not-ready",
)
INSTANCE_NOT_OF_LAUNCH = ReasonCode(
    "InstanceNotOfLaunch",
    "Leeway does not terminate the instance, because it is not the one that Leeway launched: "
    "{difference}. Terminate it by hand if it is not needed.",
    "nodes-are-not-ready",
)
INSTANCE_IN_OTHER_CLUSTER = ReasonCode(
    "InstanceInOtherCluster",
    "The instance has joined cluster {other}, so Leeway does not abandon its launch. Its tags name "
    "cluster {cluster}: correct the tag eks:cluster-name of its Auto Scaling group.",
    "nodes-are-not-ready",
)
NODE_NAME_TAKEN = ReasonCode(
    "NodeNameTaken",
    "Node {node} has the name of the instance and the provider id of another one: delete the Node, "
    "and the kubelet of the instance registers again.",
    "nodes-are-not-ready",
)


SHORT_POLL_FOR = timedelta(minutes=5)
"""Most nodes join within two minutes; for this time the node is read at short intervals."""


@dataclass(frozen=True, slots=True)
class Device:
    """An extended resource that a node offers for its accelerators.

    - `prefixes`: prefixes of the resource's names, for whole, shared and partitioned accelerators.
    - `plugin`: the device plugin that makes the resource allocatable.
    """

    resource: str
    prefixes: tuple[str, ...]
    plugin: str


NVIDIA = Device("nvidia.com/gpu", ("nvidia.com/gpu", "nvidia.com/mig-"), "the NVIDIA device plugin")
AMD = Device("amd.com/gpu", ("amd.com/",), "the AMD GPU device plugin")
NEURON = Device("aws.amazon.com/neuron", ("aws.amazon.com/neuron",), "the AWS Neuron device plugin")
GAUDI = Device("habana.ai/gaudi", ("habana.ai/gaudi",), "the Intel Gaudi device plugin")

# Keys: the manufacturer of a GPU or an inference accelerator in DescribeInstanceTypes, in lower
# case. Source: EC2 API reference, "GpuDeviceInfo", "NeuronInfo"; the documents of each device
# plugin.
_BY_MANUFACTURER = {"nvidia": NVIDIA, "amd": AMD, "aws": NEURON, "habana": GAUDI}

# Labels that name the manufacturer. Sources: NVIDIA GPU feature discovery; Karpenter and EKS Auto
# Mode, "instance-gpu-manufacturer"; cluster autoscaler on AWS.
_MANUFACTURER_LABELS = (
    "karpenter.k8s.aws/instance-gpu-manufacturer",
    "karpenter.k8s.aws/instance-accelerator-manufacturer",
    "eks.amazonaws.com/instance-gpu-manufacturer",
)
_DEVICE_LABELS = {"nvidia.com/gpu.present": NVIDIA, "k8s.amazonaws.com/accelerator": NVIDIA}


@dataclass(frozen=True, slots=True)
class ExpectedNode:
    """The conditions of a ready node: devices for the accelerators of these manufacturers (EC2's
    names), no taint with one of these keys, and these resources, which an overlay promises."""

    manufacturers: tuple[str, ...] = ()
    startup_taints: tuple[str, ...] = ()
    promised: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node as the API server returned it. `devices` are the counts of its allocatable extended
    resources and huge pages, `taints` the keys of its taints."""

    ready: bool
    labels: Mapping[str, str]
    devices: Mapping[str, int]
    taints: Collection[str]

    @classmethod
    def of(cls, node: Node, added: Iterable[Taint] = ()) -> "ObservedNode":
        """Return a Node as it is observed. `added` are the taints that it is about to get."""
        taints = {taint.key for taint in (*node.taints, *added)}
        return cls(node.ready, node.labels, node.devices, taints)


def unmet_conditions(node: ObservedNode | None, expected: ExpectedNode) -> tuple[Reason, ...]:
    """Return the conditions that a node does not meet; empty if it is ready for pods.

    `node` is the result of a fresh read; None if no node has joined for the instance. Source of the
    taints: Karpenter, "Initialization".
    """
    if node is None:
        return (NODE_NOT_JOINED(),)
    unmet = [] if node.ready else [NODE_STAYS_NOT_READY()]
    unmet.extend(
        DEVICE_NOT_ALLOCATABLE(resource=device.resource, plugin=device.plugin)
        for device in expected_devices(expected.manufacturers, node.labels)
        if not any(n > 0 and name.startswith(device.prefixes) for name, n in node.devices.items())
    )
    unmet.extend(
        STARTUP_TAINT_PRESENT(taint=key)
        for key in dict.fromkeys(node.taints)
        if key in expected.startup_taints or key == UNINITIALIZED or key.startswith(READINESS)
    )
    unmet.extend(
        PROMISED_RESOURCE_MISSING(resource=name)
        for name in expected.promised
        if not node.devices.get(name)
    )
    return tuple(unmet)


def expected_devices(manufacturers: Iterable[str], labels: Mapping[str, str]) -> tuple[Device, ...]:
    """Return the devices that a node with these accelerators and these labels should offer."""
    from_labels = [labels[key] for key in _MANUFACTURER_LABELS if key in labels]
    devices = [_BY_MANUFACTURER.get(name.lower()) for name in (*manufacturers, *from_labels)]
    devices += [device for key, device in _DEVICE_LABELS.items() if _is_set(labels.get(key))]
    return tuple(dict.fromkeys(device for device in devices if device is not None))


def _is_set(value: str | None) -> bool:
    """Whether the value of a device label is `true` or the name of an NVIDIA accelerator."""
    return value is not None and (value == "true" or value.startswith("nvidia"))


@dataclass(frozen=True, slots=True)
class Readiness:
    """How an admission ends, and why."""

    result: AdmissionResult
    reason: Reason


def decide_admission(
    unmet: tuple[Reason, ...] | None,
    deadline: datetime,
    now: datetime,
    *,
    has_hooks: bool,
    hooks_ended: bool,
    into_pool: bool = False,
    launched: bool = False,
) -> Readiness | None:
    """Decide whether an admission ends now; None if it continues.

    `unmet` is the result of a read that has just succeeded, None if the read failed. After a
    failed read no instance is abandoned while a lifecycle hook waits. An instance that enters a
    warm pool has the same time to start, but needs no node: many join only after they leave it. An
    instance that Leeway `launched` costs money until it is observed, so its admission continues.
    """
    if unmet == ():
        return Readiness(AdmissionResult.ADMITTED, NODE_ADMITTED())
    if hooks_ended:
        reason = ADMISSION_ENDED(
            "The lifecycle hook was answered by another client or timed out before the node was "
            "ready."
        )
        return Readiness(AdmissionResult.HOOK_ENDED, reason)
    if now < deadline:
        return None
    if into_pool:
        reason = ADMISSION_ENDED(
            "The startup time of the instance is over, and it enters the warm pool of its group. "
            "Its node can join after the instance leaves the pool."
        )
        return Readiness(AdmissionResult.POOLED, reason)
    if unmet is not None:
        return not_ready(unmet)
    if has_hooks or launched:
        return None
    return Readiness(AdmissionResult.NOT_OBSERVED, NODE_NOT_OBSERVED())


def not_ready(unmet: tuple[Reason, ...]) -> Readiness:
    """Return the end of an admission whose node did not meet these conditions, at least one."""
    first, *others = unmet
    return Readiness(AdmissionResult.NOT_READY, first.and_then(*others))


def joined_elsewhere(record: Admission, observed: ObservedInstance | None) -> Readiness | None:
    """Return the end of the admission of an instance that has joined another cluster, None for any
    other. Only EKS can write the tag that says it. `observed` is the result of a fresh read."""
    if observed is None or not observed.facts.joined or observed.facts.cluster == record.cluster:
        return None
    reason = INSTANCE_IN_OTHER_CLUSTER(other=observed.facts.cluster, cluster=record.cluster)
    return Readiness(AdmissionResult.OTHER_CLUSTER, reason)


def poll_interval(
    noticed_at: datetime, now: datetime, deadline: datetime, heartbeat: datetime | None
) -> timedelta:
    """Return the time until the next read of the node, at least a second.

    After the deadline an admission continues only if the cluster could not be read, for as long as
    its hook waits: up to two days, so the interval grows. `heartbeat` is when the next one is due.
    """
    if now >= deadline:
        interval = timedelta(minutes=5 if now >= deadline + timedelta(hours=1) else 1)
    else:
        short = now - noticed_at < SHORT_POLL_FOR
        interval = min(timedelta(seconds=5 if short else 15), deadline - now)
    if heartbeat is not None:
        interval = min(interval, heartbeat - now)
    return max(interval, timedelta(seconds=1))


CLOCKS_DIFFER_BY = timedelta(minutes=5)
"""By how much Leeway's clock may be ahead of EC2's launch times."""

_EXISTS = frozenset({"pending", "running"})


def decide_unjoined(
    record: Admission, launch: Launch, observed: ObservedInstance | None, name_taken: str
) -> Readiness:
    """Decide how the admission of an instance ends for which the API server has no node, by a read
    that succeeded: TERMINATED if it is to be terminated, INSTANCE_ENDED if EC2 has ended it,
    NOT_READY if it is kept.

    `observed` is the result of a fresh read. `name_taken` is the name of a Node that the instance
    would have, but that is another instance's; empty if there is none. An instance that starts
    with the address of an ended one uses the Node of that one.
    """
    if observed is None or observed.state not in _EXISTS:
        state = "unknown" if observed is None else observed.state
        reason = ADMISSION_ENDED(
            f"EC2 has ended the instance before its node joined (its state is {state})."
        )
        return Readiness(AdmissionResult.INSTANCE_ENDED, reason)
    difference = next(_differences(record, launch, observed), "")
    if difference:
        return Readiness(AdmissionResult.NOT_READY, INSTANCE_NOT_OF_LAUNCH(difference=difference))
    if name_taken:
        return Readiness(AdmissionResult.NOT_READY, NODE_NAME_TAKEN(node=name_taken))
    reason = INSTANCE_NEVER_JOINED(pool=launch.pool, time=launch.at)
    return Readiness(AdmissionResult.TERMINATED, reason)


def _differences(record: Admission, launch: Launch, observed: ObservedInstance) -> Iterator[str]:
    facts = observed.facts
    if facts.cluster != record.facts.cluster:
        yield f"its tags name cluster {facts.cluster}"
    if facts.joined:
        yield "the tag of EKS says that it has joined a cluster"
    if observed.group:
        yield f"it is in the Auto Scaling group {observed.group}"
    if facts.owner.kind is not OwnerKind.LEEWAY:
        yield f"its tags name the owner {facts.owner.kind}"
    if facts.owner.name != launch.pool:
        yield f"its tags name the pool {facts.owner.name}, not {launch.pool}"
    if observed.intent != launch.intent:
        yield "its tag names another launch intent"
    if observed.launched_at < launch.at - CLOCKS_DIFFER_BY:
        yield f"it was launched before its launch intent, at {observed.launched_at:%H:%M} UTC"
