"""Kubernetes objects as the API has them → the pods, nodes and daemons that packing knows.

Reads what `kubectl get -o json` and manifests have in common. What is not as the API has it is
named by its path.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leeway.selection.pod_requests import requests_of
from leeway.selection.pods import (
    HostPort,
    LabelSelector,
    PodSpec,
    PodTerm,
    Spread,
    Toleration,
    Weighted,
)
from leeway.selection.quantities import BadQuantity
from leeway.selection.requirements import BadRequirement, Requirement, Requirements
from leeway.selection.resources import Resources

type Document = Mapping[str, Any]


class BadObject(ValueError):
    """An object that is not as the API has it. `path` leads to the field that is wrong."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)


@dataclass(frozen=True)
class Volumes:
    """Where volumes let pods go: by `namespace/claim`, one of these terms has to be met."""

    terms: Mapping[str, tuple[Requirements, ...]]


def volumes_of(documents: Iterable[Document]) -> Volumes:
    """Read the zones of PersistentVolumeClaims from their PersistentVolumes, or, where there is no
    volume yet, from their StorageClasses."""
    given = list(documents)
    bound = {_name(d): d for d in given if d.get("kind") == "PersistentVolume"}
    classes = {_name(d): d for d in given if d.get("kind") == "StorageClass"}
    terms = {}
    for claim in given:
        if claim.get("kind") == "PersistentVolumeClaim":
            spec = claim.get("spec") or {}
            volume = bound.get(spec.get("volumeName") or "")
            storage = classes.get(spec.get("storageClassName") or "")
            found = _volume_terms(volume) if volume else _class_terms(storage)
            if found:
                terms[f"{_namespace(claim)}/{_name(claim)}"] = found
    return Volumes(terms)


def _volume_terms(volume: Document) -> tuple[Requirements, ...]:
    needed = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
    return tuple(_node_terms(needed, ("spec", "nodeAffinity", "required")))


def _class_terms(storage: Document | None) -> tuple[Requirements, ...]:
    return tuple(
        Requirements(
            Requirement.of(need["key"], "In", need["values"])
            for need in topology.get("matchLabelExpressions") or ()
        )
        for topology in (storage or {}).get("allowedTopologies") or ()
    )


def pod_spec(
    pod: Document, volumes: Volumes | None = None, priorities: Document | None = None
) -> PodSpec:
    """Read a Pod, or the template of one.

    `priorities` are the values of PriorityClasses by name, for pods that have a class only.

    Raises:
        BadObject: it is not as the API has it.
    """
    spec = pod.get("spec") or {}
    namespace = _namespace(pod)
    labels = {str(k): str(v) for k, v in ((pod.get("metadata") or {}).get("labels") or {}).items()}
    affinity = spec.get("affinity") or {}
    at = ("spec", "affinity")
    try:
        return PodSpec(
            namespace=namespace,
            labels=labels,
            requests=_requests(spec),
            terms=_terms(spec, _claims(spec, namespace, volumes)),
            preferred_terms=tuple(_preferred_nodes(affinity.get("nodeAffinity") or {})),
            tolerations=tuple(map(_toleration, spec.get("tolerations") or ())),
            spreads=tuple(_spreads(spec, namespace, labels)),
            near=_required(affinity.get("podAffinity"), namespace, labels),
            apart=_required(affinity.get("podAntiAffinity"), namespace, labels),
            preferred_near=_preferred(affinity.get("podAffinity"), namespace, labels),
            preferred_apart=_preferred(affinity.get("podAntiAffinity"), namespace, labels),
            ports=frozenset(_ports(spec)),
            priority=_priority(spec, priorities or {}),
        )
    except BadRequirement as error:
        raise BadObject(at, str(error)) from error
    except BadQuantity as error:
        raise BadObject(("spec", "containers"), str(error)) from error
    except (AttributeError, KeyError, TypeError) as error:
        raise BadObject(
            ("spec",), f"expected a pod as the Kubernetes API has it ({error})"
        ) from error


def _requests(spec: Document) -> Resources:
    if not spec.get("containers"):
        raise BadObject(("spec", "containers"), "expected at least one container")
    return requests_of(spec) + Resources({"pods": 1})


def _terms(spec: Document, claims: Sequence[tuple[Requirements, ...]]) -> tuple[Requirements, ...]:
    """Node affinity's terms, each with the nodeSelector and one term of every volume."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = list(_node_terms(required, ("spec", "affinity"))) if required else [Requirements()]
    for other in ((Requirements.from_labels(spec.get("nodeSelector") or {}),), *claims):
        terms = [term.intersection(each) for term in terms for each in other]
    return tuple(dict.fromkeys(terms)) if any(terms) or len(terms) != 1 else ()


def _claims(
    spec: Document, namespace: str, volumes: Volumes | None
) -> list[tuple[Requirements, ...]]:
    known = volumes.terms if volumes else {}
    names = [
        (volume.get("persistentVolumeClaim") or {}).get("claimName")
        for volume in spec.get("volumes") or ()
    ]
    return [known[key] for name in names if name and (key := f"{namespace}/{name}") in known]


def _node_terms(selector: Document, at: tuple[str, ...]) -> Iterator[Requirements]:
    """Terms are or-ed; an empty one matches nothing."""
    for term in selector.get("nodeSelectorTerms") or ():
        asked = [_requirement(each) for each in term.get("matchExpressions") or ()]
        for field in term.get("matchFields") or ():
            if field.get("key") != "metadata.name":
                raise BadObject(at, f"expected the field metadata.name, got {field.get('key')}")
            name = Requirement.of("kubernetes.io/hostname", field["operator"], field["values"])
            asked.append(name)
        if asked:
            yield Requirements(asked)


def _requirement(expression: Document) -> Requirement:
    values = [str(value) for value in expression.get("values") or ()]
    return Requirement.of(expression["key"], expression["operator"], values)


def _preferred_nodes(affinity: Document) -> Iterator[Weighted[Requirements]]:
    for each in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        asked = (each.get("preference") or {}).get("matchExpressions") or ()
        yield Weighted(int(each.get("weight", 1)), Requirements(map(_requirement, asked)))


def _selector(document: Document | None) -> LabelSelector | None:
    if document is None:
        return None
    asked = [*map(_requirement, document.get("matchExpressions") or ())]
    labels = Requirements.from_labels(document.get("matchLabels") or {})
    return LabelSelector(Requirements([*labels.values(), *asked]))


def _with_keys(
    selector: LabelSelector | None, keys: Iterable[str], labels: Mapping[str, str], operator: str
) -> LabelSelector | None:
    """matchLabelKeys: the pod's own values are asked of the others too."""
    extra = [Requirement.of(key, operator, [labels[key]]) for key in keys if key in labels]
    if selector is None or not extra:
        return selector
    return LabelSelector(Requirements([*selector.requirements.values(), *extra]))


def _pod_term(term: Document, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    selector = _selector(term.get("labelSelector"))
    selector = _with_keys(selector, term.get("matchLabelKeys") or (), labels, "In")
    selector = _with_keys(selector, term.get("mismatchLabelKeys") or (), labels, "NotIn")
    # Namespaces' labels are not known here; a selector of them is taken to mean all.
    if term.get("namespaceSelector") is not None:
        return PodTerm(term["topologyKey"], selector, None)
    return PodTerm(term["topologyKey"], selector, frozenset(term.get("namespaces") or [namespace]))


def _required(
    affinity: Document | None, namespace: str, labels: Mapping[str, str]
) -> tuple[PodTerm, ...]:
    terms = (affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(_pod_term(term, namespace, labels) for term in terms)


def _preferred(
    affinity: Document | None, namespace: str, labels: Mapping[str, str]
) -> tuple[Weighted[PodTerm], ...]:
    return tuple(
        Weighted(int(each.get("weight", 1)), _pod_term(each["podAffinityTerm"], namespace, labels))
        for each in (affinity or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    )


def _spreads(spec: Document, namespace: str, labels: Mapping[str, str]) -> Iterator[Spread]:
    for each in spec.get("topologySpreadConstraints") or ():
        selector = _selector(each.get("labelSelector"))
        selector = _with_keys(selector, each.get("matchLabelKeys") or (), labels, "In")
        yield Spread(
            PodTerm(each["topologyKey"], selector, frozenset({namespace})),
            int(each.get("maxSkew", 1)),
            each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
            int(each.get("minDomains") or 1),
        )


def _toleration(document: Document) -> Toleration:
    return Toleration(
        document.get("key") or "",
        document.get("operator") or "Equal",
        str(document.get("value") or ""),
        document.get("effect") or "",
    )


def _ports(spec: Document) -> Iterator[HostPort]:
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in (*spec["containers"], *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (spec.get("hostNetwork") and port.get("containerPort"))
            if number:
                address = port.get("hostIP") or ""
                wildcard = address in {"0.0.0.0", "::"}  # noqa: S104 - read, not bound
                yield HostPort(
                    int(number), port.get("protocol") or "TCP", "" if wildcard else address
                )


def _priority(spec: Document, priorities: Document) -> int:
    known = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
    if spec.get("priority") is not None:
        return int(spec["priority"])
    name = spec.get("priorityClassName") or ""
    return int(priorities.get(name, known.get(name, 0)))


def _name(document: Document) -> str:
    return str((document.get("metadata") or {}).get("name") or "")


def _namespace(document: Document) -> str:
    return str((document.get("metadata") or {}).get("namespace") or "default")
