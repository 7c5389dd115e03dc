"""Kubernetes objects of small random clusters, and random changes of them."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.kept_objects import NAMESPACED

type Objects = dict[tuple[str, str], dict[str, Any]]

ZONES = ("us-east-1a", "us-east-1b")
CREATED = "2026-11-22T10:00:0{}Z"
EBS = "ebs.csi.aws.com"


def metadata(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    """Return the metadata of a stored object."""
    of = {"namespace": namespace} if namespace else {}
    return {
        "name": name,
        **of,
        "uid": f"uid-{name}",
        "creationTimestamp": CREATED.format(0),
        **more,
    }


def pod(name: str, node: str = "", **spec: Any) -> dict[str, Any]:
    """Return a Pod of a ReplicaSet as the API server stores it."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "controller": True}
    bound = {"nodeName": node} if node else {}
    container = {"name": "c", "image": "web", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "metadata": metadata(name, "shop", labels={"app": "web"}, ownerReferences=[owner]),
        "spec": {
            "containers": [container],
            "schedulerName": "default-scheduler",
            "priority": 0,
            **bound,
            **spec,
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def node(name: str, number: int = 0, **spec: Any) -> dict[str, Any]:
    """Return a Node of an instance."""
    zone = ZONES[number % 2]
    labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "58"}
    return {
        "metadata": metadata(name, labels=labels),
        "spec": {"providerID": f"aws:///{zone}/i-{number:017x}", **spec},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def node_claim(name: str, number: int = 0, **status: Any) -> dict[str, Any]:
    """Return a NodeClaim whose instance Karpenter has launched, as of `node`."""
    zone = ZONES[number % 2]
    labels = {"topology.kubernetes.io/zone": zone, "karpenter.sh/nodepool": "karpenters"}
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "58"}
    launched = {
        "providerID": f"aws:///{zone}/i-{number:017x}",
        "allocatable": amounts,
        "capacity": amounts,
    }
    return {
        "metadata": metadata(name, labels=labels),
        "spec": {"startupTaints": [{"key": "example.com/agent", "effect": "NoSchedule"}]},
        "status": {**launched, **status},
    }


def claim(name: str, volume: str = "") -> dict[str, Any]:
    """Return a PersistentVolumeClaim of the class `gp3`."""
    bound = {"volumeName": volume} if volume else {}
    return {"metadata": metadata(name, "shop"), "spec": {"storageClassName": "gp3", **bound}}


def volume(name: str, zone: str) -> dict[str, Any]:
    """Return a PersistentVolume of EBS in a zone."""
    expression = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {
        "metadata": metadata(name),
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": EBS, "volumeHandle": f"vol-{name}"},
            "nodeAffinity": {"required": terms},
        },
    }


def storage_class(zone: str = "") -> dict[str, Any]:
    """Return the StorageClass `gp3`, limited to a zone or not."""
    expression = {"key": "topology.kubernetes.io/zone", "values": [zone]}
    allowed = {"allowedTopologies": [{"matchLabelExpressions": [expression]}]} if zone else {}
    return {"metadata": metadata("gp3"), "provisioner": EBS, **allowed}


def csi_node(name: str, count: int) -> dict[str, Any]:
    """Return the CSINode of a node that attaches `count` volumes."""
    driver = {"name": EBS, "nodeID": name, "allocatable": {"count": count}}
    return {"metadata": metadata(name), "spec": {"drivers": [driver]}}


def limit_range(cpu: str) -> dict[str, Any]:
    """Return a LimitRange with a default request."""
    limit = {"type": "Container", "defaultRequest": {"cpu": cpu}}
    return {"metadata": metadata("limits", "shop"), "spec": {"limits": [limit]}}


def daemon_set(name: str, cpu: str = "") -> dict[str, Any]:
    """Return a DaemonSet."""
    requests = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    container = {"name": "c", "image": "agent", **requests}
    labels = {"app": name}
    return {
        "metadata": metadata(name, "shop"),
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def key(kind: str, document: dict[str, Any]) -> str:
    """Return the key of an object in KeptObjects."""
    of = document["metadata"]
    return f"{of['namespace']}/{of['name']}" if kind in NAMESPACED else str(of["name"])


def random_change(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """Return the kind and the new state of a random object."""
    kind = chance.choice(["Pod"] * 12 + ["Node"] * 4 + sorted(_OTHERS))
    if kind == "Pod":
        return kind, _random_pod(chance)
    if kind == "Node":
        number = chance.randrange(4)
        found = node(f"node-{number}", number, **chance.choice([{}, {"unschedulable": True}]))
        if chance.random() < 0.1:
            found["metadata"]["deletionTimestamp"] = CREATED.format(9)
        return kind, found
    return kind, _OTHERS[kind](chance)


_STATUSES: tuple[dict[str, Any], ...] = ({}, {"providerID": ""})

_OTHERS = {
    "PersistentVolumeClaim": lambda chance: claim(
        f"data-{chance.randrange(3)}", chance.choice(["", "pv-0", "pv-1"])
    ),
    "PersistentVolume": lambda chance: volume(f"pv-{chance.randrange(2)}", chance.choice(ZONES)),
    "StorageClass": lambda chance: storage_class(chance.choice(["", *ZONES])),
    "NodeClaim": lambda chance: node_claim(
        f"claim-{chance.randrange(3)}", 2 + chance.randrange(4), **chance.choice(_STATUSES)
    ),
    "CSINode": lambda chance: csi_node(f"node-{chance.randrange(4)}", chance.randrange(1, 20)),
    "LimitRange": lambda chance: limit_range(f"{chance.randrange(1, 9)}0m"),
    "DaemonSet": lambda chance: daemon_set(
        f"agent-{chance.randrange(2)}", chance.choice(["", "50m", "70m"])
    ),
}


def _random_pod(chance: random.Random) -> dict[str, Any]:
    number = chance.randrange(12)
    where = chance.choice(["", "", *(f"node-{n}" for n in range(5))])
    found = pod(f"web-{number}", where)
    found["metadata"]["creationTimestamp"] = CREATED.format(number % 5)
    spec, status = found["spec"], found["status"]
    if chance.random() < 0.4:
        claims = chance.sample(range(3), chance.randrange(1, 3))
        spec["volumes"] = [
            {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"data-{n}"}} for n in claims
        ]
    if chance.random() < 0.3:
        spec["containers"][0]["resources"] = {"requests": {"cpu": f"{chance.randrange(9)}00m"}}
    if chance.random() < 0.2:
        status["phase"] = chance.choice(["Succeeded", "Failed"])
    if chance.random() < 0.2:
        found["metadata"]["deletionTimestamp"] = CREATED.format(9)
    if not where and chance.random() < 0.2:
        status["nominatedNodeName"] = f"node-{chance.randrange(6)}"
    if not where and chance.random() < 0.2:
        spec["schedulingGates"] = [{"name": "quota"}]
    owner = found["metadata"]["ownerReferences"][0]
    if chance.random() < 0.2:
        owner["kind"] = chance.choice(["DaemonSet", "StatefulSet"])
        owner["uid"] = f"uid-agent-{chance.randrange(2)}"
    if chance.random() < 0.2:
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return found


def lists_of(objects: Objects) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (Pods and Nodes, other objects) with their kinds, each in the order of a list."""
    given = [{**document, "kind": kind} for (kind, _), document in sorted(objects.items(), key=_at)]
    own = [each for each in given if each["kind"] in {"Pod", "Node"}]
    return own, [each for each in given if each not in own]


def _at(item: tuple[tuple[str, str], Any]) -> tuple[str, str]:
    return item[0]


def comparable(state: ClusterState) -> dict[str, object]:
    """Return the parts of a state without its time."""
    return {
        "nodes": list(state.nodes),
        "joined": dict(state.joined),
        "waiting": list(state.waiting),
        "daemons": list(state.daemons),
        "movable": {name: list(pods) for name, pods in state.movable.items()},
        "details": dict(state.details),
        "budgets": list(state.budgets),
        "claimed": list(state.claimed),
        "unreadable": list(state.unreadable),
        "unusable": list(state.unusable),
    }


def random_changes(seed: int, count: int) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield (kind, object, whether it is deleted)."""
    chance = random.Random(seed)  # noqa: S311
    for _ in range(count):
        kind, document = random_change(chance)
        yield kind, document, chance.random() < 0.25


def oldest_first(pods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort Pods by their age, then by name."""
    return sorted(pods, key=lambda p: (p["metadata"]["creationTimestamp"], key("Pod", p)))
