"""NodeClaims for nodes that Leeway launched: whether Karpenter keeps a node, and the object.

A NodeClaim says from the beginning that it is launched, as which instance: Karpenter then launches
nothing, finds the Node by its provider id, and registers it. It has no hashes of the NodePool and
the class, so Karpenter does not compare their fields. It compares labels with the requirements, and
the AMI, subnet, security groups, capacity reservation and placement group with those of the class.
Source: Karpenter, nodeclaim lifecycle and disruption controllers, and `isNodeClassDrifted` of its
AWS provider.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from leeway.disruption.drift import drift_of
from leeway.instances.facts import InstanceFacts
from leeway.kubernetes.connection import MERGE
from leeway.kubernetes.http_cluster import TERMINATION
from leeway.manifests.node_pool import pools_of
from leeway.manifests.reading import interpret
from leeway.ports.kubernetes import ClusterRefused
from leeway.reasons import clause
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_CLASS, NODEPOOL, ZONE
from leeway.selection.reading.cluster_objects import node_without_pods
from leeway.selection.requirements import Requirement, Requirements

from leeway_cli.errors import CannotBeDoneError

type Document = Mapping[str, Any]

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
PROFILE = "karpenter.k8s.aws/instance-profile-name"
_WITHOUT_FINALIZERS = '{"metadata":{"finalizers":null}}'

_INSTANCE = re.compile(r"[0-9a-f]{8}(?:[0-9a-f]{9})?")
"""The id of an instance without `i-`."""

_COPIED = (
    NODEPOOL,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/",
    "topology.k8s.aws/",
    "karpenter.k8s.aws/",
)
"""The labels of a Node that its NodeClaim has, or their beginnings."""


def why_unfit(
    node: Document, facts: InstanceFacts, pool: Document | None, node_class: Document | None
) -> str:
    """Return why Karpenter would replace a node or could not keep it; empty if it keeps it. `pool`
    and `node_class` are the objects in the API server, None if they are gone."""
    if pool is None or pool["metadata"].get("deletionTimestamp"):
        return "its NodePool is gone"
    if node_class is None or node_class["metadata"].get("deletionTimestamp"):
        return "the EC2NodeClass of its NodePool is gone"
    if node["metadata"].get("deletionTimestamp"):
        return "its Node is being deleted"
    if not _is_ready(node):
        return "its Node is not Ready"
    found = interpret(dict(pool), "NodePool")
    if found.problems:
        return f"its NodePool is invalid: {found.problems[0]}"
    (wanted,) = pools_of([found.written[0].manifest])
    offering = {
        INSTANCE_TYPE: facts.instance_type,
        ZONE: facts.zone,
        CAPACITY_TYPE: facts.capacity_type,
    }
    startup = [one.key for one in wanted.startup_taints]
    for problem in drift_of(node_without_pods(dict(node)), offering, wanted, startup):
        return problem.removesuffix(".")
    labels = _labels(node, facts, pool)
    for requirement in _requirements(pool["spec"]["template"]["spec"]).values():
        if not requirement.admits(labels.get(requirement.key)):
            return f"its labels do not fit the requirement {requirement} of its NodePool"
    return _why_drifted(facts, labels, node_class)


def _why_drifted(facts: InstanceFacts, labels: Mapping[str, str], node_class: Document) -> str:
    """Return what of an instance differs from its class, as Karpenter compares them."""
    status = node_class.get("status") or {}
    if facts.image not in _ids(status, "amis"):
        return f"the status of its EC2NodeClass does not have the AMI {facts.image}"
    if facts.image != (first := _image_for(labels, status)):
        other = f"has the AMI {first} for its machine" if first else "has no AMI for its machine"
        return f"the status of its EC2NodeClass {other}, and its instance has {facts.image}"
    if facts.subnet not in _ids(status, "subnets"):
        return f"the status of its EC2NodeClass does not have the subnet {facts.subnet}"
    if {*facts.security_groups} != _ids(status, "securityGroups"):
        return "the status of its EC2NodeClass has other security groups"
    reserved = facts.reservation.id if facts.reservation is not None else ""
    if reserved and reserved not in _ids(status, "capacityReservations"):
        return (
            "the status of its EC2NodeClass does not have the capacity reservation "
            f"{reserved} of its instance"
        )
    if (node_class.get("spec") or {}).get("placementGroupSelector"):
        return "its EC2NodeClass has a placement group, and its instance is in none"
    return ""


_RESOLVED = {
    "AMIsReady": "amis",
    "SubnetsReady": "subnets",
    "SecurityGroupsReady": "securityGroups",
    "CapacityReservationsReady": "",
}
"""The conditions of a class with which nodes are compared, and the list that may not be empty."""


def why_not_ready(node_class: Document) -> str:
    """Return why nodes cannot be compared with a class; empty if they can. Karpenter takes an empty
    list for an error, and replaces nothing."""
    status = node_class.get("status") or {}
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    found = []
    for condition, listed in _RESOLVED.items():
        if listed and not status.get(listed):
            found.append(f"status.{listed} is empty")
        elif (value := conditions.get(condition, "True")) != "True":
            found.append(f"{condition} is {value}")
    return ", ".join(found)


def _image_for(labels: Mapping[str, str], status: Document) -> str:
    """Return the AMI that Karpenter uses for a machine with these labels: the first one in the
    status whose requirements they meet. Source: Karpenter, `MapToInstanceTypes`."""
    for one in status.get("amis") or ():
        if all(each.admits(labels.get(each.key)) for each in _requirements(one).values()):
            return str(one.get("id"))
    return ""


def _ids(status: Document, field: str) -> set[str]:
    return {str(one.get("id")) for one in status.get(field) or ()}


def _is_ready(node: Document) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def claim_name(pool: str, instance: str) -> str:
    """Return the name of the NodeClaim of an instance: the same each time, so that a command that
    was killed finds its own."""
    return f"{pool}-{instance.removeprefix('i-')}"


def is_taken(claim: Document) -> bool:
    """Whether a NodeClaim is Karpenter's: Karpenter has registered it, so that the Node names it,
    or it has a name that no switch gives. Karpenter ends its names with five letters of the API
    server. One with its finalizer alone is ended by nobody while Karpenter is stopped."""
    metadata, status = claim["metadata"], claim.get("status") or {}
    pool = (metadata.get("labels") or {}).get(NODEPOOL, "")
    instance = str(metadata["name"]).removeprefix(f"{pool}-")
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    return not _INSTANCE.fullmatch(instance) or conditions.get("Registered") == "True"


def _requirements(source: Document) -> Requirements:
    """Read `requirements` of an object, as Karpenter compares them with labels."""
    return Requirements(
        Requirement.of(one["key"], one["operator"], one.get("values") or ())
        for one in source.get("requirements") or ()
    )


def _labels(node: Document, facts: InstanceFacts, pool: Document) -> dict[str, str]:
    """Return the labels of the NodeClaim of a node: those that its NodePool names, since Karpenter
    replaces a node whose NodeClaim lacks one. What EC2 knows is not read from the Node: its kubelet
    may write the Node's labels."""
    template = pool["spec"]["template"]
    named = {
        *((template.get("metadata") or {}).get("labels") or {}),
        *(one["key"] for one in template["spec"].get("requirements") or ()),
    }
    found = node["metadata"].get("labels") or {}
    return {
        **{k: v for k, v in found.items() if k in named or k.startswith(_COPIED)},
        NODEPOOL: pool["metadata"]["name"],
        NODE_CLASS: template["spec"]["nodeClassRef"]["name"],
        INSTANCE_TYPE: facts.instance_type,
        ZONE: facts.zone,
        CAPACITY_TYPE: facts.capacity_type,
    }


def claim_of(
    node: Document, facts: InstanceFacts, pool: Document, profile: str = ""
) -> dict[str, Any]:
    """Return the NodeClaim of a node. It has no startup taints: Karpenter would set them again. It
    has no finalizer: Karpenter adds its own, and until then a deleted NodeClaim is gone at once. It
    names the instance profile of its instance: Karpenter deletes those of its own that no NodeClaim
    names. Source: its controller instanceprofile.garbagecollection."""
    spec = pool["spec"]["template"]["spec"]
    reference = {
        "apiVersion": pool["apiVersion"],
        "kind": "NodePool",
        "name": pool["metadata"]["name"],
        "uid": pool["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    kept = ("taints", "expireAfter", "terminationGracePeriod")
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": claim_name(pool["metadata"]["name"], facts.instance),
            "labels": _labels(node, facts, pool),
            **({"annotations": {PROFILE: profile}} if profile else {}),
            "ownerReferences": [reference],
        },
        "spec": {
            "nodeClassRef": spec["nodeClassRef"],
            "requirements": spec.get("requirements") or [],
            **{name: spec[name] for name in kept if name in spec},
        },
    }


def launched_status(node: Document, image: str, now: datetime) -> dict[str, Any]:
    """Return the status of a NodeClaim whose instance runs."""
    launched = {
        "type": "Launched",
        "status": "True",
        "reason": "Launched",
        "message": "",
        "lastTransitionTime": f"{now:%Y-%m-%dT%H:%M:%SZ}",
    }
    status = node.get("status") or {}
    return {
        "providerID": node["spec"]["providerID"],
        "imageID": image,
        "capacity": status.get("capacity") or {},
        "allocatable": status.get("allocatable") or {},
        "conditions": [launched],
    }


def put_claim(
    request: Callable[..., Document | None], document: Document, status: Document
) -> None:
    """Create a NodeClaim, then write its status. Without the status Karpenter would launch an
    instance for it, so a NodeClaim whose status is refused is deleted again. `request` is that of
    the API server.

    Raises:
        CannotBeDoneError: a NodeClaim of this name is being deleted, or has to be by a person.
        ClusterRefused: the status was refused, and the NodeClaim is deleted.
    """
    name = document["metadata"]["name"]
    path = f"{CLAIMS}/{name}"
    found = request("GET", path)
    if found is not None and "deletionTimestamp" in found["metadata"]:
        raise CannotBeDoneError(
            f"NodeClaim {name} is being deleted, and Karpenter would end its instance without a "
            "drain. Remove its finalizers while Karpenter is stopped: `kubectl patch nodeclaim "
            f"{name} --type merge --patch '{_WITHOUT_FINALIZERS}'`. Then run the command again."
        )
    if found is None:
        # A right that is missing is found before there is anything to delete.
        request("DELETE", path, params={"dryRun": "All"})
        found = request("POST", CLAIMS, body=document) or {}
    try:
        request("PATCH", f"{path}/status", content=MERGE, body={"status": status})
    except ClusterRefused:
        remove_claim(request, name)
        raise


def remove_claim(request: Callable[..., Document | None], name: str) -> None:
    """Delete a NodeClaim that a switch wrote, as it is now, while Karpenter is stopped: Karpenter
    would end the instance. One that is registered stays. Karpenter's finalizer goes first. If it
    starts between the requests and sets it again, the version is another one, and nothing is
    deleted.

    Raises:
        CannotBeDoneError: the deletion is refused, and a person has to do it.
    """
    path = f"{CLAIMS}/{name}"
    if (found := request("GET", path)) is None or is_taken(found):
        return
    metadata = found["metadata"]
    try:
        if TERMINATION in (finalizers := metadata.get("finalizers") or ()):
            left = [one for one in finalizers if one != TERMINATION]
            patch = {"resourceVersion": metadata["resourceVersion"], "finalizers": left}
            found = request("PATCH", path, content=MERGE, body={"metadata": patch}) or found
            metadata = found["metadata"]
        only = {key: metadata[key] for key in ("uid", "resourceVersion")}
        request("DELETE", path, body={"preconditions": only})
    except ClusterRefused as error:
        now = request("GET", path)
        if now is None or now["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            return  # the next plan looks again
        raise CannotBeDoneError(
            f"NodeClaim {name} cannot be deleted: {clause(error)}. Without a status Karpenter "
            "would launch an instance for it. Delete it before Karpenter starts: `kubectl delete "
            f"nodeclaim {name}`."
        ) from error
