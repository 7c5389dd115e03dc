"""Manifests of pools, and pods, for tests of launches."""

from collections.abc import Mapping, Sequence
from typing import Any

from leeway.launch.node_settings import NodeSettings, settings_of
from leeway.selection.pods import Pod, PodSpec
from leeway.selection.resources import Resources

from tests.manifests.texts import manifests

SUBNET_TERMS = [{"tags": {"discovery": "prod"}}]
GROUP_TERMS = [{"tags": {"discovery": "prod"}}]
NODE_CLASS: Mapping[str, Any] = {
    "subnetSelectorTerms": SUBNET_TERMS,
    "securityGroupSelectorTerms": GROUP_TERMS,
    "role": "prod-nodes",
}


def document(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest of one of the kinds that a launch reads."""
    versions = {
        "NodePool": "karpenter.sh/v1",
        "EC2NodeClass": "karpenter.k8s.aws/v1",
        "Cluster": "leeway.sh/v1",
        "NodeOverlay": "karpenter.sh/v1alpha1",
    }
    metadata = {"name": name}
    return {"apiVersion": versions[kind], "kind": kind, "metadata": metadata, "spec": dict(spec)}


ONE_POD_EACH = {"cpu": ["96"]}
"""A node of these types has room for one pod of 90 CPUs."""


def pool(
    name: str = "web",
    capacity: Sequence[str] = ("spot", "on-demand"),
    arch: Sequence[str] = ("amd64",),
    categories: Sequence[str] = ("m",),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    only: Mapping[str, Sequence[str]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A NodePool of current types, of the node class `default`. `only` are values of labels of
    instance types, such as family."""
    rules = {
        "karpenter.sh/capacity-type": capacity,
        "kubernetes.io/arch": arch,
        "karpenter.k8s.aws/instance-category": categories,
        **{f"karpenter.k8s.aws/instance-{name}": values for name, values in (only or {}).items()},
    }
    requirements = [{"key": k, "operator": "In", "values": [*v]} for k, v in rules.items()]
    requirements += [
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["4"]}
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {
        "metadata": {"labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {
            "nodeClassRef": reference,
            "requirements": requirements,
            **spec.pop("template", {}),
        },
    }
    return document("NodePool", name, {"template": template, **spec})


def node_class(**spec: Any) -> dict[str, Any]:
    """The EC2NodeClass `default`, complete unless fields are replaced; None removes one."""
    fields = {**NODE_CLASS, **spec}
    given = {name: value for name, value in fields.items() if value is not None}
    return document("EC2NodeClass", "default", given)


def with_class(of: dict[str, Any], **spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A pool with a node class of its own, which has its name."""
    own, name = node_class(**spec), of["metadata"]["name"]
    own["metadata"]["name"] = name
    of["spec"]["template"]["spec"]["nodeClassRef"]["name"] = name
    return of, own


def settings(*documents: Mapping[str, Any]) -> NodeSettings:
    """The settings of the only pool; a pool is added if there is none."""
    given = [pool(), *documents] if all(d["kind"] != "NodePool" for d in documents) else documents
    (found,) = settings_of(manifests(*given))
    return found


def pods(count: int, cpu: int = 1500, memory: int = 2 * 2**30, name: str = "web") -> list[Pod]:
    """Equal pods; cpu in millicores, memory in bytes."""
    spec = PodSpec(requests=Resources({"cpu": cpu, "memory": memory, "pods": 1}))
    return [Pod(f"shop/{name}-{number}", spec) for number in range(count)]
