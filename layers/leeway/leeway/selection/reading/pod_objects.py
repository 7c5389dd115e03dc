"""Kubernetes objects → the pods of packing: their requests, their volumes and their rules.

Reads the fields that manifests and `kubectl get -o json` share. Objects must be validated.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from leeway.reasons import ReasonCode
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
from leeway.selection.reading.claims import DEVICE_CLAIMS_NOT_PLANNED, has_device_claims
from leeway.selection.reading.objects import BadObject, Document, name_of, namespace_of
from leeway.selection.reading.schemas import check
from leeway.selection.requirements import BadRequirement, Requirement, Requirements
from leeway.selection.resources import EBS_VOLUMES, BadQuantity, Resources

POD_TOO_COMPLEX = ReasonCode(
    "PodTooComplex",
    "The pod has {count} {what}, and Leeway plans nodes only for pods with at most {most}.",
    "a-pod-gets-no-node",
)

type Resizes = Mapping[str, tuple[Mapping[str, Any], ...]]
"""What the kubelet holds for containers, by their names (see `resizing`)."""


def resizing(pod: Document) -> Resizes:
    """Return the amounts that kube-scheduler counts instead of the requests of containers that are
    resized in place: the maximum of what is requested, allocated and in effect, and without the
    request if no room of the node can grant it. Empty for a pod that has what it requests.

    Source: Kubernetes documentation, "Resize CPU and Memory Resources assigned to Containers", and
    the computation of requests in k8s.io/component-helpers.
    """
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    statuses = (
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    )
    if not any(one.get("resources") is not None for one in statuses):
        return {}
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    wanted = {
        one.get("name"): (one.get("resources") or {}).get("requests") or {} for one in containers
    }
    infeasible = any(
        one.get("type") == "PodResizePending" and one.get("reason") == "Infeasible"
        for one in status.get("conditions") or ()
    )
    found: dict[str, tuple[Mapping[str, Any], ...]] = {}
    for one in statuses:
        name = one.get("name")
        if one.get("resources") is None or name not in wanted:
            continue
        held = (one["resources"].get("requests") or {}, one.get("allocatedResources") or {})
        if any(amounts and amounts != wanted[name] for amounts in held):
            found[str(name)] = held if infeasible else (wanted[name], *held)
    return found


def requests_of(spec: Mapping[str, Any], resized: Resizes | None = None) -> Resources:
    """Sum the requests of a pod.

    Init containers run one after another, each next to the sidecars (init containers with
    restartPolicy Always) before it. Containers run next to all sidecars. The pod needs the maximum
    of both, plus its overhead. Pod-level requests replace those of the containers; pod-level limits
    apply to resources without any request. `resized` are the amounts of containers that are resized
    in place; init containers other than sidecars are not.

    Source: Kubernetes documentation, "Sidecar Containers" (resource sharing within containers),
    "Pod Overhead" and "Pod-level resources".

    Raises:
        BadQuantity: an amount is not a quantity.
    """
    sidecars = initializing = Resources()
    for container in spec.get("initContainers") or ():
        sidecar = container.get("restartPolicy") == "Always"
        requested = _requested(container, resized if sidecar else None)
        if sidecar:
            sidecars = sidecars + requested
            initializing = initializing.most(sidecars)
        else:
            initializing = initializing.most(sidecars + requested)
    running = sidecars
    for container in spec.get("containers") or ():
        running = running + _requested(container, resized)
    of_containers = running.most(initializing)
    # Requests of containers have precedence over pod-level limits.
    of_pod = spec.get("resources") or {}
    total = {**_parsed(of_pod.get("limits")), **of_containers, **_parsed(of_pod.get("requests"))}
    return Resources(total) + _parsed(spec.get("overhead"))


def _requested(container: Mapping[str, Any], resized: Resizes | None) -> Resources:
    """The requests of a container. A limit without a request is also a request."""
    if resized and (counted := resized.get(container.get("name") or "")):
        return reduce(Resources.most, map(_parsed, counted))
    resources = container.get("resources") or {}
    return _parsed({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _parsed(amounts: Mapping[str, Any] | None) -> Resources:
    read = Resources.parsed({name: str(amount) for name, amount in (amounts or {}).items()})
    for name, amount in read.items():
        if amount < 0:
            raise BadQuantity(f"expected an amount that is not negative, got {name} {amount}")
    return read


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

    def of_pod(self, spec: Document, namespace: str, pod: str = "") -> Iterator[VolumeNeeds]:
        """Yield the needs of a pod's volumes that have any.

        `pod` is the name of a pod without a node. The claims of its ephemeral volumes are named
        `<pod>-<volume>`, and may be bound before the pod is. Those of a pod on a node end with it,
        and the next pod gets new ones.

        Source: Kubernetes documentation, "Ephemeral Volumes"; Karpenter's `volumetopology.go`.
        """
        for volume in spec.get("volumes") or ():
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
            key = f"{namespace}/{claim or f'{pod}-{volume.get("name")}'}"
            if claim or (template and pod and key in self.claims):
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
                    tuple(_class_terms(document)), document.get("provisioner") in _EBS
                )
    default = default_class(documents)
    known = Volumes({}, classes, default)
    claims: dict[str, VolumeNeeds] = {}
    for document in documents:
        if document.get("kind") == "PersistentVolumeClaim":
            spec = document.get("spec") or {}
            volume = spec.get("volumeName")
            claims[f"{namespace_of(document)}/{name_of(document)}"] = (
                bound[volume] if volume in bound else known.of_class(spec.get("storageClassName"))
            )
    return Volumes(claims, classes, default)


def default_class(documents: Iterable[Document]) -> str:
    """Return the default StorageClass: the newest of several, then the first by name. Empty if
    there is none.

    Source: Kubernetes documentation, "Storage Classes" (default StorageClass).
    """
    found = [d for d in documents if d.get("kind") == "StorageClass" and _is_default(d)]
    if not found:
        return ""
    found.sort(key=name_of)
    # Timestamps of the API have one format and sort as text.
    newest = max(found, key=lambda d: (d.get("metadata") or {}).get("creationTimestamp") or "")
    return name_of(newest)


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


def _is_default(storage: Document) -> bool:
    annotations = (storage.get("metadata") or {}).get("annotations") or {}
    return any(annotations.get(key) == "true" for key in _DEFAULT_CLASS)


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
        return _bounded(_spec_without_volumes(pod, priorities))
    except BadRequirement as error:  # of a matchLabelKey
        raise BadObject(("metadata", "labels"), str(error)) from error


def _spec_without_volumes(pod: Document, priorities: Document) -> PodSpec:
    spec = pod.get("spec") or {}
    namespace = namespace_of(pod)
    labels = dict((pod.get("metadata") or {}).get("labels") or {})
    affinity = spec.get("affinity") or {}
    return PodSpec(
        namespace=namespace,
        labels=labels,
        requests=_requests(spec, resizing(pod)),
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
        unmet=DEVICE_CLAIMS_NOT_PLANNED() if has_device_claims(spec) else None,
    )


MOST_TERMS = 250
MOST_EXPRESSIONS = 2_500
"""Terms of a pod that is planned, and expressions in them (see `_bounded`)."""

_APART = (PodTerm(HOSTNAME, LabelSelector(), None),)


def _bounded(spec: PodSpec) -> PodSpec:
    """Return the pod. One that has too much to plan with gets no node. Where it runs it counts with
    its requests, and if it may keep other pods away, with anti-affinity to all of them.

    kube-apiserver limits only the size of an object: 1.5 MiB hold 10,000 terms. One such pod would
    use up the time or the memory of each run, and no pod of the cluster would get a node. The
    bounds are far above what people and operators write.
    """
    for what, count, most in _sizes(spec):
        if count > most:
            return PodSpec(
                spec.namespace,
                spec.labels,
                spec.requests,
                pod_anti_affinity=_APART if spec.pod_anti_affinity or spec.ports else (),
                priority=spec.priority,
                unmet=POD_TOO_COMPLEX(count=count, what=what, most=most),
            )
    return spec


def _sizes(spec: PodSpec) -> Iterator[tuple[str, int, int]]:
    """What a plan takes time for in a pod: its name, how many of it the pod has, and the maximum.
    Preferences take the square of their number: they are given up one after another."""
    preferred = (*spec.preferred_pod_affinity, *spec.preferred_pod_anti_affinity)
    of_pods = [*spec.pod_affinity, *spec.pod_anti_affinity]
    of_pods += [each.preference for each in preferred] + [each.pods for each in spec.spreads]
    of_nodes = [*spec.terms, *(each.preference for each in spec.preferred_terms)]
    selectors = [each.selector.requirements for each in of_pods if each.selector is not None]
    expressions = [one for each in (*of_nodes, *selectors) for one in each.values()]
    yield "preferences", len(spec.preferred_terms) + len(preferred), 100
    yield "terms of affinity and topology spread", len(of_nodes) + len(of_pods), MOST_TERMS
    yield "topology keys", len({each.topology for each in of_pods}), 25
    what = "expressions in its terms of affinity and topology spread"
    yield what, len(expressions), MOST_EXPRESSIONS
    yield "values in these expressions", sum(len(one.values) for one in expressions), 25_000
    yield "tolerations", len(spec.tolerations), 250
    yield "host ports", len(spec.ports), 1_000
    yield "requested resources", len(spec.requests), 100


def _requests(spec: Document, resized: "Resizes") -> Resources:
    if not spec.get("containers"):
        raise BadObject(("spec", "containers"), "expected at least one container")
    return requests_of(spec, resized) + Resources({"pods": 1})


def _terms(spec: Document) -> Terms:
    """The terms of node affinity, each combined with the nodeSelector. They are not combined if
    either is too complex already: 1.5 MiB hold 10,000 of both."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms: Terms = (Requirements(),)
    if required:
        terms = tuple(_node_terms(required)) or (_NO_NODE,)
    selector = Requirements.from_labels(spec.get("nodeSelector") or {})
    if len(terms) > MOST_TERMS:
        return terms
    return (selector,) if len(selector) > MOST_EXPRESSIONS else _combined(terms, [(selector,)])


def with_volumes(spec: PodSpec, volumes: Iterable[VolumeNeeds]) -> PodSpec:
    """Return the pod with the node requirements of its volumes."""
    requirements = tuple(volumes)
    if not requirements:
        return spec
    attached = Resources({EBS_VOLUMES: sum(volume_needs.attached for volume_needs in requirements)})
    # Without duplicates: a pod may have thousands of volumes of one class.
    of_volumes = dict.fromkeys(needs.terms for needs in requirements if needs.terms)
    terms = _combined(spec.terms, of_volumes)
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
        # Without duplicates: volumes of several classes and zones have many terms in common.
        found = list(dict.fromkeys(term.intersection(each) for term in found for each in other))
    return tuple(dict.fromkeys(found)) if any(found) or len(found) != 1 else ()


def _node_terms(selector: Document) -> Iterator[Requirements]:
    """Alternative terms. An empty term matches no node."""
    for term in selector.get("nodeSelectorTerms") or ():
        requirements = [_requirement(each) for each in term.get("matchExpressions") or ()]
        for each in term.get("matchFields") or ():
            name = Requirement.of("kubernetes.io/hostname", each["operator"], each["values"])
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
