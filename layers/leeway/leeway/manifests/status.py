"""The status of manifests in an API server, as Karpenter's users know it.

`plan_statuses` decides what is written into `/status` of each object, and nothing else of it. The
names of conditions and fields are those of Karpenter's APIs (`nodepool_status.go`,
`ec2nodeclass_status.go`), and so are their rules: `Ready` follows from the others, and a condition
keeps its time as long as its status is the same. A status that is already there is not written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from leeway.manifests.base import NO_PLACEMENT_GROUPS
from leeway.printable import printable
from leeway.reasons import Reason
from leeway.selection.resources import Resources

type Document = Mapping[str, Any]

NODE_CLASS = "ec2nodeclass.karpenter.k8s.aws"
OVERLAY = "nodeoverlay.karpenter.sh"
POOL = "nodepool.karpenter.sh"
OF_KARPENTER = frozenset({NODE_CLASS, OVERLAY, POOL})
"""The kinds whose status is Karpenter's while it runs."""
WRITTEN = OF_KARPENTER | {"cluster.leeway.sh", "headroom.leeway.sh"}
"""The kinds with a status of Leeway. That of ScaledObjects is KEDA's. Cluster Autoscaler launches
for CapacityBuffers whose status has certain conditions, so Leeway does not write them either."""

LONGEST_MESSAGE = 1024
"""Characters of a condition's message, however large the manifest is."""

VALID = "ValidationSucceeded"
READY = "Ready"
CLASS_READY = "NodeClassReady"
HEALTHY = "NodeRegistrationHealthy"

KARPENTER_RUNS = "KarpenterIsRunning"

UNHEALTHY, NOT_KNOWN = "UnhealthyDependents", "AwaitingReconciliation"


@dataclass(frozen=True, slots=True)
class ReadObject:
    """An object of the API server, and why its manifest is invalid; empty if it is valid."""

    resource: str
    document: Document
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """The nodes of a pool, also those that start, and their capacity. `joined`: some have joined
    the cluster."""

    nodes: int = 0
    resources: Resources = field(default_factory=Resources)
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A part of a node class that AWS resolves, in the form of its status. `problem` is why it is
    not usable. `known` is False if AWS did not answer. `values` is None if AWS has something that
    Leeway does not use. In both cases the status keeps what it has: Karpenter reads it when it
    starts, and replaces nodes that are not in its lists."""

    values: tuple[Mapping[str, Any], ...] | None = ()
    problem: str = ""
    known: bool = True


@dataclass(frozen=True, slots=True)
class ResolvedClass:
    """What a node class selects in AWS, as nodes are launched with it. Without its reservations
    Leeway launches other capacity, so they make no class unusable."""

    subnets: Found = Found()
    security_groups: Found = Found()
    images: Found = Found()
    profile: Found = Found()
    invalid: str = ""
    reservations: Found = Found()

    @property
    def problem(self) -> str:
        """Why no node can be launched, the first of the reasons."""
        parts = (self.subnets, self.security_groups, self.images, self.profile)
        return self.invalid or next((one.problem for one in parts if one.problem), "")

    @property
    def known(self) -> bool:
        """Whether AWS has answered about every part."""
        parts = (self.subnets, self.security_groups, self.images, self.profile)
        return all(one.known for one in parts)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What a run knows about a cluster.

    - `karpenter`: it runs, and owns the status of its kinds.
    - `held`: why nothing is launched from the manifests.
    - `usage`: that of pools by name; None if the run has not read the cluster.
    - `paused`: why pools are paused, by name.
    - `conflicts`: the NodeOverlays that apply nowhere; None if the run has not compared them.
    - `classes`: what node classes select, by name.
    """

    cluster: str
    karpenter: bool = False
    held: Reason | None = None
    usage: Mapping[str, PoolUsage] | None = None
    paused: Mapping[str, Reason] = field(default_factory=dict)
    conflicts: Mapping[str, Reason] | None = None
    classes: Mapping[str, ResolvedClass] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatusPatch:
    """A JSON merge patch (RFC 7386) for the status of an object, at the version that was read."""

    document: Document
    status: Mapping[str, Any]

    @property
    def uid(self) -> str:
        """The uid of the object."""
        return str((self.document.get("metadata") or {}).get("uid", ""))

    @property
    def at_version(self) -> object:
        """The patch and the version that it is for."""
        return (self.document.get("metadata") or {}).get("resourceVersion"), self.status


def plan_statuses(
    objects: Sequence[ReadObject], facts: ClusterFacts, now: datetime
) -> tuple[StatusPatch, ...]:
    """Return the patches that bring the status of each object to what is true now."""
    classes = {
        _name(one.document): _class_status(one, facts, now)
        for one in objects
        if one.resource == NODE_CLASS
    }
    generations = {
        _name(one.document): _generation(one.document)
        for one in objects
        if one.resource == NODE_CLASS
    }
    found = []
    for one in objects:
        if one.resource not in WRITTEN:
            continue
        wanted: Mapping[str, Any] | None
        if facts.karpenter and one.resource in OF_KARPENTER:
            wanted = _of_karpenter(one, facts, now) if one.resource == POOL else None
        elif one.resource == NODE_CLASS:
            wanted = classes[_name(one.document)]
        elif one.resource == POOL:
            wanted = _pool_status(one, facts, classes, now)
            generation = generations.get(class_of(one.document))
            wanted = {**wanted, "nodeClassObservedGeneration": generation}
        else:
            wanted = _plain_status(one, facts, now)
        if wanted is not None and (patch := _patch(_status(one.document), wanted)):
            found.append(StatusPatch(one.document, patch))
    return tuple(found)


class _Conditions:
    """The conditions of an object: those that others wrote stay as they are, in their order."""

    def __init__(self, document: Document, now: datetime) -> None:
        given = _status(document).get("conditions")
        listed = given if isinstance(given, list) else []
        self._all = {
            str(one["type"]): one for one in listed if isinstance(one, dict) and one.get("type")
        }
        self._generation = _generation(document)
        self._now = f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

    def set(self, name: str, value: bool | None, reason: str = "", message: str = "") -> None:
        """Set a condition to True, False, or Unknown (None). One that is True needs no reason."""
        status = {True: "True", False: "False", None: "Unknown"}[value]
        before = self._all.get(name, {})
        same = before.get("status") == status and before.get("lastTransitionTime")
        self._all[name] = {
            "type": name,
            "status": status,
            "reason": reason or name,
            "message": shortened(message),
            "lastTransitionTime": before["lastTransitionTime"] if same else self._now,
            "observedGeneration": self._generation,
        }

    def set_found(self, name: str, part: Found, reason: str) -> None:
        """Set the condition of a part of a node class."""
        if not part.known:
            self.set(name, None, NOT_KNOWN, part.problem)
        else:
            self.set(name, not part.problem, reason if part.problem else "", part.problem)

    def set_ready(self, names: Iterable[str], held: Reason | None = None) -> None:
        """Set `Ready`: True if all of these are."""
        others = [self._all[name] for name in names if self._all[name]["status"] != "True"]
        if held is not None:
            self.set(READY, False, held.code, held.message)
        elif not others:
            self.set(READY, True)
        else:
            value = False if any(one["status"] == "False" for one in others) else None
            text = "; ".join(
                f"{one['type']}={one['status']}, {one['message']}".rstrip(", ") for one in others
            )
            self.set(READY, value, NOT_KNOWN if value is None else UNHEALTHY, text)

    def status_of(self, name: str) -> str:
        """Return True, False or Unknown as text; empty without the condition."""
        return str(self._all.get(name, {}).get("status", ""))

    def keeps(self, name: str) -> bool:
        """Whether a condition is about this generation."""
        return self._all.get(name, {}).get("observedGeneration") == self._generation

    def remove(self, name: str) -> None:
        """Remove a condition."""
        self._all.pop(name, None)

    def listed(self) -> list[Mapping[str, Any]]:
        """Return all of them, as a status has them."""
        return list(self._all.values())


def _validated(one: ReadObject, now: datetime, reason: str, problem: str = "") -> _Conditions:
    """Return the conditions with ValidationSucceeded."""
    conditions = _Conditions(one.document, now)
    if one.problem:
        problem = f"{one.problem}. The last valid manifest stays in effect, if there was one."
    conditions.set(VALID, not problem, reason if problem else "", problem)
    return conditions


def _class_status(one: ReadObject, facts: ClusterFacts, now: datetime) -> Mapping[str, Any]:
    resolved = facts.classes.get(_name(one.document), _UNKNOWN_CLASS)
    conditions = _validated(one, now, "NodeClassValidationFailed", resolved.invalid)
    conditions.set_found("AMIsReady", resolved.images, "AMINotFound")
    conditions.set_found("SubnetsReady", resolved.subnets, "SubnetsNotFound")
    conditions.set_found("SecurityGroupsReady", resolved.security_groups, "SecurityGroupsNotFound")
    conditions.set_found("InstanceProfileReady", resolved.profile, "InstanceProfileNotFound")
    conditions.set_found("CapacityReservationsReady", resolved.reservations, NOT_KNOWN)
    spec = one.document.get("spec")
    grouped = isinstance(spec, Mapping) and spec.get("placementGroupSelector")
    problem = f"{NO_PLACEMENT_GROUPS}." if grouped else ""
    reason = "PlacementGroupResolutionFailed" if grouped else ""
    conditions.set("PlacementGroupReady", not grouped, reason, problem)
    conditions.set_ready(
        (VALID, "AMIsReady", "SubnetsReady", "SecurityGroupsReady", "InstanceProfileReady")
    )
    status: dict[str, Any] = {"conditions": conditions.listed()}
    # All of them: the CRD has no limit, and Karpenter replaces a node whose subnet is not listed.
    lists = {
        "amis": resolved.images,
        "subnets": resolved.subnets,
        "securityGroups": resolved.security_groups,
        "capacityReservations": resolved.reservations,
    }
    for name, part in lists.items():
        if part.known and part.values is not None:
            status[name] = list(part.values)
    if resolved.profile.known and resolved.profile.values is not None:
        # Karpenter deletes the profiles that it has made and that no class names.
        names = [one["name"] for one in resolved.profile.values]
        before = _status(one.document).get("instanceProfile")
        status["instanceProfile"] = before if before in names else next(iter(names), None)
    return {name: value or None for name, value in status.items()}


_SILENT = Found(problem="AWS has not been asked yet.", known=False)
_UNKNOWN_CLASS = ResolvedClass(_SILENT, _SILENT, _SILENT, _SILENT, reservations=_SILENT)


def _pool_status(
    one: ReadObject,
    facts: ClusterFacts,
    classes: Mapping[str, Mapping[str, Any]],
    now: datetime,
) -> Mapping[str, Any]:
    name = _name(one.document)
    conditions = _validated(one, now, "NodePoolValidationFailed")
    conditions.remove(KARPENTER_RUNS)
    node_class = class_of(one.document)
    ready = next(
        (
            each
            for each in classes.get(node_class, {}).get("conditions") or ()
            if each["type"] == READY
        ),
        None,
    )
    if ready is not None and ready["status"] == "Unknown":
        conditions.set(CLASS_READY, False, "NodeClassReadinessUnknown", ready["message"])
    elif ready is not None:
        is_ready = ready["status"] == "True"
        conditions.set(CLASS_READY, is_ready, *(() if is_ready else _why(ready)))
    else:
        # Leeway launches by the defaults of the Cluster, or by a class in the table.
        resolved = facts.classes.get(node_class, _UNKNOWN_CLASS)
        missing = f"The API server has no EC2NodeClass {node_class}."
        usable = resolved.known and not resolved.problem
        conditions.set(
            CLASS_READY,
            usable,
            "" if usable else "NodeClassNotFound",
            f"{missing} {resolved.problem}".rstrip() if not usable else missing,
        )
    usage = None if facts.usage is None else facts.usage.get(name, PoolUsage())
    if (paused := facts.paused.get(name)) is not None:
        conditions.set(HEALTHY, False, paused.code, paused.message)
    elif usage is not None and usage.joined:
        conditions.set(HEALTHY, True)
    elif not (conditions.keeps(HEALTHY) and conditions.status_of(HEALTHY) == "True"):
        conditions.set(HEALTHY, None, NOT_KNOWN, "No node of the pool has joined yet.")
    conditions.set_ready((VALID, CLASS_READY), facts.held)
    status: dict[str, Any] = {"conditions": conditions.listed()}
    if usage is not None:
        zero = dict.fromkeys(("cpu", "memory", "pods", "ephemeral-storage"), "0")
        amounts = zero | usage.resources.printed() | {"nodes": str(usage.nodes)}
        status |= {"nodes": usage.nodes, "resources": amounts}
    return status


def _why(condition: Mapping[str, Any]) -> tuple[str, str]:
    return str(condition["reason"]), str(condition["message"])


def class_of(document: Document) -> str:
    """Return the name of the node class of a pool, whatever its manifest has."""
    at: Any = document
    for key in ("spec", "template", "spec", "nodeClassRef", "name"):
        at = at.get(key) if isinstance(at, dict) else None
    return at if isinstance(at, str) and at else "default"


def _of_karpenter(one: ReadObject, facts: ClusterFacts, now: datetime) -> Mapping[str, Any]:
    """Say that Karpenter acts, and leave all else to its controllers. The time of its Lease is left
    out: the condition would change each minute."""
    conditions = _Conditions(one.document, now)
    text = (
        f"Karpenter runs in cluster {facts.cluster}: it launches from this NodePool, and Leeway "
        "does not."
    )
    conditions.set(KARPENTER_RUNS, True, "", text)
    return {"conditions": conditions.listed()}


def _plain_status(one: ReadObject, facts: ClusterFacts, now: datetime) -> Mapping[str, Any] | None:
    """The conditions of an overlay or of a kind of Leeway; None if they stay as they are."""
    conflict = None
    if one.resource == OVERLAY and not one.problem:
        if facts.conflicts is None:
            return None
        conflict = facts.conflicts.get(_name(one.document))
    if conflict is not None:
        conditions = _validated(one, now, "Conflict", conflict.message)
    else:
        conditions = _validated(one, now, "ManifestInvalid")
    conditions.set_ready((VALID,))
    return {"conditions": conditions.listed()}


def _patch(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the merge patch of the fields in `wanted`; None removes a field."""
    patch: dict[str, Any] = {}
    for name, value in wanted.items():
        old = before.get(name)
        if old == value:
            continue
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            patch[name] = {**dict.fromkeys(old), **value}
        else:
            patch[name] = value
    return patch


def shortened(text: str) -> str:
    """Return text of manifests on one line, in the size of a message."""
    shown = printable(text[: 4 * LONGEST_MESSAGE])
    return shown if len(shown) <= LONGEST_MESSAGE else f"{shown[: LONGEST_MESSAGE - 1]}…"


def _status(document: Document) -> Mapping[str, Any]:
    status = document.get("status")
    return status if isinstance(status, Mapping) else {}


def _generation(document: Document) -> int:
    found = (document.get("metadata") or {}).get("generation")
    return found if isinstance(found, int) else 0


def _name(document: Document) -> str:
    return str((document.get("metadata") or {}).get("name", ""))
