"""Kubernetes objects → the pods of packing.

Reads the fields that manifests and `kubectl get -o json` share. Objects must be validated.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from leeway.selection.labels import HOSTNAME, ZONE, ZONE_ID, normalised
from leeway.selection.pods import (
    HostPort,
    LabelSelector,
    PodSpec,
    PodTerm,
    Spread,
    Toleration,
    Weighted,
)
from leeway.selection.reading.object_schemas import check
from leeway.selection.reading.objects import BadObject, Document
from leeway.selection.reading.pod_requests import requests_of
from leeway.selection.reading.volumes import Terms, VolumeNeeds, Volumes
from leeway.selection.requirements import BadRequirement, Requirement, Requirements
from leeway.selection.resources import EBS_VOLUMES, Resources

_NAMESPACE_NAME = "kubernetes.io/metadata.name"

_NO_NODE = Requirements([Requirement(HOSTNAME)])
"""Required node affinity with only empty terms: it matches no node."""


def pod_spec(
    pod: Document, volumes: Volumes | None = None, priorities: Document | None = None
) -> PodSpec:
    """Read a Pod or a pod template, with the node requirements of its volumes.

    `priorities` are the values of PriorityClasses by name, for pods without a numeric priority.

    Raises:
        BadObject: the pod is invalid.
    """
    check(pod, "Pod")
    without_volumes = spec_without_volumes(pod, priorities or {})
    volume_needs = (volumes or Volumes()).of_pod(pod.get("spec") or {}, without_volumes.namespace)
    return with_volumes(without_volumes, volume_needs)


def spec_without_volumes(pod: Document, priorities: Document) -> PodSpec:
    """Read a validated Pod without its volumes.

    Raises:
        BadObject: a value is invalid in Kubernetes.
    """
    try:
        return _spec_without_volumes(pod, priorities)
    except BadRequirement as error:  # of a matchLabelKey
        raise BadObject(("metadata", "labels"), str(error)) from error


def _spec_without_volumes(pod: Document, priorities: Document) -> PodSpec:
    spec = pod.get("spec") or {}
    namespace = _namespace(pod)
    labels = dict((pod.get("metadata") or {}).get("labels") or {})
    affinity = spec.get("affinity") or {}
    return PodSpec(
        namespace=namespace,
        labels=labels,
        requests=_requests(spec),
        terms=_terms(spec),
        preferred_terms=tuple(_preferred_nodes(affinity.get("nodeAffinity") or {})),
        tolerations=tuple(map(_toleration, spec.get("tolerations") or ())),
        spreads=tuple(_spreads(spec, namespace, labels)),
        pod_affinity=_required(affinity.get("podAffinity"), namespace, labels),
        pod_anti_affinity=_required(affinity.get("podAntiAffinity"), namespace, labels),
        preferred_pod_affinity=_preferred(affinity.get("podAffinity"), namespace, labels),
        preferred_pod_anti_affinity=_preferred(affinity.get("podAntiAffinity"), namespace, labels),
        ports=frozenset(_ports(spec)),
        priority=_priority(spec, priorities),
    )


def _requests(spec: Document) -> Resources:
    if not spec.get("containers"):
        raise BadObject(("spec", "containers"), "expected at least one container")
    return requests_of(spec) + Resources({"pods": 1})


def _terms(spec: Document) -> Terms:
    """The terms of node affinity, each combined with the nodeSelector."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms: Terms = (Requirements(),)
    if required:
        terms = tuple(_node_terms(required)) or (_NO_NODE,)
    return _combined(terms, [(Requirements.from_labels(spec.get("nodeSelector") or {}),)])


def with_volumes(spec: PodSpec, volumes: Iterable[VolumeNeeds]) -> PodSpec:
    """Return the pod with the node requirements of its volumes."""
    requirements = tuple(volumes)
    if not requirements:
        return spec
    attached = Resources({EBS_VOLUMES: sum(volume_needs.attached for volume_needs in requirements)})
    terms = _combined(
        spec.terms, [volume_needs.terms for volume_needs in requirements if volume_needs.terms]
    )
    of_pod = spec.own_terms
    return replace(
        spec,
        requests=spec.requests + attached,
        terms=terms,
        affinity=None if of_pod == terms else of_pod,
    )


def _combined(terms: Terms, others: Iterable[Terms]) -> Terms:
    """Return the conjunction of several lists of alternative terms."""
    found = list(terms or (Requirements(),))
    for other in others:
        found = [term.intersection(each) for term in found for each in other]
    return tuple(dict.fromkeys(found)) if any(found) or len(found) != 1 else ()


def _node_terms(selector: Document) -> Iterator[Requirements]:
    """Alternative terms. An empty term matches no node."""
    for term in selector.get("nodeSelectorTerms") or ():
        requirements = [_requirement(each) for each in term.get("matchExpressions") or ()]
        for field in term.get("matchFields") or ():
            name = Requirement.of("kubernetes.io/hostname", field["operator"], field["values"])
            requirements.append(name)
        if requirements:
            yield Requirements(requirements)


def _requirement(expression: Document) -> Requirement:
    return Requirement.of(expression["key"], expression["operator"], expression.get("values") or ())


def _preferred_nodes(affinity: Document) -> Iterator[Weighted[Requirements]]:
    for each in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        requirements = (each.get("preference") or {}).get("matchExpressions") or ()
        yield Weighted(each.get("weight", 1), Requirements(map(_requirement, requirements)))


def selector_of(document: Document | None) -> LabelSelector | None:
    """Read a validated label selector; None if there is none."""
    if document is None:
        return None
    requirements = [*map(_requirement, document.get("matchExpressions") or ())]
    labels = Requirements.from_labels(document.get("matchLabels") or {})
    return LabelSelector(Requirements([*labels.values(), *requirements]))


def _with_keys(
    selector: LabelSelector | None, keys: Iterable[str], labels: Mapping[str, str], operator: str
) -> LabelSelector | None:
    """Apply matchLabelKeys: the selector also requires the pod's own values of these labels."""
    extra = [Requirement.of(key, operator, [labels[key]]) for key in keys if key in labels]
    if selector is None or not extra:
        return selector
    return LabelSelector(Requirements([*selector.requirements.values(), *extra]))


def _pod_term(term: Document, namespace: str, labels: Mapping[str, str]) -> PodTerm:
    selector = selector_of(term.get("labelSelector"))
    selector = _with_keys(selector, term.get("matchLabelKeys") or (), labels, "In")
    selector = _with_keys(selector, term.get("mismatchLabelKeys") or (), labels, "NotIn")
    return PodTerm(_topology(term["topologyKey"]), selector, _namespaces(term, namespace))


def _topology(key: str) -> str:
    """The zone name and the zone ID are the same topology."""
    return ZONE if key == ZONE_ID else normalised(key)


def _namespaces(term: Document, of_pod: str) -> frozenset[str] | None:
    """The namespaces of a term, None for all. Only the name label of namespaces is known; a
    selector on any other label is treated as all namespaces."""
    named = frozenset(term.get("namespaces") or ())
    selector = selector_of(term.get("namespaceSelector"))
    if selector is None:
        return named or frozenset({of_pod})
    name = selector.requirements.get(_NAMESPACE_NAME)
    if name is None or name.complement:
        return None
    return named | name.values


def _required(
    affinity: Document | None, namespace: str, labels: Mapping[str, str]
) -> tuple[PodTerm, ...]:
    terms = (affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(_pod_term(term, namespace, labels) for term in terms)


def _preferred(
    affinity: Document | None, namespace: str, labels: Mapping[str, str]
) -> tuple[Weighted[PodTerm], ...]:
    return tuple(
        Weighted(each.get("weight", 1), _pod_term(each["podAffinityTerm"], namespace, labels))
        for each in (affinity or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    )


def _spreads(spec: Document, namespace: str, labels: Mapping[str, str]) -> Iterator[Spread]:
    for each in spec.get("topologySpreadConstraints") or ():
        selector = selector_of(each.get("labelSelector"))
        selector = _with_keys(selector, each.get("matchLabelKeys") or (), labels, "In")
        if selector is not None and not selector.requirements:
            selector = None  # kube-scheduler counts no pods by an empty selector
        yield Spread(
            PodTerm(_topology(each["topologyKey"]), selector, frozenset({namespace})),
            each.get("maxSkew", 1),
            each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
            each.get("minDomains") or 1,
            (each.get("nodeAffinityPolicy") or "Honor") == "Honor",
            (each.get("nodeTaintsPolicy") or "Ignore") == "Honor",
        )


def _toleration(document: Document) -> Toleration:
    return Toleration(
        document.get("key") or "",
        document.get("operator") or "Equal",
        document.get("value") or "",
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
                yield HostPort(number, port.get("protocol") or "TCP", "" if wildcard else address)


def _priority(spec: Document, priorities: Document) -> int:
    known = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
    if spec.get("priority") is not None:
        priority: int = spec["priority"]
        return priority
    name = spec.get("priorityClassName") or ""
    given: int = priorities.get(name, known.get(name, 0))
    return given


def _namespace(document: Document) -> str:
    return str((document.get("metadata") or {}).get("namespace") or "default")
