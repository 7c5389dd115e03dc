"""The kinds that the API serves, from lightkube's generated resources, with kubectl's names."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, Any

from lightkube.core import resource as lightkube_resource
from lightkube.models.meta_v1 import DeleteOptions
from lightkube.models.policy_v1 import Eviction

if TYPE_CHECKING:
    from leeway_sandbox.kubernetes.custom_resources import CustomSchema

_MODULES = (
    "core_v1",
    "admissionregistration_v1",
    "apiextensions_v1",
    "apps_v1",
    "autoscaling_v1",
    "batch_v1",
    "coordination_v1",
    "discovery_v1",
    "networking_v1",
    "node_v1",
    "policy_v1",
    "rbac_authorization_v1",
    "scheduling_v1",
    "storage_v1",
)
_SHORT_NAMES = {
    "componentstatuses": ("cs",),
    "configmaps": ("cm",),
    "cronjobs": ("cj",),
    "customresourcedefinitions": ("crd", "crds"),
    "daemonsets": ("ds",),
    "deployments": ("deploy",),
    "endpoints": ("ep",),
    "events": ("ev",),
    "horizontalpodautoscalers": ("hpa",),
    "ingresses": ("ing",),
    "limitranges": ("limits",),
    "namespaces": ("ns",),
    "networkpolicies": ("netpol",),
    "nodes": ("no",),
    "persistentvolumeclaims": ("pvc",),
    "persistentvolumes": ("pv",),
    "poddisruptionbudgets": ("pdb",),
    "pods": ("po",),
    "priorityclasses": ("pc",),
    "replicasets": ("rs",),
    "replicationcontrollers": ("rc",),
    "resourcequotas": ("quota",),
    "serviceaccounts": ("sa",),
    "services": ("svc",),
    "statefulsets": ("sts",),
    "storageclasses": ("sc",),
}
_ALL = frozenset(
    (
        "pods",
        "replicationcontrollers",
        "services",
        "daemonsets",
        "deployments",
        "replicasets",
        "statefulsets",
        "cronjobs",
        "jobs",
        "horizontalpodautoscalers",
    )
)
_SUBRESOURCES = ("status", "scale", "eviction")
_WITH_GENERATION = frozenset(
    ("apiextensions.k8s.io", "apps", "batch", "policy", "scheduling.k8s.io")
)
_VERBS = {"global_list": "list", "global_watch": "watch", "post": "create", "put": "update"}


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """One kind of object; compared by identity. A custom one has the name of its definition, which
    the versions of a kind share, as they share its objects, and the schema, the names and the
    columns of that version. `replicas` is the path of the number that `/scale` shows."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    model: type[Any]
    verbs: tuple[str, ...]
    subresources: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    definition: str = ""
    custom: CustomSchema | None = None
    names: dict[str, Any] = dataclasses.field(default_factory=dict)
    columns: tuple[dict[str, Any], ...] = ()
    replicas: tuple[str, ...] = ("status", "replicas")

    def __eq__(self, other: object) -> bool:
        """Whether two kinds have the same objects."""
        if self is other or not self.definition:
            return self is other
        return isinstance(other, Kind) and self.definition == other.definition

    def __hash__(self) -> int:
        """Hash as `__eq__` compares."""
        return hash(self.definition) if self.definition else id(self)

    @property
    def api_version(self) -> str:
        """Return "v1" or "apps/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Return "pods" or "deployments.apps", as error messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def short_names(self) -> tuple[str, ...]:
        """Return the short names for kubectl."""
        return tuple(self.names.get("shortNames") or _SHORT_NAMES.get(self.plural, ()))

    @property
    def categories(self) -> tuple[str, ...]:
        """Return kubectl's categories, such as "all"."""
        if self.custom is not None:
            return tuple(self.names.get("categories") or ())
        return ("all",) if self.plural in _ALL else ()

    @property
    def has_generation(self) -> bool:
        """Whether `metadata.generation` counts the changes of the spec."""
        custom = self.custom is not None
        return custom or self.group in _WITH_GENERATION or self.plural == "pods"

    def typed(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Return a stored object with `kind` and `apiVersion`."""
        return {"kind": self.kind, "apiVersion": self.api_version, **obj}


def _read() -> dict[tuple[str, str, str], Kind]:
    kinds: dict[tuple[str, str, str], Kind] = {}
    subresources = []
    for module in _MODULES:
        for value in vars(importlib.import_module(f"lightkube.resources.{module}")).values():
            info = getattr(value, "_api_info", None)
            if info is None:
                continue
            if info.action:
                subresources.append(info)
                continue
            if "global_list" not in info.verbs and "list" not in info.verbs:
                continue
            definition = info.resource
            verbs = tuple(sorted({_VERBS.get(verb, verb) for verb in info.verbs}))
            kind = Kind(
                group=definition.group,
                version=definition.version,
                kind=definition.kind,
                plural=info.plural,
                namespaced=not issubclass(value, lightkube_resource.GlobalResource),
                model=value,
                verbs=tuple(sorted({*verbs, "deletecollection"}) if "delete" in verbs else verbs),
            )
            kinds[kind.group, kind.version, kind.plural] = kind
    for info in subresources:
        parent = kinds.get((info.parent.group, info.parent.version, info.plural))
        if parent is not None and info.action in _SUBRESOURCES:
            verbs = tuple(sorted({_VERBS.get(verb, verb) for verb in info.verbs}))
            parent.subresources[info.action] = verbs
    return kinds


KINDS = _read()


def remove(*kinds: Kind) -> None:
    """Serve some kinds no longer."""
    for kind in kinds:
        del KINDS[kind.group, kind.version, kind.plural]


# Kinds of request bodies that are not stored.
DELETE_OPTIONS = Kind("", "v1", "DeleteOptions", "", False, DeleteOptions, ())
EVICTION = Kind("policy", "v1", "Eviction", "", True, Eviction, ())

POD = KINDS["", "v1", "pods"]
NODE = KINDS["", "v1", "nodes"]
NAMESPACE = KINDS["", "v1", "namespaces"]
CONFIG_MAP = KINDS["", "v1", "configmaps"]
EVENT = KINDS["", "v1", "events"]
SERVICE_ACCOUNT = KINDS["", "v1", "serviceaccounts"]
PERSISTENT_VOLUME = KINDS["", "v1", "persistentvolumes"]
PERSISTENT_VOLUME_CLAIM = KINDS["", "v1", "persistentvolumeclaims"]
DEPLOYMENT = KINDS["apps", "v1", "deployments"]
REPLICA_SET = KINDS["apps", "v1", "replicasets"]
DAEMON_SET = KINDS["apps", "v1", "daemonsets"]
STATEFUL_SET = KINDS["apps", "v1", "statefulsets"]
SERVICE = KINDS["", "v1", "services"]
ENDPOINT_SLICE = KINDS["discovery.k8s.io", "v1", "endpointslices"]
LEASE = KINDS["coordination.k8s.io", "v1", "leases"]
BUDGET = KINDS["policy", "v1", "poddisruptionbudgets"]
PRIORITY_CLASS = KINDS["scheduling.k8s.io", "v1", "priorityclasses"]
STORAGE_CLASS = KINDS["storage.k8s.io", "v1", "storageclasses"]
VOLUME_ATTACHMENT = KINDS["storage.k8s.io", "v1", "volumeattachments"]
CLUSTER_ROLE = KINDS["rbac.authorization.k8s.io", "v1", "clusterroles"]
CLUSTER_ROLE_BINDING = KINDS["rbac.authorization.k8s.io", "v1", "clusterrolebindings"]
ROLE = KINDS["rbac.authorization.k8s.io", "v1", "roles"]
ROLE_BINDING = KINDS["rbac.authorization.k8s.io", "v1", "rolebindings"]
ADMISSION_POLICY = KINDS["admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"]
ADMISSION_BINDING = KINDS["admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"]
CUSTOM_RESOURCE_DEFINITION = KINDS["apiextensions.k8s.io", "v1", "customresourcedefinitions"]
ADMISSION_POLICIES = (ADMISSION_POLICY, ADMISSION_BINDING)
RBAC = (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
