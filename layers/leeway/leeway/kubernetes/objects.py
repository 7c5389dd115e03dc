"""What Leeway reads of Kubernetes objects, as msgspec's structs.

Models with every field of a kind take a tenth of the import of a function to prepare. All decoders
are built on import, in one thread:
msgspec builds the type information of a class on its first use and publishes it before it is
complete. A second thread that uses the class at that moment reads a null pointer, and the process
crashes (SIGSEGV, observed with msgspec 0.22).

A field that is null is None, as a missing one.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct, field
from msgspec.json import Decoder

from leeway.kubernetes.list_watch import ObjectList


class _Read(Struct, rename="camel", omit_defaults=True):
    """Fields have Kubernetes's names, in snake case."""


class Owner(_Read):
    api_version: str
    kind: str
    name: str
    controller: bool | None = None


class Metadata(_Read):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    finalizers: list[str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


class NodeTaint(_Read):
    """All fields, since a patch of a node's taints writes them back."""

    key: str
    effect: str
    value: str | None = None
    time_added: str | None = None


class NodeSpec(_Read):
    provider_id: str | None = field(name="providerID", default=None)
    unschedulable: bool | None = None
    taints: list[NodeTaint] | None = None


class NodeCondition(_Read):
    type: str
    status: str
    last_transition_time: datetime | None = None


class NodeStatus(_Read):
    conditions: list[NodeCondition] | None = None
    allocatable: dict[str, str] | None = None


class Node(_Read):
    metadata: Metadata | None = None
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Toleration(_Read):
    key: str | None = None
    operator: str | None = None
    effect: str | None = None


class Claim(_Read):
    claim_name: str


class Volume(_Read):
    name: str
    empty_dir: Any = None
    ephemeral: Any = None
    persistent_volume_claim: Claim | None = None


class Expression(_Read):
    key: str


class NodeTerm(_Read):
    match_expressions: list[Expression] | None = None


class NodeTerms(_Read):
    node_selector_terms: list[NodeTerm] | None = None


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(_Read):
    required: NodeTerms | None = field(name=_REQUIRED, default=None)


class PodTerm(_Read):
    topology_key: str


class PodAffinity(_Read):
    required: list[PodTerm] | None = field(name=_REQUIRED, default=None)


class Affinity(_Read):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(_Read):
    topology_key: str
    when_unsatisfiable: str


class PodSpec(_Read):
    node_name: str | None = None
    termination_grace_period_seconds: int | None = None
    priority_class_name: str | None = None
    volumes: list[Volume] | None = None
    tolerations: list[Toleration] | None = None
    affinity: Affinity | None = None
    node_selector: dict[str, str] | None = None
    topology_spread_constraints: list[Spread] | None = None


class PodStatus(_Read):
    phase: str | None = None
    start_time: datetime | None = None


class Pod(_Read):
    metadata: Metadata | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


class Requirement(_Read):
    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(_Read):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None


class BudgetSpec(_Read):
    selector: LabelSelector | None = None


class BudgetStatus(_Read):
    disrupted_pods: dict[str, datetime] | None = None
    disruptions_allowed: int | None = None
    expected_pods: int | None = None
    current_healthy: int | None = None


class Budget(_Read):
    metadata: Metadata | None = None
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class AttachmentSource(_Read):
    persistent_volume_name: str | None = None


class AttachmentSpec(_Read):
    node_name: str
    source: AttachmentSource


class VolumeAttachment(_Read):
    spec: AttachmentSpec


class ClaimReference(_Read):
    name: str | None = None
    namespace: str | None = None


class VolumeSpec(_Read):
    claim_ref: ClaimReference | None = None


class PersistentVolume(_Read):
    spec: VolumeSpec | None = None


NODE = Decoder(Node)
POD = Decoder(Pod)
PERSISTENT_VOLUME = Decoder(PersistentVolume)
BUDGETS = Decoder(ObjectList[Budget])
NODES = Decoder(ObjectList[Node])
PODS = Decoder(ObjectList[Pod])
VOLUME_ATTACHMENTS = Decoder(ObjectList[VolumeAttachment])
