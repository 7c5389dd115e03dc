"""Kubernetes objects for rehearsals, as `kubectl get -o json` prints them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from leeway.policy.rules import ClusterPolicy
from leeway.selection.offers.catalog import Catalog
from leeway_cli.rehearse.cluster import Cluster, Pace
from leeway_cli.rehearse.read import read_objects
from leeway_cli.rehearse.room import Market, Placements, Room
from leeway_cli.rehearse.storm import Fate, Storm, rehearse

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
PACE = Pace(pod_start=5.0, pod_stop=2.0)
NO_CATALOG = Catalog.of("us-east-1", ())

type Object = dict[str, Any]


def node(name: str, zone: str = "us-east-1a", cpu: str = "4", **labels: str) -> Object:
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    own = {"topology.kubernetes.io/zone": zone, "node.kubernetes.io/instance-type": "m5.large"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **own, **labels}},
        "spec": {"providerID": f"aws:///{zone}/i-0123456789abcdef0"},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str,
    on: str,
    app: str = "web",
    *,
    owner: str = "ReplicaSet",
    grace: int = 30,
    cpu: str = "100m",
    **more: Any,
) -> Object:
    """A Ready pod of `shop`, owned by `app`; without a controller if `owner` is empty."""
    metadata: Object = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-{name}",
        "labels": {"app": app, "pod-template-hash": "1"},
        "creationTimestamp": "2026-11-20T09:00:00Z",
    }
    if owner:
        full = f"{app}-1" if owner == "ReplicaSet" else app
        reference = {"kind": owner, "name": full, "uid": full, "controller": True}
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", **reference}]
    metadata |= more.pop("metadata", {})
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "nodeName": on,
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            **more,
        },
        "status": {"phase": "Running", "conditions": [ready]},
    }


def workload(kind: str, name: str, replicas: int, **spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "serviceName": name,
            "template": template,
            **spec,
        },
    }


def budget(app: str = "web", name: str = "", **rule: Any) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name or app, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **rule},
    }


def read(*objects: Object, pace: Pace = PACE) -> Cluster:
    return read_objects(objects, pace, NOW, frozenset())


def storm_of(
    *objects: Object,
    lost: str,
    pace: Pace = PACE,
    recorded: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> Storm:
    """Rehearse the loss of some nodes, `a b`, without pools. `recorded` are seconds from the notice
    by the names of pods."""
    cluster, names = read(*objects, pace=pace), frozenset(lost.split())
    placements = Room(cluster, Market((), NO_CATALOG, priced=False), pace).plan(names)
    times = {
        f"uid-{name}": [NOW + timedelta(seconds=second) for second in seconds]
        for name, seconds in recorded.items()
    }
    return rehearse(cluster, names, placements, ClusterPolicy(), pace, NOW, times)


def once(cluster: Cluster, lost: frozenset[str], places: Placements, pace: Pace = PACE) -> Storm:
    return rehearse(cluster, lost, places, ClusterPolicy(), pace, NOW)


def fates(storm: Storm) -> dict[str, Fate]:
    """The fate of each pod that was on a lost node, by its name."""
    return {one.pod.partition("/")[2]: one for one in storm.fates if not one.returned}
