"""A small Karpenter for a sandbox: its NodeClaims, finalizers, garbage collection and Lease.

It talks to an API server and to EC2 over HTTP, as the real one does, and acts only while its
Deployment has replicas. It launches nothing for pods: `add_claim` requests a node. Rules: the
controllers nodeclaim.lifecycle, node.termination and nodeclaim.garbagecollection of Karpenter's
core, and instance.garbagecollection of its AWS provider. It drains no node: no test needs that. It
replaces no node either: `drifted` tells which ones Karpenter would replace.
"""

import base64
import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import httpx2 as httpx
import yaml

from leeway_sandbox.scenario import DISCOVERY_TAG, NODE_ROLE

GROUP, FINALIZER = "karpenter.sh", "karpenter.sh/termination"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLASSES = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
NODES = "/api/v1/nodes"
DEPLOYMENT = "/apis/apps/v1/namespaces/kube-system/deployments/karpenter"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/karpenter-leader-election"
UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
_MERGE = {"Content-Type": "application/merge-patch+json"}
_ENDED = ("shutting-down", "terminated")
_LAUNCHED_FOR = 30.0  # seconds that an instance without a NodeClaim is left alone

_MACHINE = {
    "node.kubernetes.io/instance-type": "m5.xlarge",
    "karpenter.k8s.aws/instance-category": "m",
    "karpenter.k8s.aws/instance-family": "m5",
    "karpenter.k8s.aws/instance-generation": "5",
    "karpenter.k8s.aws/instance-size": "xlarge",
    "karpenter.k8s.aws/instance-cpu": "4",
    "karpenter.k8s.aws/instance-memory": "16384",
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "karpenter.sh/capacity-type": "on-demand",
}
"""The labels that Karpenter gives the NodeClaim of the one type that it launches here."""

_IMAGE = (
    "/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/standard/recommended/"
    "image_id"
)

_FREE: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NODECLAIMS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "nodeclaims.karpenter.sh"},
    "spec": {
        "group": GROUP,
        "names": {
            "plural": "nodeclaims",
            "singular": "nodeclaim",
            "kind": "NodeClaim",
            "listKind": "NodeClaimList",
        },
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "apiVersion": {"type": "string"},
                            "kind": {"type": "string"},
                            "metadata": {"type": "object"},
                            "spec": {
                                **_FREE,
                                "required": ["nodeClassRef", "requirements"],
                                "properties": {
                                    "nodeClassRef": {
                                        "type": "object",
                                        "required": ["group", "kind", "name"],
                                        "properties": {
                                            "group": {"type": "string"},
                                            "kind": {"type": "string"},
                                            "name": {"type": "string"},
                                        },
                                    },
                                    "requirements": {"type": "array", "items": _FREE},
                                },
                                "x-kubernetes-validations": [
                                    {"rule": "self == oldSelf", "message": "spec is immutable"}
                                ],
                            },
                            "status": _FREE,
                        },
                    }
                },
            }
        ],
    },
}
"""The kind NodeClaim, with what Karpenter's own CRD says of its spec as a whole."""


def deployment(replicas: int) -> dict[str, Any]:
    """Return Karpenter's Deployment as its chart labels it."""
    labels = {"app.kubernetes.io/name": "karpenter"}
    container = {"name": "controller", "image": "karpenter:sandbox"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "karpenter", "namespace": "kube-system", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


class Karpenter:
    """Karpenter for one cluster. `api` is a client of its API server, `ec2`, `eks` and `ssm` are
    those of boto3. `version` is that of its AMI, by default the cluster's. `began` are the
    instances that it has launched, `ended` those that it has terminated."""

    def __init__(
        self, api: httpx.Client, cluster: str, ec2: Any, eks: Any, ssm: Any, version: str = ""
    ) -> None:
        self._api, self._ec2, self._eks, self._cluster = api, ec2, eks, cluster
        version = version or eks.describe_cluster(name=cluster)["cluster"]["version"]
        parameter = _IMAGE.format(version=version)
        self._image: str = ssm.get_parameter(Name=parameter)["Parameter"]["Value"]
        self._stopping = threading.Event()
        self.began: list[str] = []
        self.ended: list[str] = []

    def install(self, replicas: int = 1) -> None:
        """Create the kind NodeClaim and the Deployment; existing ones stay."""
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        self._create(definitions, NODECLAIMS)
        until = time.monotonic() + 60
        while self._api.get(CLAIMS).status_code != 200 and time.monotonic() < until:
            time.sleep(0.1)
        self._create(DEPLOYMENT.rpartition("/")[0], deployment(replicas))

    def _create(self, path: str, body: Mapping[str, Any]) -> None:
        answer = self._api.post(path, json=body)
        if answer.status_code != 409:
            answer.raise_for_status()

    def add_claim(self, name: str, pool: str) -> None:
        """Request a node of a pool."""
        found = self._api.get(f"{POOLS}/{pool}").raise_for_status().json()
        template = found["spec"]["template"]
        owner = _owner("NodePool", found["metadata"])
        own = (template.get("metadata") or {}).get("labels") or {}
        own |= {"karpenter.k8s.aws/ec2nodeclass": template["spec"]["nodeClassRef"]["name"]}
        self._create(
            CLAIMS,
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "metadata": {
                    "name": name,
                    "labels": {**own, "karpenter.sh/nodepool": pool},
                    "ownerReferences": [owner],
                },
                "spec": {
                    "nodeClassRef": template["spec"]["nodeClassRef"],
                    "requirements": template["spec"]["requirements"],
                },
            },
        )

    def act(self, now: datetime | None = None) -> None:
        """Do once what the controllers do, if the Deployment has replicas. `now` is the time of its
        Lease, by default the clock's."""
        found = self._api.get(DEPLOYMENT)
        if found.status_code == 404 or not found.json()["spec"].get("replicas", 1):
            return
        self._renew(now or datetime.now(UTC))
        for node_class in self._list(CLASSES):
            self._resolve(node_class)
        instances = {one["InstanceId"]: one for one in self._instances()}
        nodes = {_instance_of(one["spec"]): one for one in self._list(NODES)}
        claims = self._list(CLAIMS)
        for claim in claims:
            instance = _instance_of(claim.get("status") or {})
            node = nodes.get(instance)
            if "deletionTimestamp" in claim["metadata"]:
                self._finalize(claim, instance, node)
            elif not self._takes(claim):
                continue  # another version: the next round has it
            elif not instance:
                self._launch(claim)
            elif node is not None and "Registered" not in _conditions(claim):
                self._register(claim, node)
            elif node is not None and (
                "deletionTimestamp" in node["metadata"]
                or (instance not in instances and not _is_ready(node))
            ):
                self._api.delete(f"{CLAIMS}/{claim['metadata']['name']}")
        known = {_instance_of(one.get("status") or {}) for one in claims}
        for name, one in instances.items():
            age = datetime.now(UTC) - one["LaunchTime"]
            if name not in known and age.total_seconds() > _LAUNCHED_FOR:
                self._terminate(name)

    def drifted(self) -> dict[str, str]:
        """Return the NodeClaims whose nodes Karpenter would replace, with its reason."""
        pools = {one["metadata"]["name"]: one for one in self._list(POOLS)}
        classes = {one["metadata"]["name"]: one for one in self._list(CLASSES)}
        instances = {one["InstanceId"]: one for one in self._instances()}
        found = {}
        for claim in self._list(CLAIMS):
            instance = instances.get(_instance_of(claim.get("status") or {}))
            pool = pools.get((claim["metadata"].get("labels") or {}).get("karpenter.sh/nodepool"))
            node_class = classes.get(claim["spec"]["nodeClassRef"]["name"])
            if instance is None or pool is None or node_class is None:
                continue
            if reason := _drift(claim, pool, node_class, instance):
                found[claim["metadata"]["name"]] = reason
        return found

    def _renew(self, now: datetime) -> None:
        renewed = f"{now:%Y-%m-%dT%H:%M:%S.%fZ}"
        spec = {"holderIdentity": "karpenter-0", "leaseDurationSeconds": 15, "renewTime": renewed}
        if self._patch(LEASE, {"spec": spec}) is None:
            named = {"name": "karpenter-leader-election", "namespace": "kube-system"}
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            self._create(LEASE.rpartition("/")[0], {**kind, "metadata": named, "spec": spec})

    def _takes(self, claim: Mapping[str, Any]) -> bool:
        """Set the finalizer before anything else is done for a NodeClaim."""
        if FINALIZER in (claim["metadata"].get("finalizers") or ()):
            return True
        patch = _finalizers(claim, FINALIZER)
        patch["metadata"]["resourceVersion"] = claim["metadata"]["resourceVersion"]
        return self._patch(f"{CLAIMS}/{claim['metadata']['name']}", patch) is not None

    def _launch(self, claim: Mapping[str, Any]) -> None:
        """Launch an instance with the tags of Karpenter, and say so in the status."""
        pool = claim["metadata"]["labels"]["karpenter.sh/nodepool"]
        tags = {
            "karpenter.sh/nodepool": pool,
            "karpenter.k8s.aws/ec2nodeclass": claim["spec"]["nodeClassRef"]["name"],
            "karpenter.sh/nodeclaim": claim["metadata"]["name"],
            "eks:eks-cluster-name": self._cluster,
            f"kubernetes.io/cluster/{self._cluster}": "owned",
        }
        instance = self.start_instance(claim["metadata"]["name"], tags)
        self.began.append(instance["InstanceId"])
        zone = instance["Placement"]["AvailabilityZone"]
        labels = {**_MACHINE, "topology.kubernetes.io/zone": zone}
        self._patch(f"{CLAIMS}/{claim['metadata']['name']}", {"metadata": {"labels": labels}})
        status = {
            "providerID": f"aws:///{zone}/{instance['InstanceId']}",
            "imageID": instance["ImageId"],
        }
        self._write_status(claim, status, "Launched", "Launched")

    def _write_status(
        self, claim: Mapping[str, Any], status: Mapping[str, Any], condition: str, reason: str
    ) -> None:
        """Write a status with one more condition. It is False if the reason is another word."""
        added = {
            "type": condition,
            "status": str(condition == reason),
            "reason": reason,
            "message": "",
            "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        body = {"status": {**status, "conditions": [*_conditions(claim).values(), added]}}
        self._patch(f"{CLAIMS}/{claim['metadata']['name']}/status", body)

    def start_instance(self, name: str, tags: Mapping[str, str]) -> Any:
        """Launch an instance by an instant fleet, as Karpenter does: EC2 tags it with the fleet."""
        groups, subnets = self._networks()
        data = {
            "ImageId": self._image,
            "SecurityGroupIds": [one["GroupId"] for one in groups],
            "IamInstanceProfile": {"Name": NODE_ROLE},
            "UserData": base64.b64encode(self._user_data(tags).encode()).decode(),
        }
        self._ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
        machine = _MACHINE["node.kubernetes.io/instance-type"]
        wanted = {"InstanceType": machine, "SubnetId": subnets[0]["SubnetId"]}
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        answer = self._ec2.create_fleet(
            Type="instant",
            OnDemandOptions={"AllocationStrategy": "lowest-price"},
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateName": name,
                        "Version": "$Latest",
                    },
                    "Overrides": [wanted],
                }
            ],
            TargetCapacitySpecification={
                "TotalTargetCapacity": 1,
                "DefaultTargetCapacityType": "on-demand",
            },
            TagSpecifications=[{"ResourceType": "instance", "Tags": listed}],
        )
        (launched,) = answer["Instances"][0]["InstanceIds"]
        found = self._ec2.describe_instances(InstanceIds=[launched])
        return found["Reservations"][0]["Instances"][0]

    def _networks(self) -> tuple[list[Any], list[Any]]:
        """Find the security groups and subnets of the nodes."""
        discovery = [{"Name": f"tag:{DISCOVERY_TAG}", "Values": [self._cluster]}]
        groups = self._ec2.describe_security_groups(Filters=discovery)["SecurityGroups"]
        return groups, self._ec2.describe_subnets(Filters=discovery)["Subnets"]

    def _resolve(self, node_class: Mapping[str, Any]) -> None:
        """Write what a class selects into its status, once."""
        if (node_class.get("status") or {}).get("amis"):
            return
        groups, subnets = self._networks()
        status = {
            "amis": [{"id": self._image, "requirements": []}],
            "subnets": [{"id": s["SubnetId"], "zone": s["AvailabilityZone"]} for s in subnets],
            "securityGroups": [{"id": one["GroupId"]} for one in groups],
        }
        self._patch(f"{CLASSES}/{node_class['metadata']['name']}/status", {"status": status})

    def _user_data(self, tags: Mapping[str, str]) -> str:
        """Return what makes an AMI of Amazon Linux 2023 a node of the pool."""
        found = self._eks.describe_cluster(name=self._cluster)["cluster"]
        labels = f"--node-labels=karpenter.sh/nodepool={tags['karpenter.sh/nodepool']}"
        taints = f"--register-with-taints={UNREGISTERED['key']}:{UNREGISTERED['effect']}"
        cluster = {
            "name": self._cluster,
            "apiServerEndpoint": found["endpoint"],
            "certificateAuthority": found["certificateAuthority"]["data"],
            "cidr": "10.100.0.0/16",
        }
        config = {
            "apiVersion": "node.eks.aws/v1alpha1",
            "kind": "NodeConfig",
            "spec": {"cluster": cluster, "kubelet": {"flags": [labels, taints]}},
        }
        part = f"Content-Type: application/node.eks.aws\n\n{yaml.safe_dump(config)}"
        return (
            f"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\n{part}\n--B--\n"
        )

    def _register(self, claim: Mapping[str, Any], node: Mapping[str, Any]) -> None:
        """Give a Node the finalizer, its owner, and the labels of its NodeClaim. One without the
        taint of new nodes has to have the label of registered ones. Source: Karpenter,
        `registration.go`."""
        metadata, taints = claim["metadata"], node["spec"].get("taints") or []
        kept = [one for one in taints if one["key"] != UNREGISTERED["key"]]
        if kept == taints and "karpenter.sh/registered" not in node["metadata"]["labels"]:
            self._write_status(claim, {}, "Registered", "UnregisteredTaintNotFound")
            return
        owner = _owner("NodeClaim", metadata)
        body = _finalizers(node, FINALIZER)
        body["metadata"]["ownerReferences"] = [owner]
        labels = {**(metadata.get("labels") or {}), "karpenter.sh/registered": "true"}
        body["metadata"]["labels"] = {**labels, "karpenter.sh/initialized": "true"}
        name = node["metadata"]["name"]
        self._patch(f"{NODES}/{name}", {**body, "spec": {"taints": kept}})
        self._write_status(claim, {"nodeName": name}, "Registered", "Registered")

    def _finalize(
        self, claim: Mapping[str, Any], instance: str, node: Mapping[str, Any] | None
    ) -> None:
        """End the instance of a deleted NodeClaim, then the Node, then the NodeClaim."""
        if instance and instance not in self.ended:
            self._terminate(instance)
        if node is not None:
            path = f"{NODES}/{node['metadata']['name']}"
            self._api.delete(path)
            self._patch(path, _finalizers(node))
        self._patch(f"{CLAIMS}/{claim['metadata']['name']}", _finalizers(claim))

    def _terminate(self, instance: str) -> None:
        self.ended.append(instance)
        self._ec2.terminate_instances(InstanceIds=[instance])

    def _instances(self) -> Iterator[Any]:
        filters = [
            {"Name": "tag-key", "Values": ["karpenter.sh/nodepool"]},
            {"Name": "tag-key", "Values": ["karpenter.k8s.aws/ec2nodeclass"]},
            {"Name": "tag:eks:eks-cluster-name", "Values": [self._cluster]},
        ]
        for found in self._ec2.describe_instances(Filters=filters)["Reservations"]:
            yield from (one for one in found["Instances"] if one["State"]["Name"] not in _ENDED)

    def _list(self, path: str) -> list[Any]:
        answer = self._api.get(path).raise_for_status()
        items: list[Any] = answer.json().get("items") or []
        return items

    def _patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Patch an object; None if it is gone or has changed."""
        answer = self._api.patch(path, json=body, headers=_MERGE)
        if answer.status_code in (404, 409):
            return None
        return answer.raise_for_status().json()

    @contextlib.contextmanager
    def running(self, seconds: float = 0.5) -> Iterator["Karpenter"]:
        """Act in a thread for the time of the block, each so many seconds."""

        def work() -> None:
            while not self._stopping.wait(seconds):
                with contextlib.suppress(httpx.HTTPError):
                    self.act()

        thread = threading.Thread(target=work, name="karpenter")
        thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            thread.join()


def _drift(
    claim: Mapping[str, Any],
    pool: Mapping[str, Any],
    node_class: Mapping[str, Any],
    instance: Mapping[str, Any],
) -> str:
    """Return Karpenter's reason to replace a node; empty if it keeps it. Rules: its controller
    nodeclaim.disruption, and `isNodeClassDrifted` of its AWS provider."""
    if _hashes_differ(claim, pool, "karpenter.sh/nodepool-hash"):
        return "NodePoolDrifted"
    labels = claim["metadata"].get("labels") or {}
    requirements = pool["spec"]["template"]["spec"].get("requirements") or ()
    if not _meets(labels, requirements):
        return "RequirementsDrifted"
    if _hashes_differ(claim, node_class, "karpenter.k8s.aws/ec2nodeclass-hash"):
        return "NodeClassDrift"
    status = node_class.get("status") or {}
    if not all(status.get(one) for one in ("amis", "subnets", "securityGroups")):
        return ""  # an error of Karpenter, which replaces nothing
    images = (one for one in status.get("amis") or () if _meets(labels, one["requirements"]))
    if claim["status"].get("imageID") != next((one["id"] for one in images), None):
        return "AMIDrift"
    groups = {one["GroupId"] for one in instance["SecurityGroups"]}
    if groups != {one["id"] for one in status.get("securityGroups") or ()}:
        return "SecurityGroupDrift"
    if instance["SubnetId"] not in [one["id"] for one in status.get("subnets") or ()]:
        return "SubnetDrift"
    reserved = instance.get("CapacityReservationId")
    if labels.get("karpenter.sh/capacity-type") == "reserved" and reserved:
        known = [one["id"] for one in status.get("capacityReservations") or ()]
        return "" if reserved in known else "CapacityReservationDrift"
    return ""


def _hashes_differ(claim: Mapping[str, Any], of: Mapping[str, Any], name: str) -> bool:
    """Whether both have a hash of the same version, and another one."""
    given, wanted = (one["metadata"].get("annotations") or {} for one in (claim, of))
    version = f"{name}-version"
    if not all(key in one for key in (name, version) for one in (given, wanted)):
        return False
    return bool(given[version] == wanted[version] and given[name] != wanted[name])


def _meets(labels: Mapping[str, str], requirements: Iterable[Mapping[str, Any]]) -> bool:
    for one in requirements:
        value, values = labels.get(one["key"]), list(one.get("values") or [])
        match one["operator"]:
            case "In":
                meets = value in values
            case "NotIn":
                meets = value not in values
            case "Exists":
                meets = value is not None
            case "DoesNotExist":
                meets = value is None
            case "Gt":
                meets = value is not None and int(value) > int(values[0])
            case "Lt":
                meets = value is not None and int(value) < int(values[0])
            case _:
                raise ValueError(f"operator {one['operator']} is not supported")
        if not meets:
            return False
    return True


def _finalizers(obj: Mapping[str, Any], *added: str) -> dict[str, Any]:
    """Return a patch that sets the finalizers: without Karpenter's, or with it."""
    metadata = obj["metadata"]
    others = [one for one in metadata.get("finalizers") or () if one != FINALIZER]
    return {"metadata": {"finalizers": [*others, *added]}}


def _owner(kind: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "blockOwnerDeletion": True,
    }


def _instance_of(named: Mapping[str, Any]) -> str:
    return str(named.get("providerID") or "").rpartition("/")[2]


def _conditions(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {one["type"]: one for one in (obj.get("status") or {}).get("conditions") or ()}


def _is_ready(node: Mapping[str, Any]) -> bool:
    return bool(_conditions(node).get("Ready", {}).get("status") == "True")
