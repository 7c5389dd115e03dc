"""The content of a sandbox: node groups and workloads of its cluster, instances of other clusters.

A scenario is a value. `leeway_sandbox.provisioning` creates it through the APIs that a user calls.
"""

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Manifest = Mapping[str, Any]

ENDS_AFTER = "sandbox.leeway.sh/ends-after"
STARTS_AFTER = "sandbox.leeway.sh/starts-after"
DEMO = "demo"
NODE_ROLE = "leeway-sandbox-nodes"
"""The role of launched nodes, and its instance profile."""
DISCOVERY_TAG = "karpenter.sh/discovery"
"""The tag of subnets and security groups; its value is the name of the cluster."""
POOL_LABEL = "karpenter.sh/nodepool"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


@dataclass(frozen=True)
class Group:
    """An Auto Scaling group of Spot instances of one type."""

    name: str
    size: int
    instance_type: str = "m5.large"
    zones: tuple[str, ...] = ZONES
    terminate_hook: bool = False
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Pool:
    """A pool of Leeway: its manifests, and the workloads that need nodes of it.

    The sandbox creates none of them: its user does, when the cluster runs. `nodes` is the number of
    nodes that the workloads need.
    """

    name: str
    nodes: int
    manifests: tuple[Manifest, ...]
    workloads: tuple[Manifest, ...]

    @property
    def pods(self) -> int:
        """The number of pods of the workloads."""
        return sum(pods_of(manifest, self.nodes) for manifest in self.workloads)


@dataclass(frozen=True)
class Scenario:
    """A cluster with groups, pools and workloads, and one instance for each foreign cluster."""

    cluster: str
    groups: tuple[Group, ...]
    workloads: tuple[Manifest, ...] = ()
    foreign_clusters: tuple[str, ...] = ()
    seed: int = 0
    pools: tuple[Pool, ...] = ()

    @property
    def nodes(self) -> int:
        """The number of nodes of all groups."""
        return sum(group.size for group in self.groups)

    @property
    def pods(self) -> int:
        """The number of pods that run when the sandbox is ready."""
        return sum(pods_of(manifest, self.nodes) for manifest in self.workloads)


def pods_of(manifest: Manifest, nodes: int) -> int:
    """Return how many pods an object has on a cluster with this number of nodes."""
    match manifest["kind"]:
        case "Pod":
            return 1
        case "DaemonSet":
            return nodes
        case "Deployment" | "ReplicaSet" | "StatefulSet":
            return int(manifest["spec"].get("replicas", 1))
        case _:
            return 0


def demo_scenario(seed: int = 0, nodes: int = 20, of_pools: int = 0) -> Scenario:
    """Return the cluster of the demo: two Spot groups and about seven pods a node.

    Of the nodes, `of_pools` are nodes of a pool, with three pods each.
    """
    in_groups = nodes - of_pools
    hooked = math.ceil(in_groups / 2)
    groups = [
        Group("spot-hooked", hooked, terminate_hook=True),
        Group("spot-plain", in_groups - hooked),
    ]
    return Scenario(
        cluster=DEMO,
        pools=(_demo_pool(of_pools),) if of_pools else (),
        groups=tuple(group for group in groups if group.size),
        workloads=tuple(_demo_workloads(random.Random(seed), in_groups)),
        foreign_clusters=("somebody-elses",),
        seed=seed,
    )


def real_scenario(cluster: str, nodes: int) -> Scenario:
    """Return a cluster that runs already: one group has its nodes, and nothing is created in it."""
    return Scenario(cluster=cluster, groups=(Group("workers", nodes, terminate_hook=True),))


def _demo_pool(nodes: int) -> Pool:
    """Return a pool of machines with four processors, each of which holds three pods."""
    orders = pod_spec(cpu="1", memory="1Gi", grace=10, ends_after=1.0, starts_after=1.0)
    orders["spec"]["nodeSelector"] = {POOL_LABEL: "flexible"}
    requirements = {
        "karpenter.k8s.aws/instance-category": ["m"],
        "karpenter.k8s.aws/instance-cpu": ["4"],
    }
    workloads = (
        namespace("orders"),
        # Without a spread, three pods fit on a node.
        deployment("orders", "orders", nodes * 3, orders, spread=False),
        budget("orders", "orders", maxUnavailable="50%"),
    )
    return Pool("flexible", nodes, _pool_manifests("flexible", requirements), workloads)


def switch_scenario(seed: int = 0, nodes: int = 3) -> Scenario:
    """Return a cluster of three nodes, and a pool whose nodes Karpenter has launched."""
    return Scenario(
        cluster=DEMO,
        groups=(Group("system", 3),),
        workloads=tuple(_system_workloads(lambda seconds: seconds)),
        pools=(_demo_pool(nodes),),
        seed=seed,
    )


def scale_up_scenario(seed: int = 0, replicas: int = 10) -> Scenario:
    """Return a cluster of three nodes with a Deployment that fits on them, and a pool of Spot and
    on-demand machines of many sizes for the Deployment's further pods."""
    web = pod_spec(cpu="250m", memory="512Mi", grace=10, starts_after=1.0)
    requirements = {
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
        "karpenter.k8s.aws/instance-cpu": ["4", "8", "16"],
    }
    # The scheduler does not wait for the nodes of a preferred spread: some would get no pod.
    workload = deployment("shop", "web", replicas, web, spread=False)
    return Scenario(
        cluster=DEMO,
        groups=(Group("system", 3),),
        workloads=tuple(_system_workloads(lambda seconds: seconds)),
        pools=(
            Pool(
                "general",
                0,
                _pool_manifests("general", requirements),
                (namespace("shop"), workload),
            ),
        ),
        seed=seed,
    )


def _pool_manifests(name: str, requirements: Mapping[str, list[str]]) -> tuple[Manifest, ...]:
    """Return a NodePool of x86 machines, Spot or on-demand, and its EC2NodeClass."""
    terms = [{"tags": {DISCOVERY_TAG: DEMO}}]
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "role": NODE_ROLE,
            "subnetSelectorTerms": terms,
            "securityGroupSelectorTerms": terms,
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
        },
    }
    wanted = {
        "karpenter.sh/capacity-type": ["spot", "on-demand"],
        "kubernetes.io/arch": ["amd64"],
        **requirements,
    }
    template = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [
            {"key": key, "operator": "In", "values": values} for key, values in wanted.items()
        ],
    }
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": template}},
    }
    return node_class, pool


def smoke_scenario(nodes: int = 3) -> Scenario:
    """Return a small cluster with one Deployment and its PodDisruptionBudget."""
    return Scenario(
        cluster="smoke",
        groups=(Group("spot-plain", nodes),),
        workloads=(
            namespace("shop"),
            deployment("shop", "web", nodes, pod_spec(grace=5)),
            budget("shop", "web", maxUnavailable=1),
        ),
        foreign_clusters=("somebody-elses",),
    )


def _demo_workloads(rng: random.Random, nodes: int) -> Iterable[Manifest]:
    def share(per_node: float, least: int = 2) -> int:
        """Return the size of a workload: `per_node` pods a node, changed by up to 8 %."""
        return max(least, round(nodes * per_node * rng.uniform(0.92, 1.08)))

    def about(seconds: float) -> float:
        return round(seconds * rng.uniform(0.7, 1.3), 1)

    for name in ("shop", "media", "staging"):
        yield namespace(name)
    yield from _system_workloads(about)

    web = pod_spec(cpu="150m", grace=10, ends_after=about(0.8), starts_after=about(1.2))
    yield deployment("shop", "web", share(2.2), web)
    yield budget("shop", "web", maxUnavailable="10%")
    api = pod_spec(cpu="150m", grace=15, ends_after=about(1.5), starts_after=about(1.5))
    yield deployment("shop", "api", share(1.2), api)
    yield budget("shop", "api", minAvailable="90%")
    # One pod at a time: its pods wait for each other when a storm takes several of their nodes.
    checkout = pod_spec(cpu="100m", grace=5, ends_after=about(1.0), starts_after=about(1.5))
    yield deployment("shop", "checkout", share(0.3, least=3), checkout)
    yield budget("shop", "checkout", maxUnavailable=1)
    # A misconfigured budget that never allows an eviction.
    yield deployment("shop", "ledger", 2, pod_spec(cpu="150m", grace=15, ends_after=about(1.0)))
    yield budget("shop", "ledger", minAvailable=2)
    search = pod_spec(cpu="200m", grace=20, ends_after=about(2.5), starts_after=about(1.5))
    yield stateful_set("shop", "search", 3, search)
    yield budget("shop", "search", maxUnavailable=1)
    # A grace period of five minutes, longer than a Spot interruption warning.
    transcode = pod_spec(cpu="300m", grace=300, ends_after=about(15.0))
    yield deployment("media", "transcode", share(0.2), transcode)
    yield deployment("staging", "preview", share(2.1), pod_spec(grace=5, ends_after=about(0.5)))
    yield bare_pod("staging", "migration-by-hand", pod_spec(grace=20, ends_after=about(3.0)))


def _system_workloads(about: Any) -> Iterable[Manifest]:
    agent = pod_spec(
        cpu="50m",
        priority_class="system-node-critical",
        tolerations=[{"operator": "Exists"}],
    )
    yield daemon_set("kube-system", "node-agent", agent)
    dns = pod_spec(
        cpu="100m",
        grace=15,
        ends_after=about(1.0),
        priority_class="system-cluster-critical",
        tolerations=[{"key": "CriticalAddonsOnly", "operator": "Exists"}],
    )
    yield deployment("kube-system", "coredns", 2, dns)
    yield budget("kube-system", "coredns", maxUnavailable=1)


def pod_spec(
    *,
    cpu: str = "100m",
    memory: str = "128Mi",
    grace: int = 30,
    ends_after: float | None = None,
    starts_after: float | None = None,
    priority_class: str | None = None,
    tolerations: list[dict[str, str]] | None = None,
) -> dict[str, Any]:
    """Return a pod template with one container; times are in seconds."""
    times = {ENDS_AFTER: ends_after, STARTS_AFTER: starts_after}
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": grace,
        "containers": [
            {
                "name": "main",
                "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": cpu, "memory": memory}},
            }
        ],
    }
    if priority_class is not None:
        spec["priorityClassName"] = priority_class
    if tolerations is not None:
        spec["tolerations"] = tolerations
    annotations = {key: f"{value:g}s" for key, value in times.items() if value is not None}
    return {"metadata": {"annotations": annotations}, "spec": spec}


def namespace(name: str) -> Manifest:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def deployment(
    space: str,
    name: str,
    replicas: int,
    template: Mapping[str, Any],
    *,
    spread: bool = True,
) -> Manifest:
    """Return a Deployment, whose pods prefer to spread over nodes unless `spread` is False."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": name}},
    }
    body = _controller("Deployment", space, name, template)
    body["spec"]["replicas"] = replicas
    if spread:
        body["spec"]["template"]["spec"]["topologySpreadConstraints"] = [constraint]
    return body


def stateful_set(space: str, name: str, replicas: int, template: Mapping[str, Any]) -> Manifest:
    """Return a StatefulSet that starts all pods at once."""
    body = _controller("StatefulSet", space, name, template)
    body["spec"] |= {"replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel"}
    return body


def daemon_set(space: str, name: str, template: Mapping[str, Any]) -> Manifest:
    """Return a DaemonSet."""
    return _controller("DaemonSet", space, name, template)


def bare_pod(space: str, name: str, template: Mapping[str, Any]) -> Manifest:
    """Return a Pod without a controller."""
    metadata = {**template["metadata"], "name": name, "namespace": space, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def budget(space: str, name: str, **rule: int | str) -> Manifest:
    """Return a PodDisruptionBudget for the pods labelled `app: NAME`."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": space},
        "spec": {"selector": {"matchLabels": {"app": name}}, **rule},
    }


def _controller(kind: str, space: str, name: str, template: Mapping[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    metadata = {**template["metadata"], "labels": labels}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": space, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": dict(template["spec"])},
        },
    }
