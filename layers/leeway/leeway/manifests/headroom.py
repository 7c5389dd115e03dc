"""The Headroom manifest of `leeway.sh/v1`: buffers of pause pods, by cron or cluster size."""

from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from leeway.headroom.pause_pods import (
    IMAGE,
    LOWEST_PRIORITY,
    MAX_NAME_LENGTH,
    NAMESPACE,
    PausePods,
    anti_affinity_terms,
    is_pause_image,
    may_keep_away,
    may_tolerate,
)
from leeway.headroom.plan import (
    Buffer,
    DesiredHeadroom,
    Ladder,
    Linear,
    ScaleTarget,
    Step,
    TemplateBuffer,
    template_deployment_name,
)
from leeway.headroom.windows import Schedule
from leeway.manifests.base import (
    Amounts,
    Duration,
    Labels,
    Manifest,
    Name,
    Note,
    Strict,
    TimeWindow,
    Wrong,
)
from leeway.manifests.configuration import Configuration
from leeway.manifests.scaled_object import ScaledObject
from leeway.selection.resources import amount

Count = Annotated[int, Field(ge=0, le=100_000)]


def _tolerations_of_pools(tolerations: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    for one in tolerations:
        if not may_tolerate(one):
            raise ValueError(
                f"expected the key of a pool's taint, got {one.get('key') or 'every taint'}"
            )
    return tolerations


def _affinity_within_a_node(affinity: dict[str, Any]) -> dict[str, Any]:
    try:
        narrow = all(map(may_keep_away, anti_affinity_terms(affinity)))
    except (AttributeError, TypeError):
        raise ValueError("expected an affinity, as in a pod") from None
    if not narrow:
        raise Wrong(
            ("podAntiAffinity",),
            "expected topologyKey kubernetes.io/hostname, without namespaces and namespaceSelector",
        )
    return affinity


class PodSize(Strict):
    """One pause pod: the capacity that it reserves, and on which nodes."""

    requests: Annotated[Amounts, Field(min_length=1)]
    """Resource requests of the pod: `cpu`, `memory`, `nvidia.com/gpu`, …"""
    node_selector: Labels = Field(default_factory=dict)
    """Labels of the nodes on which the pod may run."""
    tolerations: Annotated[tuple[dict[str, Any], ...], AfterValidator(_tolerations_of_pools)] = ()
    """Tolerations of the taints of pools, as in a pod. Each names the key of a taint; taints of
    Kubernetes, Karpenter, Cluster Autoscaler and Leeway are refused."""
    affinity: Annotated[dict[str, Any], AfterValidator(_affinity_within_a_node)] = Field(
        default_factory=dict
    )
    """Affinity, as in a pod. Pod anti-affinity has the topology key `kubernetes.io/hostname`, and
    selects pods of its own namespace."""
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    """Topology spread constraints, as in a pod. A constraint without `labelSelector` counts the
    pods of this buffer."""


class WindowSpec(TimeWindow):
    """A recurring window with a number of pods."""

    replicas: Annotated[Count, Field(ge=1)]
    """Number of pods while the window is open."""


class LinearSpec(Strict):
    """A number of pods in proportion to the cluster, as in cluster-proportional-autoscaler."""

    cores_per_replica: Annotated[int, Field(ge=1)] | None = None
    """Cores for each pod, rounded up to whole pods."""
    nodes_per_replica: Annotated[int, Field(ge=1)] | None = None
    """Nodes for each pod, rounded up to whole pods. If both are set, the larger number applies."""
    min: Count = 0
    """Minimum number of pods."""
    max: Count | None = None
    """Maximum number of pods."""

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if self.cores_per_replica is None and self.nodes_per_replica is None:
            raise ValueError("expected coresPerReplica, nodesPerReplica or both")
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min}: expected at most max ({self.max})")
        return self


Rung = Annotated[tuple[Count, Count], Field(strict=False)]


def _ascending(steps: tuple[Rung, ...]) -> tuple[Rung, ...]:
    sizes = [size for size, _ in steps]
    if sizes != sorted(set(sizes)):
        raise ValueError("expected steps in ascending order")
    return steps


Rungs = Annotated[tuple[Rung, ...], AfterValidator(_ascending)]


class LadderSpec(Strict):
    """A number of pods by steps, as in cluster-proportional-autoscaler."""

    cores_to_replicas: Rungs = ()
    """Pairs `[cores, pods]` in ascending order: the number of pods from this number of cores on."""
    nodes_to_replicas: Rungs = ()
    """Pairs `[nodes, pods]` in ascending order. If both are set, the larger number applies."""

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if not self.cores_to_replicas and not self.nodes_to_replicas:
            raise ValueError("expected coresToReplicas, nodesToReplicas or both")
        return self


def _lead(lead: timedelta) -> timedelta:
    if not timedelta(0) <= lead <= timedelta(hours=6):
        raise ValueError("expected a duration of at most 6h")
    return lead


class BufferSpec(Strict):
    """Pause pods of one size. `replicas`, `windows`, `linear` and `ladder` each give a number; the
    largest applies."""

    name: Annotated[Name, StringConstraints(max_length=63)]
    """Name of the buffer, unique in the Headroom."""
    pod: PodSize
    """Requests and placement of each pod."""
    replicas: Count = 0
    """Number of pods at all times."""
    windows: tuple[WindowSpec, ...] = ()
    """Numbers of pods by cron windows. If several windows are open, the largest applies."""
    linear: LinearSpec | None = None
    """A number of pods in proportion to the cluster."""
    ladder: LadderSpec | None = None
    """A number of pods by steps of the cluster's size."""
    lead_time: Annotated[Duration, AfterValidator(_lead)] | None = None
    """How long before a window's start its pods are created, so that they run when it opens. The
    default is the median time that pods of this buffer waited for a node, and two minutes until
    there is a measurement."""

    @model_validator(mode="after")
    def _of_some_size(self) -> Self:
        if not (self.replicas or self.windows or self.linear or self.ladder):
            raise ValueError("expected at least one of replicas, windows, linear and ladder")
        return self


def _pause_image(image: str) -> str:
    if not is_pause_image(image):
        raise ValueError(
            f"expected registry.k8s.io/pause with a tag or a digest, or a copy of {IMAGE} in "
            "another registry, with this digest"
        )
    return image


class HeadroomSpec(Strict):
    """Spare capacity that pause pods reserve until other pods need it."""

    namespace: Annotated[Name, StringConstraints(max_length=63)] = NAMESPACE
    """Namespace of the pause pods. A namespace other than `leeway-headroom` must exist, with a
    RoleBinding of the group `leeway:headroom` to the ClusterRole `leeway-headroom-buffer`."""
    priority: Annotated[int, Field(ge=-(2**31), le=-1)] = LOWEST_PRIORITY
    """Priority of the pause pods, below that of every pod that may preempt them. Node autoscalers
    ignore pending pods below -10."""
    image: Annotated[str, StringConstraints(max_length=255), AfterValidator(_pause_image)] = IMAGE
    """Image of the pause pods: `registry.k8s.io/pause`, or a copy of the default image in another
    registry, with its digest."""
    buffers: Annotated[tuple[BufferSpec, ...], Field(min_length=1, max_length=100)]
    """The buffers, each with its own number of pods, requests and placement."""

    @model_validator(mode="after")
    def _of_different_names(self) -> Self:
        names = [buffer.name for buffer in self.buffers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"expected a unique name for each buffer, got {twice[0]!r} twice")
        return self


class Headroom(Manifest):
    """Keeps spare capacity: by cron windows, in proportion to the cluster, or at all times."""

    api_version: Literal["leeway.sh/v1"]
    kind: Literal["Headroom"]
    spec: HeadroomSpec
    """The capacity to keep."""

    summary_columns: ClassVar[tuple[str, ...]] = ("BUFFERS", "PRIORITY")

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        return (",".join(buffer.name for buffer in self.spec.buffers), str(self.spec.priority))

    def notes(self) -> tuple[Note, ...]:
        """Warn about a priority that autoscalers ignore, and about unlimited growth."""
        notes = super().notes()
        if self.spec.priority < LOWEST_PRIORITY:
            said = (
                f"node autoscalers ignore pending pods below {LOWEST_PRIORITY} by default: no "
                "new node replaces the capacity after a preemption"
            )
            notes += (Note(("spec", "priority"), said),)
        return notes + tuple(
            Note(("spec", "buffers", index, "linear"), _WITHOUT_END)
            for index, buffer in enumerate(self.spec.buffers)
            if _feeds_itself(buffer)
        )

    @model_validator(mode="after")
    def _of_names_that_fit(self) -> Self:
        for buffer in self.buffers():
            if len(buffer.pods.name) > MAX_NAME_LENGTH:
                raise Wrong(
                    ("metadata", "name"),
                    f"expected at most {MAX_NAME_LENGTH} characters in NAME-BUFFER: "
                    f"{buffer.pods.name} has {len(buffer.pods.name)}",
                )
        return self

    def buffers(self) -> tuple[Buffer, ...]:
        """Return the pause pods to keep."""
        return tuple(self._buffer(spec) for spec in self.spec.buffers)

    def _buffer(self, spec: BufferSpec) -> Buffer:
        pod = spec.pod
        return Buffer(
            source=f"headroom.leeway.sh {self.metadata.name}",
            pods=PausePods(
                name=f"{self.metadata.name}-{spec.name}",
                namespace=self.spec.namespace,
                requests=pod.requests,
                priority=self.spec.priority,
                image=self.spec.image,
                node_selector=pod.node_selector,
                affinity=pod.affinity,
                tolerations=pod.tolerations,
                spread=pod.topology_spread_constraints,
            ),
            schedule=_schedule(spec.windows),
            linear=_linear(spec.linear),
            ladder=_ladder(spec.ladder),
            at_least=spec.replicas,
            lead=spec.lead_time,
        )


_WITHOUT_END = (
    "expected max: each pod requests at least coresPerReplica cores, so that every new node raises "
    "the number of pods"
)


def _feeds_itself(buffer: BufferSpec) -> bool:
    """Whether a node that is added for one of its pods adds at least one more pod."""
    linear = buffer.linear
    if linear is None or linear.max is not None or linear.cores_per_replica is None:
        return False
    return amount("cpu", buffer.pod.requests.get("cpu", "0")) >= 1000 * linear.cores_per_replica


def _schedule(windows: tuple[WindowSpec, ...]) -> Schedule | None:
    if not windows:
        return None
    largest = max(window.replicas for window in windows)
    return Schedule(tuple(one.window(one.replicas) for one in windows), maximum=largest)


def _linear(spec: LinearSpec | None) -> Linear | None:
    if spec is None:
        return None
    return Linear(spec.cores_per_replica, spec.nodes_per_replica, spec.min, spec.max)


def _ladder(spec: LadderSpec | None) -> Ladder | None:
    if spec is None:
        return None
    return Ladder(
        tuple(Step(*rung) for rung in spec.cores_to_replicas),
        tuple(Step(*rung) for rung in spec.nodes_to_replicas),
    )


class PodTemplateRef(Strict):
    """A PodTemplate in the namespace of the CapacityBuffer."""

    name: Name
    """Name of the PodTemplate."""


class ScalableRef(Strict):
    """A workload with a pod template, in the namespace of the CapacityBuffer."""

    api_group: Literal["apps"] = "apps"
    """API group of the workload."""
    kind: Literal["Deployment", "ReplicaSet", "StatefulSet"]
    """Kind of the workload."""
    name: Name
    """Name of the workload."""


class CapacityBufferSpec(Strict):
    """Which pods to keep capacity for, and how many."""

    provisioning_strategy: Literal["", "buffer.x-k8s.io/active-capacity"] = (
        "buffer.x-k8s.io/active-capacity"
    )
    """How the capacity is kept: `buffer.x-k8s.io/active-capacity`, which runs pause pods."""
    pod_template_ref: PodTemplateRef | None = None
    """The PodTemplate to keep capacity for. Set either this or `scalableRef`."""
    scalable_ref: ScalableRef | None = None
    """The workload to keep capacity for. Set either this or `podTemplateRef`."""
    replicas: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Number of pods to keep capacity for."""
    percentage: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Percentage of the replicas of `scalableRef`, rounded up, at least one pod."""
    limits: Amounts = Field(default_factory=dict)
    """Upper bound on the sum of the pods' requests. Without `replicas` and `percentage`, as many
    pods as fit into it."""

    @model_validator(mode="after")
    def _means_one_thing(self) -> Self:
        if (self.pod_template_ref is None) == (self.scalable_ref is None):
            raise ValueError("expected either podTemplateRef or scalableRef")
        if self.percentage is not None and self.scalable_ref is None:
            raise Wrong(("percentage",), "expected scalableRef as well")
        if self.percentage is not None and self.replicas is not None:
            # One version of the API's documentation takes the larger of both, another the smaller.
            raise ValueError("expected either replicas or percentage, not both")
        if self.replicas is None and self.percentage is None and not self.limits:
            raise ValueError("expected replicas, percentage or limits")
        return self


class CapacityBuffer(Manifest):
    """Keeps spare capacity for the pods of a template."""

    api_version: Literal["autoscaling.x-k8s.io/v1alpha1", "autoscaling.x-k8s.io/v1beta1"]
    kind: Literal["CapacityBuffer"]
    spec: CapacityBufferSpec
    """The capacity to keep."""

    summary_columns: ClassVar[tuple[str, ...]] = ("FOR", "REPLICAS")

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        spec, like = self.spec, self.template_buffer().template_of
        size = f"{spec.percentage}%" if spec.percentage is not None else spec.replicas
        return (f"{like.kind}/{like.name}", "as many as fit" if size is None else str(size))

    @model_validator(mode="after")
    def _of_a_name_that_fits(self) -> Self:
        excess = len(template_deployment_name(self.template_buffer())) - MAX_NAME_LENGTH
        if excess > 0:
            most = len(self.metadata.name) - excess
            raise Wrong(
                ("metadata", "name"),
                f"expected at most {most} characters, got {len(self.metadata.name)}",
            )
        return self

    def template_buffer(self) -> TemplateBuffer:
        """Return the pause pods to keep, with the object whose template they are made from."""
        spec = self.spec
        namespace = self.metadata.namespace or "default"
        if spec.scalable_ref is not None:
            ref = spec.scalable_ref
            template_of = ScaleTarget("apps/v1", ref.kind, namespace, ref.name)
        else:
            name = spec.pod_template_ref.name if spec.pod_template_ref else ""
            template_of = ScaleTarget("v1", "PodTemplate", namespace, name)
        return TemplateBuffer(
            source=f"capacitybuffer.autoscaling.x-k8s.io {namespace}/{self.metadata.name}",
            name=self.metadata.name,
            template_of=template_of,
            replicas=spec.replicas,
            percentage=spec.percentage,
            limits=spec.limits,
        )


KINDS = ("capacitybuffer.autoscaling.x-k8s.io", "headroom.leeway.sh", "scaledobject.keda.sh")


def desired_headroom(stored: Configuration, cluster: str) -> DesiredHeadroom:
    """Return the headroom that a cluster's manifests define, and its policy.

    Raises:
        CloudUnavailable, CloudRefused: the manifests cannot be read.
    """
    written = stored.manifests(cluster, KINDS)
    manifests = [one.manifest for one in written]
    return DesiredHeadroom(
        policy=stored.policy_of(cluster),
        buffers=tuple(b for m in manifests if isinstance(m, Headroom) for b in m.buffers()),
        template_buffers=tuple(
            m.template_buffer() for m in manifests if isinstance(m, CapacityBuffer)
        ),
        targets=tuple(m.target() for m in manifests if isinstance(m, ScaledObject)),
        unreadable=stored.unread(cluster, KINDS),
    )
