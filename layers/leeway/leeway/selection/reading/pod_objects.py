"""Kubernetes objects as the API has them → the pods, nodes and daemons that packing knows.

Reads what `kubectl get -o json` and manifests have in common. What is not as the API has it is
named by its path.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

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
from leeway.selection.quantities import BadQuantity
from leeway.selection.reading.objects import BadObject, Document
from leeway.selection.reading.pod_requests import requests_of
from leeway.selection.reading.volumes import Terms, Volumes, Wanted
from leeway.selection.requirements import BadRequirement, Requirement, Requirements
from leeway.selection.resources import EBS_VOLUMES, Resources

_NAMESPACE_NAME = "kubernetes.io/metadata.name"

_NO_NODE = Requirements([Requirement(HOSTNAME)])
"""Required node affinity none of whose terms says anything: it matches nothing."""

_OPERATORS = frozenset({"", "Equal", "Exists"})
_EFFECTS = frozenset({"", "NoSchedule", "PreferNoSchedule", "NoExecute"})
_UNSATISFIABLE = frozenset({"DoNotSchedule", "ScheduleAnyway"})


def pod_spec(
    pod: Document, volumes: Volumes | None = None, priorities: Document | None = None
) -> PodSpec:
    """Read a Pod, or the template of one.

    `priorities` are the values of PriorityClasses by name, for pods that have a class only.

    Raises:
        BadObject: it is not as the API has it.
    """
    try:
        return _pod_spec(pod, volumes or Volumes(), priorities or {})
    except BadObject:
        raise
    except BadRequirement as error:
        raise BadObject(("spec", "affinity"), str(error)) from error
    except BadQuantity as error:
        raise BadObject(("spec", "containers"), str(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadObject(
            ("spec",), f"expected a pod as the Kubernetes API has it ({error})"
        ) from error


def _pod_spec(pod: Document, volumes: Volumes, priorities: Document) -> PodSpec:
    spec = pod.get("spec") or {}
    namespace = _namespace(pod)
    labels = {str(k): str(v) for k, v in ((pod.get("metadata") or {}).get("labels") or {}).items()}
    affinity = spec.get("affinity") or {}
    bare = PodSpec(
        namespace=namespace,
        labels=labels,
        requests=_requests(spec),
        terms=_terms(spec),
        preferred_terms=tuple(_preferred_nodes(affinity.get("nodeAffinity") or {})),
        tolerations=tuple(map(_toleration, spec.get("tolerations") or ())),
        spreads=tuple(_spreads(spec, namespace, labels)),
        near=_required(affinity.get("podAffinity"), namespace, labels),
        apart=_required(affinity.get("podAntiAffinity"), namespace, labels),
        preferred_near=_preferred(affinity.get("podAffinity"), namespace, labels),
        preferred_apart=_preferred(affinity.get("podAntiAffinity"), namespace, labels),
        ports=frozenset(_ports(spec)),
        priority=_priority(spec, priorities),
    )
    return with_volumes(bare, volumes.of_pod(spec, namespace))


def _requests(spec: Document) -> Resources:
    if not spec.get("containers"):
        raise BadObject(("spec", "containers"), "expected at least one container")
    return requests_of(spec) + Resources({"pods": 1})


def _terms(spec: Document) -> Terms:
    """Node affinity's terms, each with the nodeSelector."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms: Terms = (Requirements(),)
    if required:
        terms = tuple(_node_terms(required, ("spec", "affinity"))) or (_NO_NODE,)
    return _joined(terms, [(Requirements.from_labels(spec.get("nodeSelector") or {}),)])


def with_volumes(spec: PodSpec, volumes: Iterable[Wanted]) -> PodSpec:
    """Return the pod with what its volumes ask of its node."""
    asked = tuple(volumes)
    if not asked:
        return spec
    attached = Resources({EBS_VOLUMES: sum(wanted.attached for wanted in asked)})
    terms = _joined(spec.terms, [wanted.terms for wanted in asked if wanted.terms])
    own = spec.own_terms
    return replace(
        spec,
        requests=spec.requests + attached,
        terms=terms,
        affinity=None if own == terms else own,
    )


def _joined(terms: Terms, others: Iterable[Terms]) -> Terms:
    """Return the terms of which one has to be met where one of each has to be."""
    found = list(terms or (Requirements(),))
    for other in others:
        found = [term.intersection(each) for term in found for each in other]
    return tuple(dict.fromkeys(found)) if any(found) or len(found) != 1 else ()


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
        yield Weighted(_weight(each), Requirements(map(_requirement, asked)))


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
    return PodTerm(_topology(term["topologyKey"]), selector, _namespaces(term, namespace))


def _topology(key: str) -> str:
    """A zone is one and the same by its name and by its id."""
    return ZONE if key == ZONE_ID else normalised(key)


def _namespaces(term: Document, own: str) -> frozenset[str] | None:
    """The namespaces that count, None for all. Of namespaces' labels only the one that every
    namespace has is known, its name: a selector of any other is taken to mean all."""
    named = frozenset(map(str, term.get("namespaces") or ()))
    selector = _selector(term.get("namespaceSelector"))
    if selector is None:
        return named or frozenset({own})
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
        Weighted(_weight(each), _pod_term(each["podAffinityTerm"], namespace, labels))
        for each in (affinity or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    )


def _spreads(spec: Document, namespace: str, labels: Mapping[str, str]) -> Iterator[Spread]:
    at = ("spec", "topologySpreadConstraints")
    for each in spec.get("topologySpreadConstraints") or ():
        selector = _selector(each.get("labelSelector"))
        selector = _with_keys(selector, each.get("matchLabelKeys") or (), labels, "In")
        if selector is not None and not selector.requirements:
            selector = None  # the scheduler counts nobody by an empty selector, as by none at all
        unsatisfiable = each.get("whenUnsatisfiable", "DoNotSchedule")
        yield Spread(
            PodTerm(_topology(each["topologyKey"]), selector, frozenset({namespace})),
            _whole(each.get("maxSkew", 1), "maxSkew", at),
            _one_of(_UNSATISFIABLE, unsatisfiable, "whenUnsatisfiable", at) == "DoNotSchedule",
            _whole(each.get("minDomains") or 1, "minDomains", at),
            _heeded(each, "nodeAffinityPolicy", "Honor", at),
            _heeded(each, "nodeTaintsPolicy", "Ignore", at),
        )


def _heeded(spread: Document, name: str, default: str, at: tuple[str, ...]) -> bool:
    policy = spread.get(name) or default
    return _one_of(frozenset({"Honor", "Ignore"}), policy, name, at) == "Honor"


def _toleration(document: Document) -> Toleration:
    at = ("spec", "tolerations")
    return Toleration(
        document.get("key") or "",
        _one_of(_OPERATORS, document.get("operator") or "", "operator", at) or "Equal",
        str(document.get("value") or ""),
        _one_of(_EFFECTS, document.get("effect") or "", "effect", at),
    )


def _weight(preference: Document) -> int:
    return _whole(preference.get("weight", 1), "weight", ("spec", "affinity"), most=100)


def _whole(value: Any, name: str, at: tuple[str, ...], most: int = 2**31 - 1) -> int:
    """Read a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        said = f"{name}: expected a whole number from 1 to {most}, got {value}"
        raise BadObject(at, said)
    return value


def _one_of(known: frozenset[str], value: Any, name: str, at: tuple[str, ...]) -> str:
    if value not in known:
        expected = ", ".join(sorted(known - {""}))
        raise BadObject(at, f"{name}: expected one of {expected}, got {value}")
    return str(value)


def _ports(spec: Document) -> Iterator[HostPort]:
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in (*spec["containers"], *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (spec.get("hostNetwork") and port.get("containerPort"))
            if number:
                address = port.get("hostIP") or ""
                wildcard = address in {"0.0.0.0", "::"}  # noqa: S104 - read, not bound
                number = _whole(number, "hostPort", ("spec", "containers"), most=65535)
                yield HostPort(number, port.get("protocol") or "TCP", "" if wildcard else address)


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
