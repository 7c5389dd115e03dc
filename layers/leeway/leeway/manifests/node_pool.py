"""NodePool of `karpenter.sh/v1`: the nodes that may be launched, their taints and limits; and its
conversion to a pool of packing, with its node class."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from leeway.headroom.windows import Schedule, Window, change_points
from leeway.manifests.base import (
    GROUP,
    Amounts,
    BudgetSchedule,
    Duration,
    LabelKey,
    LabelValue,
    Manifest,
    Name,
    NotActedOn,
    Note,
    Strict,
    TimeWindow,
    Wrong,
    at_annotation,
    check_pool_label,
    unknown_words,
)
from leeway.manifests.cluster import Cluster
from leeway.manifests.node_class import KUBELET, EC2NodeClass, KubeletSettings
from leeway.manifests.node_overlay import NodeOverlay, conflicts_of, overlays_of_pool
from leeway.reasons import Reason
from leeway.selection.labels import (
    CAPACITY_TYPE,
    HYPERVISOR,
    JOINED,
    LAUNCHED,
    NODE_CLASS,
    NODEPOOL,
    ON_DEMAND,
    RESERVED,
    SHARED,
    TENANCY,
)
from leeway.selection.offers.allocatable import VM_MEMORY_OVERHEAD, AmiFamily, NodeClass
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import NodePool as Pool
from leeway.selection.pods import OnDemandShare, Taint
from leeway.selection.requirements import Operator, Requirement, Requirements
from leeway.selection.resources import amount, parse

USD_PER_HOUR = f"{GROUP}usd-per-hour"
"""The limit of a pool in money. Karpenter accepts it as the name of a resource that no node has."""

NITRO = "nitro"
"""The hypervisor of instance types whose connections EC2 tracks with timeouts of their own."""

_ONLY_SHARED = (
    f"expected the tenancy {SHARED}: Leeway knows the prices of shared tenancy only, and launches "
    "no nodes with another one"
)

OF_OTHERS = re.compile(r"(^|[.])(kubernetes|k8s)[.]io/|(^|[.])eks[.]amazonaws[.]com/|^leeway[.]sh/")
FREE_OF_THEM = "cluster-autoscaler.kubernetes.io/"
MOST_ANNOTATIONS = 16 * 1024
"""Bytes of the annotations of a pool's nodes: the records of a launch and of each of its nodes hold
them."""


def check_annotation(key: str) -> str:
    """Refuse an annotation that a pool may not give its nodes: kubelet, the controllers of
    Kubernetes, EKS and Leeway keep their own state in them. rbac/admission.yaml has the same rule.

    Raises:
        ValueError: a pool may not give it.
    """
    if OF_OTHERS.search(key) and not key.startswith(FREE_OF_THEM):
        raise ValueError(
            f"expected an annotation of your own domain, of karpenter.sh or {FREE_OF_THEM}, "
            f"got {key}: Kubernetes, EKS and Leeway set those of their domains"
        )
    return key


def _fits(annotations: dict[str, str]) -> dict[str, str]:
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > MOST_ANNOTATIONS:
        raise ValueError(f"expected annotations of at most 16 KB together, got {size:,}")
    return annotations


PoolAnnotations = Annotated[
    dict[Annotated[LabelKey, AfterValidator(check_annotation)], str], AfterValidator(_fits)
]
PoolLabelKey = Annotated[LabelKey, AfterValidator(check_pool_label)]
PoolLabels = dict[PoolLabelKey, LabelValue]


class LabelRequirement(Strict):
    """A requirement on a node label."""

    key: PoolLabelKey
    """Label key."""
    operator: Operator
    """How the label's value is compared with `values`."""
    values: tuple[str, ...] = ()
    """Values: at least one for `In` and `NotIn`, one integer for `Gt`, `Lt`, `Gte` and `Lte`, none
    for `Exists` and `DoesNotExist`."""

    @model_validator(mode="after")
    def _can_be_meant(self) -> Self:
        meant = Requirement.of(self.key, self.operator, self.values)
        if self.key == TENANCY and not meant.has(SHARED):
            raise ValueError(_ONLY_SHARED)
        return self


class FlexibleRequirement(LabelRequirement):
    """A requirement on a node label, with the number of values that a launch request must offer."""

    min_values: Annotated[int, Field(ge=1, le=50)] | None = None
    """Minimum number of different values among the instance types of one launch request."""

    @model_validator(mode="after")
    def _has_as_many(self) -> Self:
        if self.operator is Operator.IN and len(set(self.values)) < (self.min_values or 0):
            raise ValueError(f"expected at least minValues ({self.min_values}) values")
        return self


class TaintSpec(Strict):
    """A taint."""

    key: LabelKey
    """Key of the taint."""
    value: LabelValue = ""
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """Effect on pods that do not tolerate the taint."""
    time_added: Annotated[Any, NotActedOn("Kubernetes sets this field")] = None
    """Time at which the taint was added."""


class NodeClassRef(Strict):
    """A reference to the node class of the nodes."""

    group: Literal["karpenter.k8s.aws"] = "karpenter.k8s.aws"
    """API group of the node class."""
    kind: Literal["EC2NodeClass"] = "EC2NodeClass"
    """Kind of the node class."""
    name: Name
    """Name of the node class."""


class TemplateMetadata(Strict):
    """Labels and annotations of nodes."""

    labels: PoolLabels = Field(default_factory=dict)
    """Labels of the nodes."""
    annotations: PoolAnnotations = Field(default_factory=dict)
    """Annotations of the nodes. A node gets them once, when it joins."""

    @model_validator(mode="after")
    def _has_shared_tenancy(self) -> Self:
        if self.labels.get(TENANCY, SHARED) != SHARED:
            raise Wrong(("labels", TENANCY), _ONLY_SHARED)
        return self


Never = Literal["Never"]

MOST_REPLICAS = 100_000
"""EKS has no larger clusters. A larger number is a mistake."""

EXPIRATION = "leeway.sh/expiration"
"""The annotation of a pool that says how its nodes expire."""

FORCEFUL = "forceful"
"""Its value for an expiration as Karpenter's: without regard to the pool's budgets, to annotations
and to PodDisruptionBudgets. The default is `graceful`."""


class TemplateSpec(Strict):
    """The specification of nodes."""

    node_class_ref: NodeClassRef = Field(default_factory=lambda: NodeClassRef(name="default"))
    """Node class of the nodes. If it has no manifest, the Cluster's defaults apply."""
    requirements: Annotated[tuple[FlexibleRequirement, ...], Field(max_length=100)] = ()
    """Requirements on the labels of the nodes."""
    taints: tuple[TaintSpec, ...] = ()
    """Taints of the nodes; pods must tolerate them."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """Taints that another component removes while a node starts; pods do not have to tolerate
    them."""
    expire_after: Duration | Never = timedelta(hours=720)
    """Age at which a node is replaced: as the budgets and annotations allow it, or, with the
    annotation `leeway.sh/expiration: forceful` of the pool, at once."""
    termination_grace_period: Duration | None = None
    """Maximum time of a node's drain. With it, a node that has expired or drifted goes although an
    annotation or a PodDisruptionBudget forbids to disrupt its pods."""


class Template(Strict):
    """A template of nodes."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of the nodes."""
    spec: TemplateSpec = Field(default_factory=TemplateSpec)
    """Requirements, taints and node class of the nodes."""


class Budget(Strict):
    """How many nodes may be disrupted at once, and when."""

    nodes: Annotated[str, StringConstraints(pattern=r"^((100|[0-9]{1,2})%|[0-9]+)$")] = "10%"
    """Number or percentage of nodes; a percentage is rounded up."""
    reasons: tuple[Literal["Underutilized", "Empty", "Drifted"], ...] | None = None
    """Reasons to which the budget applies; without any, it applies to all."""
    schedule: BudgetSchedule | None = None
    """Cron expression in UTC: when the budget begins to apply."""
    duration: Duration | None = None
    """How long the budget applies after each start."""

    @model_validator(mode="after")
    def _schedule_with_duration(self) -> Self:
        if (self.schedule is None) != (self.duration is None):
            raise ValueError("expected schedule and duration together")
        return self


class Disruption(Strict):
    """When nodes are removed."""

    consolidate_after: Duration | Never = timedelta(0)
    """How long a node has to be empty or underutilized."""
    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] = (
        "WhenEmptyOrUnderutilized"
    )
    """Which nodes are removed."""
    budgets: Annotated[tuple[Budget, ...], Field(max_length=50)] = (Budget(),)
    """Disruption budgets; the strictest applies."""


def _check_limits(limits: dict[str, str]) -> dict[str, str]:
    """Refuse a limit of Leeway's own that is not known: it would limit nothing."""
    for name in limits:
        if name.startswith(GROUP) and name != USD_PER_HOUR:
            raise ValueError(f"unknown limit {name}; expected {USD_PER_HOUR}")
    return limits


class NodePoolSpec(Strict):
    """The nodes that may be launched."""

    template: Template = Field(default_factory=Template)
    """Template of the nodes."""
    disruption: Disruption = Field(default_factory=Disruption)
    """When nodes are removed."""
    limits: Annotated[Amounts, AfterValidator(_check_limits)] = Field(default_factory=dict)
    """Limits on the sum of all nodes of the pool: `cpu`, `memory`, any other resource, `nodes`, or
    `leeway.sh/usd-per-hour`, what they cost together in USD per hour at most."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """Weight of the pool: of the pools that fit a pod, the one with the largest weight is used. Not
    with `replicas`."""
    replicas: Annotated[int, Field(ge=0, le=MOST_REPLICAS)] | None = None
    """Fixed number of nodes. With it the pool is static: Leeway keeps this number, launches no node
    for pods, and consolidates none. Of the limits, only `nodes` is allowed."""

    @model_validator(mode="after")
    def _fits_replicas(self) -> Self:
        if self.replicas is None:
            return self
        if self.weight is not None:
            raise Wrong(("weight",), "expected none beside replicas: no pod chooses the pool")
        if others := sorted(self.limits.keys() - {"nodes"}):
            raise Wrong(("limits", others[0]), "expected only nodes beside replicas")
        return self


ON_DEMAND_BASE = "leeway.sh/on-demand-base"
ON_DEMAND_PERCENTAGE = "leeway.sh/on-demand-percentage-above-base"
"""The annotations of a NodePool with its on-demand share, as OnDemandBaseCapacity (in vCPUs) and
OnDemandPercentageAboveBaseCapacity of an Auto Scaling group."""

SCHEDULE = "leeway.sh/schedule"
"""The annotation of a NodePool with the windows outside of which it hibernates, as JSON: windows of
a Headroom without `replicas`."""

MOST_WINDOWS = 20

POOL_ANNOTATIONS = frozenset({EXPIRATION, ON_DEMAND_BASE, ON_DEMAND_PERCENTAGE, KUBELET, SCHEDULE})
"""The annotations of a NodePool that Leeway reads."""


class NodePool(Manifest):
    """The nodes that may be launched. Leeway launches them for pods that have no place."""

    api_version: Literal["karpenter.sh/v1"]
    kind: Literal["NodePool"]
    spec: NodePoolSpec
    """The nodes that may be launched."""

    @model_validator(mode="after")
    def _kubelet_can_be_read(self) -> Self:
        try:
            self.kubelet()
        except ValidationError:
            raise Wrong(at_annotation(KUBELET), "expected kubelet settings as JSON") from None
        return self

    @model_validator(mode="after")
    def _expiration_is_known(self) -> Self:
        written = self.metadata.annotations.get(EXPIRATION, FORCEFUL)
        if written not in {FORCEFUL, "graceful"}:
            said = f"expected graceful or {FORCEFUL}, got {written[:50]!r}"
            raise Wrong(at_annotation(EXPIRATION), said)
        return self

    @model_validator(mode="after")
    def _share_can_be_read(self) -> Self:
        if self.on_demand() is not None and self.spec.replicas is not None:
            raise Wrong(
                at_annotation(ON_DEMAND_PERCENTAGE),
                "expected none beside spec.replicas: a static pool has no on-demand share; write "
                "two pools",
            )
        return self

    @model_validator(mode="after")
    def _schedule_can_be_read(self) -> Self:
        try:
            windows = self.windows()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            said = first["msg"].removeprefix("Value error, ")
            raise Wrong(at_annotation(SCHEDULE, *first["loc"]), said) from None
        for number, window in enumerate(windows):
            if window.never_closes():
                raise Wrong(
                    at_annotation(SCHEDULE, number),
                    "expected a window that closes: each of its starts is one of its ends, too, so "
                    "it opens again at once",
                )
        return self

    def windows(self) -> tuple[Window, ...]:
        """Return the windows outside of which the pool hibernates; none if it never does.

        Raises:
            ValueError: the annotation is wrong.
        """
        written = self.metadata.annotations.get(SCHEDULE)
        if written is None:
            return ()
        try:
            parsed = json.loads(written)
        except (ValueError, RecursionError):
            parsed = None
        if not (isinstance(parsed, list) and 0 < len(parsed) <= MOST_WINDOWS):
            raise Wrong(
                at_annotation(SCHEDULE),
                f"expected a JSON list of 1 to {MOST_WINDOWS} windows, such as "
                '[{"timezone": "Europe/Berlin", "start": "30 7 * * 1-5", "end": "0 19 * * 1-5"}]',
            )
        found = _windows().validate_python(tuple(parsed))
        return tuple(one.window() for one in found)

    def on_demand(self) -> OnDemandShare | None:
        """Return the on-demand share of the pool's capacity; None if it has none.

        Raises:
            ValueError: an annotation is wrong.
        """
        base = self.metadata.annotations.get(ON_DEMAND_BASE)
        percentage = self.metadata.annotations.get(ON_DEMAND_PERCENTAGE)
        if percentage is None:
            if base is None:
                return None
            said = f'expected {ON_DEMAND_PERCENTAGE} as well, for example "0"'
            raise Wrong(at_annotation(ON_DEMAND_BASE), said)
        if not re.fullmatch("100|[0-9]{1,2}", percentage):
            said = f'expected a whole number from 0 to 100, got "{percentage[:80]}"'
            raise Wrong(at_annotation(ON_DEMAND_PERCENTAGE), said)
        return OnDemandShare(_base(base or "0"), int(percentage))

    def kubelet(self) -> KubeletSettings | None:
        """Return the kubelet settings of a converted manifest; None if it has none."""
        written = self.metadata.annotations.get(KUBELET)
        return None if written is None else KubeletSettings.model_validate_json(written)

    known_annotations: ClassVar[frozenset[str]] = POOL_ANNOTATIONS

    summary_columns: ClassVar[tuple[str, ...]] = (
        "NODECLASS",
        "WEIGHT",
        "REPLICAS",
        "REQUIREMENTS",
    )

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        spec = self.spec.template.spec
        asked = ", ".join(
            str(Requirement.of(r.key, r.operator, r.values)) for r in spec.requirements
        )
        replicas = "" if self.spec.replicas is None else str(self.spec.replicas)
        return (spec.node_class_ref.name, str(self.spec.weight or 0), replicas, asked)

    def notes(self) -> tuple[Note, ...]:
        """Warn also about limits that no node has, a share that the requirements do not allow,
        and about a limit of a static pool that leaves no room for replacements."""
        money = (
            Note(("spec", "limits", name), f"no node has this resource: expected {USD_PER_HOUR}?")
            for name in self.spec.limits
            if "/" not in name and "usd" in name.lower()
        )
        return (
            *super().notes(),
            *self._unknown_labels(),
            *money,
            *self._notes_on_share(),
            *self._notes_on_replicas(),
            *self._notes_on_windows(),
        )

    def _unknown_labels(self) -> Iterator[Note]:
        """Warn about labels of nodes in Leeway's domain: they switch nothing."""
        labels = self.spec.template.metadata.labels
        for key, why in unknown_words(labels, {LAUNCHED}, "label", "nodes"):
            yield Note(("spec", "template", "metadata", "labels", key), why)

    def _notes_on_windows(self) -> Iterator[Note]:
        """Warn about windows with several starts or ends in a row, and about windows of one time
        zone that overlap: the pool is awake in both, and a typing error in one of them may keep it
        awake."""
        windows = self.windows()
        for number, window in enumerate(windows):
            if trap := window.trap():
                yield Note(at_annotation(SCHEDULE, number), trap)
        for (first, one), (second, other) in combinations(enumerate(windows), 2):
            if one.timezone == other.timezone and _overlap(one, other):
                said = f"windows [{first}] and [{second}] overlap: the pool is awake in both"
                yield Note(at_annotation(SCHEDULE), said)

    def _notes_on_replicas(self) -> Iterator[Note]:
        replicas, limit = self.spec.replicas, self.spec.limits.get("nodes")
        if not replicas or limit is None or (nodes := amount("nodes", limit)) > replicas:
            return
        what = (
            f"more than {replicas}: a drifted node goes only when another one is Ready beside it"
            if nodes == replicas
            else f"at least {replicas}, the replicas: the pool cannot have as many nodes"
        )
        yield Note(("spec", "limits", "nodes"), f"expected {what}")

    def _notes_on_share(self) -> Iterator[Note]:
        """Warn about a share that the requirements of the pool do not allow."""
        asked = self.spec.template.spec.requirements
        types = Requirements(
            Requirement.of(r.key, r.operator, r.values) for r in asked if r.key == CAPACITY_TYPE
        ).of_key(CAPACITY_TYPE)
        lasting = types.has(ON_DEMAND) or types.has(RESERVED)
        if not lasting and self.on_demand() not in {None, OnDemandShare()}:
            said = "the pool has an on-demand share, and its requirements allow only Spot"
            yield Note(at_annotation(ON_DEMAND_PERCENTAGE), said)


@cache
def _windows() -> TypeAdapter[tuple[TimeWindow, ...]]:
    return TypeAdapter(tuple[TimeWindow, ...])


def _overlap(one: Window, other: Window) -> bool:
    """Whether two windows are open at one time, in two months of a year with every weekday."""
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    end = begin + timedelta(days=62)
    points = [*change_points(Schedule((one,)), begin, end)]
    spans = [*pairwise(point.at for point in points), (points[-1].at, end)]
    for (opens, closes), point in zip(spans, points, strict=True):
        if point.size.replicas:
            later = other.next_opening(opens)
            if other.is_open(opens) or (later is not None and later < closes):
                return True
    return False


def _base(text: str) -> int:
    try:
        millicores = amount("cpu", text)
    except ValueError:
        millicores = -1
    if millicores < 0:
        said = f'expected a number of vCPUs of at least 0, such as "8", got "{text[:80]}"'
        raise Wrong(at_annotation(ON_DEMAND_BASE), said)
    return millicores


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults of a Cluster manifest for all nodes."""

    family: AmiFamily = AmiFamily.AL2023
    prefix_delegation: bool = False
    vm_memory_overhead: Fraction = VM_MEMORY_OVERHEAD


def defaults_of(cluster: Cluster | None) -> Defaults:
    """Read the defaults of a Cluster manifest; without a manifest, the built-in ones."""
    if cluster is None:
        return Defaults()
    said = cluster.spec.defaults
    return Defaults(
        family=AmiFamily(said.ami_family),
        prefix_delegation=said.prefix_delegation,
        vm_memory_overhead=Fraction(str(said.vm_memory_overhead_percent)) / 100,
    )


def pools_of(manifests: Iterable[Manifest]) -> tuple[Pool, ...]:
    """Convert each NodePool, ordered by weight. Of other kinds, only node classes, overlays and the
    Cluster's defaults are used."""
    given = tuple(manifests)
    clusters = [m for m in given if isinstance(m, Cluster)]
    defaults = defaults_of(clusters[0] if clusters else None)
    classes = {m.metadata.name: m for m in given if isinstance(m, EC2NodeClass)}
    overlays = [m for m in given if isinstance(m, NodeOverlay)]
    pools = [_pool(m, classes, defaults, overlays) for m in given if isinstance(m, NodePool)]
    return tuple(sorted(pools, key=lambda pool: -pool.weight))


def without_conflicts(
    manifests: Iterable[Manifest], catalog: Catalog
) -> tuple[tuple[Manifest, ...], Mapping[str, Reason]]:
    """Leave out the NodeOverlays that conflict with another one, and return why, by their names.
    Two conflict if they have one weight and set the price of one offering, or one resource of one
    type, also to equal values: the one whose name is later in the alphabet stays, and the other
    applies nowhere.

    Source: Karpenter's controller `nodeoverlay` and its suite.
    """
    given = tuple(manifests)
    if sum(isinstance(one, NodeOverlay) for one in given) < 2:
        return given, {}
    conflicts = conflicts_of(pools_of(given), catalog)
    left = (m for m in given if not isinstance(m, NodeOverlay) or m.metadata.name not in conflicts)
    return tuple(left), conflicts


def pools_without_limits(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """Return the names of pools without limits, in which pods may launch nodes without end. Static
    pools have an end."""
    pools = (one for one in manifests if isinstance(one, NodePool))
    return tuple(
        one.metadata.name for one in pools if one.spec.replicas is None and not one.spec.limits
    )


def node_class_of(
    manifest: EC2NodeClass | None, defaults: Defaults, name: str = "default"
) -> NodeClass:
    """Return the settings that decide a node's allocatable resources."""
    family = (manifest and manifest.spec.family) or defaults.family
    plain = NodeClass(
        name=manifest.metadata.name if manifest else name,
        family=family,
        prefix_delegation=defaults.prefix_delegation,
        vm_memory_overhead=defaults.vm_memory_overhead,
    )
    if manifest is None:
        return plain
    return replace(
        plain,
        kubelet=manifest.spec.kubelet.settings(),
        storage=manifest.storage(family),
        raid0=manifest.spec.instance_store_policy == "RAID0",
        prefix_delegation=defaults.prefix_delegation or bool(manifest.spec.ip_prefix_count),
        public_address=bool(manifest.spec.associate_public_ip_address),
    )


def _pool(
    manifest: NodePool,
    classes: Mapping[str, EC2NodeClass],
    defaults: Defaults,
    overlays: Sequence[NodeOverlay],
) -> Pool:
    spec = manifest.spec.template.spec
    wanted = spec.node_class_ref.name
    labels = {
        NODEPOOL: manifest.metadata.name,
        NODE_CLASS: wanted,
        **JOINED,
        **manifest.spec.template.metadata.labels,
    }
    asked = Requirements(
        Requirement.of(r.key, r.operator, r.values, r.min_values) for r in spec.requirements
    )
    if wanted in classes and classes[wanted].spec.connection_tracking is not None:
        asked = asked.intersection(Requirements([Requirement.of(HYPERVISOR, "In", [NITRO])]))
    node_class = node_class_of(classes.get(wanted), defaults, wanted)
    if (kubelet := manifest.kubelet()) is not None:
        node_class = replace(node_class, kubelet=kubelet.settings())
    if overlays:
        node_class = replace(node_class, overlays=overlays_of_pool(overlays, labels))
    money = manifest.spec.limits.get(USD_PER_HOUR)
    amounts = ((n, text) for n, text in manifest.spec.limits.items() if n != USD_PER_HOUR)
    limits = {name: amount(name, text) for name, text in amounts}
    return Pool(
        name=manifest.metadata.name,
        requirements=asked.intersection(Requirements.from_labels(labels)),
        weight=manifest.spec.weight or 0,
        labels=labels,
        taints=tuple(map(_taint, spec.taints)),
        startup_taints=tuple(map(_taint, spec.startup_taints)),
        limits=limits or None,
        node_class=node_class,
        replicas=manifest.spec.replicas,
        usd_per_hour=None if money is None else float(parse(money)),
        on_demand=manifest.on_demand(),
    )


def _taint(spec: TaintSpec) -> Taint:
    return Taint(spec.key, spec.value, spec.effect)
