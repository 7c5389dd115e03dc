"""A node group of any source, and the NodePool and the EC2NodeClass that it becomes."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leeway.bootstrap.kubelet import INSTANCE_TYPE_UNKNOWN
from leeway.bootstrap.node import ClusterDetails, UserDataError, templates_of
from leeway.bootstrap.user_data import render
from leeway.instances.facts import OWNED_PREFIX
from leeway.launch.node_settings import NotLaunchable, is_reserved, settings_of, user_tags
from leeway.manifests.base import Manifest, check_pool_label
from leeway.manifests.node_pool import ON_DEMAND_BASE, ON_DEMAND_PERCENTAGE, PoolLabelKey
from leeway.manifests.reading import interpret
from leeway.reasons import counted
from leeway.selection.labels import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    RESERVED,
    SPOT,
    WELL_KNOWN,
    ZONE,
    normalised,
)
from leeway.selection.offers.allocatable import AmiFamily, NodeClass
from leeway.selection.offers.catalog import Catalog
from leeway.selection.requirements import Requirement, Requirements
from pydantic import TypeAdapter, ValidationError

from leeway_cli.errors import BadInputError, as_clause

type Document = dict[str, Any]
type OpenCatalog = Callable[[], "Catalog"]
"""Opens the catalog: only groups that cannot be converted without it need one."""


WINDOWS = ("2019", "2022", "2025")
"""The years of the Windows Servers of which EKS has images."""

# What becomes of settings of groups that both a file of eksctl and an account have.
BUDGETS = (
    "disruption budgets of the NodePool limit how many nodes are replaced at a time: set "
    "spec.disruption.budgets (the default is 10%)."
)
CREDITS = (
    "Leeway launches burstable types with the account's default: set it with "
    "`aws ec2 modify-default-credit-specification`."
)
EFAS = "a node gets EFAs if its pods request vpc.amazonaws.com/efa: add the request to the pods."
LABELS_OF_EKS = (
    "EKS labels its own nodes with eks.amazonaws.com/nodegroup and eks.amazonaws.com/capacityType: "
    "select nodes of the pool by karpenter.sh/nodepool and karpenter.sh/capacity-type."
)
MAX_PRICE = (
    "Leeway has no price limit for one instance, and launches no Spot that costs more than "
    "on-demand: limit the pool with leeway.sh/usd-per-hour in spec.limits."
)
NO_SSH = (
    "nodes of pools have no SSH key: connect with Session Manager, or add keys in spec.userData."
)
PLACEMENT = "Leeway launches no nodes in placement groups: keep this group for pods that need one."
REBALANCE = (
    "Leeway acts on rebalance recommendations of every node by the policy of the Cluster manifest "
    "(notices)."
)
REPAIR = "Leeway repairs the nodes of pools by itself, by the times of EKS: see docs/repair.md."
TARGET_GROUPS = (
    "Leeway registers no nodes with target groups: use a TargetGroupBinding of the AWS Load "
    "Balancer Controller."
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting without a counterpart. `place` names it in its source, `sentence` says what becomes
    of it and what to do."""

    place: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.place}: {self.sentence}"


class NotConvertible(Exception):
    """No pool can launch what this group launches."""


def required(key: str, operator: str, *values: str) -> Document:
    """Return a requirement of a NodePool."""
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


@dataclass(kw_only=True, slots=True)
class NodeGroup:
    """A node group as its source describes it. `place` names it there, and `differences` is filled
    by whoever reads it. `node_class` has fields of an EC2NodeClass, `requirements` those of a
    NodePool. `most` and `least` are the sizes, in what `counts` says: `nodes`, `cpu` (vCPUs) or
    `memory` (MiB)."""

    name: str
    place: str
    family: AmiFamily
    requirements: list[Document] = field(default_factory=list)
    types: Sequence[str] = ()
    zones: Sequence[str] = ()
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[Document] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    kubelet: Document = field(default_factory=dict)
    node_class: Document = field(default_factory=dict)
    most: int | None = None
    least: int = 0
    counts: str = "nodes"
    lifetime: int | None = None
    differences: list[Difference] = field(default_factory=list)

    def differs(self, where: str, sentence: str) -> None:
        """Add a setting without a counterpart; `where` is its place in the group."""
        self.differences.append(Difference(f"{self.place}{where and f': {where}'}", sentence))

    def buys(self, base: int, percentage: int, catalog: OpenCatalog, where: str) -> None:
        """Buy Spot and on-demand capacity as a group with OnDemandBaseCapacity (in what it counts)
        and OnDemandPercentageAboveBaseCapacity does."""
        if percentage == 100:
            self.requirements.append(required(CAPACITY_TYPE, "In", ON_DEMAND))
        elif percentage == 0 and base == 0:
            self.requirements.append(required(CAPACITY_TYPE, "In", SPOT))
        else:
            self.requirements.append(required(CAPACITY_TYPE, "In", SPOT, ON_DEMAND))
            self.annotations[ON_DEMAND_PERCENTAGE] = str(percentage)
            if base and self.counts == "memory":
                self.differs(
                    where,
                    f"a pool counts its on-demand base in vCPUs, and this one is {base} MiB: write "
                    f"the annotation {ON_DEMAND_BASE}.",
                )
            elif base and self.counts == "cpu":
                self.annotations[ON_DEMAND_BASE] = str(base)
            elif base:
                vcpus = base * self._vcpus(catalog())
                self.annotations[ON_DEMAND_BASE] = str(vcpus)
                self.differs(
                    where,
                    "a pool counts its on-demand base in vCPUs: "
                    f"{counted(base, 'instance')} became {counted(vcpus, 'vCPU')}, "
                    "by the largest of the instance types. Correct "
                    f"{ON_DEMAND_BASE} if you mean less.",
                )

    def _vcpus(self, catalog: Catalog) -> int:
        """The vCPUs of the largest instance type."""
        known = (catalog.machine(name) for name in self.matching(catalog))
        found = [machine.vcpus for machine in known if machine is not None]
        if not found:
            raise NotConvertible(
                f"{catalog.region} offers none of its instance types, so that its on-demand base "
                f"cannot be written in vCPUs: set --region"
            )
        return max(found)

    def matching(self, catalog: Catalog) -> Sequence[str]:
        """The instance types that the group may launch, by the catalog."""
        if self.types:
            return self.types
        asked = Requirements(
            Requirement.of(one["key"], one["operator"], tuple(one.get("values", ())))
            for one in self.requirements
            if one["key"] != CAPACITY_TYPE
        )
        table = catalog.for_node_class(NodeClass(family=self.family))
        return [kind.name for kind in table.types(table.matching(asked))]


@dataclass(frozen=True, slots=True)
class Converted:
    """The manifests of a group as documents, and what has no counterpart."""

    name: str
    place: str
    documents: tuple[Document, ...]
    differences: tuple[Difference, ...]


def converted(groups: Iterable[NodeGroup]) -> Iterator[Converted]:
    """Convert groups. Each pool and its node class have one name; equal names are numbered.

    Raises:
        BadInputError: a setting of a group is not valid in a manifest.
    """
    taken: set[str] = set()
    for group in groups:
        name = _free(name_of(group.name), taken)
        taken.add(name)
        _leave_out_labels(group)
        _leave_out_tags(group)
        if group.least:
            unit = {"cpu": " vCPUs", "memory": " MiB"}.get(group.counts, "")
            group.differs(
                "",
                f"a pool has no minimum: it launches nodes for pods. For the minimum of "
                f"{group.least}{unit}, use a Headroom, or set spec.replicas of NodePool {name} for "
                "a fixed number of nodes.",
            )
        documents = (_node_pool(name, group), _node_class(name, group))
        for sentence in _checked(documents, group):
            group.differs("", sentence)
        yield Converted(name, group.place, documents, tuple(group.differences))


_OTHER = re.compile(r"[^a-z0-9]+")
_LONGEST = 63
"""Characters of a label value: each node has the name of its pool in a label."""


def name_of(group: str) -> str:
    """Return the name of a pool for a group of any name: lower case, digits and hyphens."""
    name = _OTHER.sub("-", group.lower()).strip("-")
    if not name:
        return f"group-{_digest(group)}"
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 9].strip('-')}-{_digest(group)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name[: _LONGEST - 1 - len(str(number))]}-{number}"
    return free


_KEY: TypeAdapter[str] = TypeAdapter(PoolLabelKey)


_OF_EKSCTL = "alpha.eksctl.io/"
"""The beginning of the labels by which eksctl finds the nodes of its groups."""


def _leave_out_labels(group: NodeGroup) -> None:
    """Leave out labels that a pool may not set; a pool may set every label of one's own domain.
    Those of eksctl stay with its nodes: `eksctl delete nodegroup` drains every node that has them,
    again and again."""
    if of_eksctl := sorted(key for key in group.labels if key.startswith(_OF_EKSCTL)):
        group.differs(
            "labels",
            f"the pool does not set {', '.join(of_eksctl)}, because eksctl drains every node with "
            "its labels when it deletes the group: give pods that select them another label, such "
            "as karpenter.sh/nodepool.",
        )
    group.labels = {k: v for k, v in group.labels.items() if k not in of_eksctl}
    for key in list(group.labels):
        try:
            _KEY.validate_python(key)
            check_pool_label(key)
        except (ValidationError, ValueError):
            said = "Kubernetes, Karpenter or Leeway sets it"
        else:
            if normalised(key) not in WELL_KNOWN:
                continue
            said = "it describes the machine, which sets it"
        del group.labels[key]
        group.differs(f'labels["{key}"]', f"a pool may not set this label: {said}.")


_SET_BY_OTHERS = ("k8s.io/cluster-autoscaler/", "aws:", "eks:", OWNED_PREFIX)
"""The beginnings of tags that Leeway sets itself, or that say nothing about a node of a pool."""


def _leave_out_tags(group: NodeGroup) -> None:
    for key, value in list(group.tags.items()):
        if key.startswith(_SET_BY_OTHERS):
            del group.tags[key]
        elif is_reserved(key):
            del group.tags[key]
            group.differs(f'tags["{key}"]', "Leeway sets tags of this kind: remove it.")
        elif not value:
            del group.tags[key]
            group.differs(f'tags["{key}"]', "a tag of a node class needs a value: add one.")


def _node_pool(name: str, group: NodeGroup) -> Document:
    asked = [*group.requirements]
    if group.types:
        asked.insert(0, required(INSTANCE_TYPE, "In", *dict.fromkeys(group.types)))
    if group.zones:
        asked.append(required(ZONE, "In", *dict.fromkeys(group.zones)))
    # A group keeps its instances until somebody ends them, or for MaxInstanceLifetime.
    lifetime = "Never" if group.lifetime is None else f"{group.lifetime}s"
    template = {
        "metadata": _set({"labels": group.labels}),
        "spec": _set(
            {
                "nodeClassRef": {
                    "group": "karpenter.k8s.aws",
                    "kind": "EC2NodeClass",
                    "name": name,
                },
                "requirements": asked,
                "taints": group.taints,
                "expireAfter": lifetime,
            }
        ),
    }
    unit = "Mi" if group.counts == "memory" else ""
    limits = {} if group.most is None else {group.counts: f"{group.most}{unit}"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": _set({"name": name, "annotations": group.annotations}),
        "spec": _set({"template": _set(template), "limits": limits}),
    }


def _node_class(name: str, group: NodeGroup) -> Document:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": _set(
            {
                "amiFamily": group.family.value,
                **group.node_class,
                "kubelet": group.kubelet,
                "tags": group.tags,
            }
        ),
    }


def _set(fields: Document) -> Document:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [], ())}


_ANY_CLUSTER = ClusterDetails("any", "https://example.com", "YW55", "10.100.0.0/16")


def _checked(documents: Sequence[Document], group: NodeGroup) -> Iterator[str]:
    """Read the manifests as `leeway apply` does, and render the user data of a node. Yields their
    warnings.

    Raises:
        BadInputError: one is not valid.
    """
    manifests: list[Manifest] = []
    for document in documents:
        title = f"{document['kind']} {document['metadata']['name']}"
        read = interpret(document, title)
        for problem in read.problems:
            raise BadInputError(f"{group.place}: {as_clause(problem)}.")
        for warning in read.warnings:
            yield f"{as_clause(warning)}."
        manifests += [one.manifest for one in read.written]
    try:
        (template,) = templates_of(manifests)
        warnings = render(template, _ANY_CLUSTER).warnings
        user_tags(settings_of(manifests)[0])
    except (UserDataError, NotLaunchable) as error:
        raise BadInputError(f"{group.place}: {as_clause(error)}.") from error
    for one in warnings:
        if one.code != INSTANCE_TYPE_UNKNOWN().code:
            yield f"{as_clause(one.message)}."


def capacity_types(*kinds: str) -> Document:
    """Return the requirement of the capacity types, in the order in which they are chosen."""
    return required(CAPACITY_TYPE, "In", *(k for k in (RESERVED, SPOT, ON_DEMAND) if k in kinds))


def family_of_alias(family: AmiFamily, release: str = "latest") -> list[Mapping[str, str]]:
    """Return the term that selects the EKS image of a family, of a release or the latest."""
    return [{"alias": f"{family.value.lower()}@{release}"}]
