"""The node requirements of volumes, and the volumes that a node attaches, from claims, volumes and
storage classes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leeway.selection.reading.objects import Document, name_of
from leeway.selection.requirements import Requirement, Requirements

type Terms = tuple[Requirements, ...]
"""Alternative terms, one of which must match; without terms, every node matches."""

EBS_DRIVER = "ebs.csi.aws.com"
_EBS = frozenset({EBS_DRIVER, "kubernetes.io/aws-ebs"})
"""The driver, and the in-tree provisioner that it replaced."""

_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


@dataclass(frozen=True, slots=True)
class VolumeNeeds:
    """The node requirements of one volume: `terms`, and whether it is `attached` as an EBS volume.
    `claim` is its `namespace/claim`, empty without one."""

    terms: Terms = ()
    attached: bool = False
    claim: str = ""


_NOTHING = VolumeNeeds()


@dataclass(frozen=True)
class Volumes:
    """The node requirements of claims (by `namespace/claim`) and of storage classes (by name).

    `default_class` is the class of claims without a class.
    """

    claims: Mapping[str, VolumeNeeds] = field(default_factory=dict)
    classes: Mapping[str, VolumeNeeds] = field(default_factory=dict)
    default_class: str = ""

    def of_class(self, name: str | None) -> VolumeNeeds:
        """Return the needs of volumes of a class; an empty name means no class, None the default
        class."""
        return self.classes.get(self.default_class if name is None else name, _NOTHING)

    def of_pod(self, spec: Document, namespace: str) -> Iterator[VolumeNeeds]:
        """Yield the needs of a pod's volumes that have any."""
        for volume in spec.get("volumes") or ():
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            if claim:
                key = f"{namespace}/{claim}"
                found = replace(self.claims.get(key, _NOTHING), claim=key)
            elif template:
                found = self.of_class((template.get("spec") or {}).get("storageClassName"))
            else:
                found = VolumeNeeds(attached=bool(volume.get("awsElasticBlockStore")))
            if found.terms or found.attached:
                yield found

    def of_replica(
        self, templates: Sequence[Document], namespace: str, pod: str
    ) -> Iterator[VolumeNeeds]:
        """Yield the needs of the volumes of one StatefulSet pod. Their claims are named
        `<template>-<pod>` and may not exist yet."""
        for template in templates:
            key = f"{namespace}/{(template.get('metadata') or {}).get('name')}-{pod}"
            name = (template.get("spec") or {}).get("storageClassName")
            found = self.claims[key] if key in self.claims else self.of_class(name)
            if found != _NOTHING:
                yield found


def attach_once(volumes: Iterable[VolumeNeeds], attached: set[str]) -> tuple[VolumeNeeds, ...]:
    """Return the needs of volumes with each claim attached once: not if it is in `attached`, to
    which it is added."""
    found = []
    for each in volumes:
        attached_before = each.claim in attached
        if each.claim:
            attached.add(each.claim)
        found.append(replace(each, attached=False) if attached_before else each)
    return tuple(found)


def volumes_of(documents: Sequence[Document]) -> Volumes:
    """Read validated PersistentVolumeClaims with the needs of their PersistentVolumes, or of their
    StorageClasses if they are not bound."""
    bound: dict[str, VolumeNeeds] = {}
    classes: dict[str, VolumeNeeds] = {}
    for document in documents:
        match document.get("kind"):
            case "PersistentVolume":
                bound[name_of(document)] = VolumeNeeds(
                    tuple(_volume_terms(document)), _is_ebs(document)
                )
            case "StorageClass":
                classes[name_of(document)] = VolumeNeeds(
                    tuple(_class_terms(document)), _is_of_ebs(document)
                )
    default = default_class(documents)
    known = Volumes({}, classes, default)
    claims: dict[str, VolumeNeeds] = {}
    for document in documents:
        if document.get("kind") == "PersistentVolumeClaim":
            spec = document.get("spec") or {}
            namespace = (document.get("metadata") or {}).get("namespace") or "default"
            volume = spec.get("volumeName")
            claims[f"{namespace}/{name_of(document)}"] = (
                bound[volume] if volume in bound else known.of_class(spec.get("storageClassName"))
            )
    return Volumes(claims, classes, default)


def default_class(documents: Iterable[Document]) -> str:
    """Return the default StorageClass: the newest of several, then the first by name. Empty if
    there is none.

    Source: Kubernetes documentation, "Storage Classes" (default StorageClass).
    """
    found = [d for d in documents if d.get("kind") == "StorageClass" and _is_default(d)]
    found.sort(key=name_of)
    return name_of(max(found, key=_created)) if found else ""


def _created(document: Document) -> str:
    """Timestamps of the API have one format and sort as text."""
    return (document.get("metadata") or {}).get("creationTimestamp") or ""


def _volume_terms(volume: Document) -> Iterator[Requirements]:
    needed = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
    for term in needed.get("nodeSelectorTerms") or ():
        expressions = term.get("matchExpressions") or ()
        if expressions:
            yield Requirements(
                Requirement.of(each["key"], each["operator"], each.get("values") or ())
                for each in expressions
            )


def _class_terms(storage: Document) -> Iterator[Requirements]:
    for topology in storage.get("allowedTopologies") or ():
        yield Requirements(
            Requirement.of(need["key"], "In", need["values"])
            for need in topology.get("matchLabelExpressions") or ()
        )


def _is_ebs(volume: Document) -> bool:
    spec = volume.get("spec") or {}
    return bool(spec.get("awsElasticBlockStore")) or (spec.get("csi") or {}).get("driver") in _EBS


def _is_of_ebs(storage: Document) -> bool:
    return storage.get("provisioner") in _EBS


def _is_default(storage: Document) -> bool:
    annotations = (storage.get("metadata") or {}).get("annotations") or {}
    return any(annotations.get(key) == "true" for key in _DEFAULT_CLASS)
