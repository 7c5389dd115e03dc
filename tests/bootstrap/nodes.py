"""Templates, clusters and machines for the tests of user data, made of manifests as users write
them."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leeway.bootstrap.node import ClusterDetails, NodeTemplate, templates_of
from leeway.bootstrap.user_data import UserData, render
from leeway.selection.offers.machines import Machine, machine
from leeway_sandbox.aws.regions import read_region

from tests.manifests.texts import manifests

USERS = Path(__file__).parent / "users"

CLUSTER = ClusterDetails(
    name="prod",
    endpoint="https://A2FAB60F0DBB94CD.yl4.ap-northeast-2.eks.amazonaws.com",
    certificate_authority="Y2VydGlmaWNhdGVBdXRob3JpdHk=",
    service_cidr="172.20.0.0/16",
)
IPV6 = ClusterDetails(
    name="prod",
    endpoint="https://[2600:1f13::1]:443",
    certificate_authority="Y2VydGlmaWNhdGVBdXRob3JpdHk=",
    service_cidr="fd30:1c53:5f8a::/108",
)


def users(name: str) -> str:
    """The text of one of the users' own user data, byte by byte."""
    return (USERS / name).read_bytes().decode()


@functools.cache
def machine_of(name: str) -> Machine:
    """An instance type of us-east-1, as EC2 describes it."""
    (found,) = [t for t in read_region("us-east-1").types if t["InstanceType"] == name]
    return machine(found)


def template(
    family: str,
    user_data: str | None = None,
    *,
    kubelet: Mapping[str, Any] | None = None,
    pool: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    raid0: bool = False,
) -> NodeTemplate:
    """The template of one pool. `pool` are fields of its `template.spec`."""
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "web"}
    documents = [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "web"},
            "spec": {
                "template": {
                    "metadata": {"labels": labels or {}},
                    "spec": {"nodeClassRef": reference, **(pool or {})},
                }
            },
        },
        {
            "apiVersion": "karpenter.k8s.aws/v1",
            "kind": "EC2NodeClass",
            "metadata": {"name": "web"},
            "spec": {
                "amiFamily": family,
                "userData": user_data,
                "kubelet": kubelet or {},
                "instanceStorePolicy": "RAID0" if raid0 else None,
            },
        },
    ]
    (found,) = templates_of(manifests(*documents))
    return found


FULL: dict[str, Any] = {
    "kubelet": {
        "podsPerCore": 8,
        "systemReserved": {"cpu": "100m", "memory": "100Mi"},
        "kubeReserved": {"cpu": "200m"},
        "evictionHard": {"memory.available": "5%"},
        "evictionSoft": {"memory.available": "500Mi"},
        "evictionSoftGracePeriod": {"memory.available": "1m30s"},
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "cpuCFSQuota": False,
        "clusterDNS": ["169.254.20.10"],
    },
    "labels": {
        "team": "shop",
        "empty": "",
        "node.kubernetes.io/role-of-mine": "web",
        "node-restriction.kubernetes.io/tier": "front",
    },
    "pool": {
        "requirements": [
            {"key": "example.com/ring", "operator": "In", "values": ["inner"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        ],
        "taints": [
            {"key": "dedicated", "value": "web", "effect": "NoSchedule"},
            {"key": "dedicated", "value": "1e3", "effect": "NoExecute"},
        ],
        "startupTaints": [{"key": "example.com/agent-not-ready", "effect": "NoExecute"}],
    },
    "raid0": True,
}
"""Every setting that a pool and its node class have."""


def rendered(
    family: str,
    user_data: str | None = None,
    *,
    cluster: ClusterDetails = CLUSTER,
    instance_type: str | None = "m5d.large",
    **settings: Any,
) -> UserData:
    """Render the user data of a template."""
    machine = machine_of(instance_type) if instance_type else None
    return render(template(family, user_data, **settings), cluster, machine)
