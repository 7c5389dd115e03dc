"""`leeway switch` on a cluster that runs already: both ways, killed in between, with finalizers.

The API server is the cluster's, and its CRDs of Karpenter are used if it has them. EC2 and
the table are in memory.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.kubernetes.connection import Connection
from leeway.manifests.in_cluster import HOME, Home, ManifestHome, home_of
from leeway.switched import SWITCH, Buyer, Switch, switch_of
from leeway_cli.adopt.settings.objects import KubernetesObjects
from leeway_cli.kubeconfig import KubeconfigConnection
from leeway_cli.manifests.crds import crd_name, crd_of, defined_kinds
from leeway_cli.switch.run import carry_out
from leeway_cli.switch.world import LiveWorld
from leeway_sandbox.karpenter import (
    CLAIMS,
    CLASSES,
    DEPLOYMENT,
    FINALIZER,
    LEASE,
    NODECLAIMS,
    NODES,
    POOLS,
    Karpenter,
)
from leeway_sandbox.provisioning import client
from leeway_sandbox.real_cluster.target import RealCluster, read_config

from tests.conformance.conftest import GIVEN, Conformance
from tests.conformance.test_custom_resources import CRDS, MERGE, apply_crd
from tests.end_to_end.environment import until
from tests.fakes.table import TableInMemory
from tests.manifests.crd_cases import CLASS, POOL, changed

NAME = "leeway-conformance"
KARPENTERS, LEEWAYS = "i-0aaaaaaaaaaaaaaa0", "i-0bbbbbbbbbbbbbbb0"
KINDS = ("nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws")


class KilledError(Exception):
    """The command was killed."""


@dataclass
class Ec2:
    """Two instances with their tags. With `kills`, the next write of tags does not come back."""

    tags: dict[str, dict[str, str]]
    kills: bool = False
    ended: list[str] = field(default_factory=list)

    def _described(self) -> dict[str, Any]:
        return {
            "Reservations": [
                {
                    "Instances": [
                        {
                            "InstanceId": name,
                            "State": {"Name": "running"},
                            "Placement": {"AvailabilityZone": "us-east-1a"},
                            "InstanceType": "m5.large",
                            "ImageId": "ami-1",
                            "SubnetId": "subnet-1",
                            "SecurityGroups": [{"GroupId": "sg-1"}],
                            "LaunchTime": datetime.now(UTC) - timedelta(hours=1),
                            "Tags": [{"Key": k, "Value": v} for k, v in tags.items()],
                        }
                        for name, tags in self.tags.items()
                    ]
                }
            ]
        }

    def describe_instances(self, Filters: Any) -> Any:  # noqa: N803 (boto3's name)
        keys = {value for one in Filters if one["Name"] == "tag-key" for value in one["Values"]}
        (found,) = self._described()["Reservations"]
        listed = [one for one in found["Instances"] if keys <= self.tags[one["InstanceId"]].keys()]
        return {"Reservations": [{"Instances": listed}]}

    def get_paginator(self, _: str) -> Any:
        return SimpleNamespace(paginate=lambda **_: [self._described()])

    def create_tags(self, Resources: Any, Tags: Any) -> None:  # noqa: N803
        if self.kills:
            self.kills = False
            raise KilledError
        for one in Resources:
            self.tags[one] |= {tag["Key"]: tag["Value"] for tag in Tags}

    def delete_tags(self, Resources: Any, Tags: Any) -> None:  # noqa: N803
        for one in Resources:
            for tag in Tags:
                self.tags[one].pop(tag["Key"], None)

    def terminate_instances(self, InstanceIds: Any) -> None:  # noqa: N803
        self.ended += InstanceIds


@dataclass
class Switched:
    """The cluster of the test. The clock is ahead by what the command has waited."""

    http: Any
    connection: Connection
    ec2: Ec2
    karpenter: Karpenter
    table: TableInMemory = field(default_factory=TableInMemory)
    ahead: timedelta = timedelta(0)
    drained: list[str] = field(default_factory=list)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.2))
        self.ahead += timedelta(seconds=10 * seconds)
        for one in self.ec2.tags:
            self.is_ready(one)
        self.karpenter.act(self.now())

    def switch(self, to: Buyer) -> None:
        world = LiveWorld(
            cluster=NAME,
            managed=True,
            kubernetes=KubernetesObjects(self.connection),
            ec2=lambda: self.ec2,
            table=self.table,
            now=self.now,
            drain_node=self.drained.append,
            named="kube-system/karpenter",
        )
        carry_out(world, to, lambda _: None, self.sleep)

    def get(self, path: str) -> Any:
        return self.http.get(path).raise_for_status().json()

    def post(self, path: str, body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def patch(self, path: str, body: Any) -> Any:
        answer = self.http.patch(path, json=body, headers=MERGE)
        assert answer.is_success, answer.text
        return answer.json()

    def add_node(self, instance: str, labels: dict[str, str]) -> None:
        """Create the Node of an instance."""
        spec = {"providerID": f"aws:///us-east-1a/{instance}"}
        metadata = {"name": f"{NAME}-{instance}", "labels": labels}
        self.post(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})

    def is_ready(self, instance: str) -> None:
        """Say what a kubelet says, before the node controller calls the Node lost."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        conditions = {"status": {"conditions": [ready]}}
        self.patch(f"{NODES}/{NAME}-{instance}/status", conditions)

    def claims(self) -> dict[str, Any]:
        return {one["metadata"]["name"]: one for one in self.get(CLAIMS)["items"]}


@pytest.fixture
def cluster(real: RealCluster) -> Iterator[Switched]:
    """A cluster with a node of Karpenter and one of Leeway; what it had stays."""
    with closing(KubeconfigConnection(read_config(real.kubeconfig, real.context))) as connection:
        http, made = connection.plain, list[str]()
        if http.get(DEPLOYMENT).status_code == 200:
            pytest.skip("the cluster has a Deployment kube-system/karpenter")
        found = {one: http.get(f"{CRDS}/{one}").status_code == 200 for one in KINDS}
        if found[KINDS[0]] and http.get(POOLS).json().get("items"):
            pytest.skip("the cluster has NodePools")
        wanted = [crd_of(kind) for kind in defined_kinds() if crd_name(kind) in KINDS]
        tags = {f"kubernetes.io/cluster/{NAME}": "owned", "eks:eks-cluster-name": NAME}
        joined = {**tags, "aws:eks:cluster-name": NAME}
        pools = {"karpenter.sh/nodepool": NAME, "karpenter.k8s.aws/ec2nodeclass": NAME}
        own = {"leeway.sh/owner": "leeway", "leeway.sh/nodepool": NAME}
        ec2 = Ec2({KARPENTERS: {**joined, **pools}, LEEWAYS: {**joined, **own}})
        image = {"Parameter": {"Value": "ami-1"}}
        ssm = SimpleNamespace(get_parameter=lambda **_: image)
        try:
            for crd in [*wanted, NODECLAIMS]:
                if http.get(f"{CRDS}/{crd['metadata']['name']}").status_code != 200:
                    made.append(crd["metadata"]["name"])
                    apply_crd(http, crd)
            karpenter = Karpenter(http, NAME, ec2, None, ssm, version="1.36")
            yield prepared(Switched(http, connection, ec2, karpenter))
        finally:
            paths = [f"{NODES}/{NAME}-{one}" for one in (KARPENTERS, LEEWAYS)]
            claims = http.get(CLAIMS).json().get("items") or ()
            paths += [f"{CLAIMS}/{one['metadata']['name']}" for one in claims]
            for path in (*paths, f"{POOLS}/{NAME}", f"{CLASSES}/{NAME}", DEPLOYMENT, LEASE):
                http.delete(path)
                http.patch(path, json={"metadata": {"finalizers": []}}, headers=MERGE)
            for name in made:
                http.delete(f"{CRDS}/{name}")
            until(lambda: all(http.get(f"{CRDS}/{one}").status_code == 404 for one in made))


def prepared(found: Switched) -> Switched:
    found.table.put(HOME, ManifestHome(NAME, 1, Home.CLUSTER))
    found.post(CLASSES, changed(CLASS, {"metadata.name": NAME}))
    selected = {
        "amis": [{"id": "ami-1", "requirements": []}],
        "subnets": [{"id": "subnet-1", "zone": "us-east-1a"}],
        "securityGroups": [{"id": "sg-1"}],
    }
    found.patch(f"{CLASSES}/{NAME}/status", {"status": selected})
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": NAME}
    found.post(
        POOLS,
        changed(
            POOL,
            {
                "metadata.name": NAME,
                "spec.template.spec.nodeClassRef": reference,
                "spec.template.spec.requirements": [],
            },
        ),
    )
    labels = {"karpenter.sh/nodepool": NAME, "karpenter.k8s.aws/ec2nodeclass": NAME}
    for instance in (KARPENTERS, LEEWAYS):
        found.add_node(instance, {**labels, "karpenter.sh/registered": "true"})
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": f"{NAME}-x7k2p", "labels": labels},
        "spec": {"nodeClassRef": reference, "requirements": []},
    }
    found.post(CLAIMS, claim)
    launched = {"type": "Launched", "status": "True", "reason": "Launched", "message": ""}
    launched["lastTransitionTime"] = "2026-11-23T12:00:00Z"
    status = {"providerID": f"aws:///us-east-1a/{KARPENTERS}", "conditions": [launched]}
    found.patch(f"{CLAIMS}/{NAME}-x7k2p/status", {"status": status})
    found.karpenter.install()
    found.karpenter.act(found.now())
    return found


def test_nodes_go_to_leeway_and_back_and_a_killed_switch_leaves_nothing(cluster: Switched) -> None:
    first, written = f"{NAME}-x7k2p", f"{NAME}-{LEEWAYS.removeprefix('i-')}"
    before = cluster.claims()
    assert before[first]["metadata"]["finalizers"] == [FINALIZER]
    cluster.switch(Buyer.LEEWAY)
    assert cluster.claims() == before, "NodeClaims stay as they are"
    assert cluster.get(DEPLOYMENT)["spec"]["replicas"] == 0
    assert cluster.ec2.tags[KARPENTERS]["leeway.sh/owner"] == "leeway"

    cluster.ec2.kills = True
    with pytest.raises(KilledError):
        cluster.switch(Buyer.KARPENTER)
    claim = cluster.claims()[written]
    assert claim["status"]["providerID"].endswith(LEEWAYS)
    assert "finalizers" not in claim["metadata"]
    # Karpenter was started, and stopped before it registered the NodeClaim.
    cluster.patch(f"{CLAIMS}/{written}", {"metadata": {"finalizers": [FINALIZER]}})
    cluster.switch(Buyer.LEEWAY)
    assert cluster.claims() == before, "no Node names the NodeClaim of the killed switch"
    assert "karpenter.sh/nodepool" not in cluster.ec2.tags[LEEWAYS]

    cluster.switch(Buyer.KARPENTER)
    cluster.karpenter.act(cluster.now())
    found = cluster.claims()
    assert found.keys() == {first, written}
    assert all(one["metadata"]["finalizers"] == [FINALIZER] for one in found.values())
    node = cluster.get(f"{NODES}/{NAME}-{LEEWAYS}")["metadata"]
    assert node["ownerReferences"][0]["uid"] == found[written]["metadata"]["uid"]
    assert all("leeway.sh/owner" not in one for one in cluster.ec2.tags.values())
    assert written not in cluster.karpenter.drifted()
    assert (cluster.drained, cluster.ec2.ended, cluster.karpenter.began) == ([], [], [])


@pytest.mark.skipif(GIVEN not in os.environ, reason="waits for minutes, and needs a real cluster")
def test_the_command_itself_stops_karpenter_and_starts_it_again(
    cluster: Switched, env: Conformance
) -> None:
    """Its clock is that of this machine: the Lease has to be a minute old."""
    name = env.sandbox.endpoints.cluster
    table = DynamoTable(
        lambda: client("dynamodb", env.sandbox.aws_url), env.sandbox.environment()["LEEWAY_TABLE"]
    )
    home = home_of(table, name)
    table.put(HOME, ManifestHome(name, home.version + 1, Home.CLUSTER))
    karpenters = cluster.claims()

    def leeway(direction: str) -> Any:
        command = ["switch", name, direction, "karpenter", "--yes", "-o", "json"]
        run = "from leeway_cli.main import main; main()"
        variables = {**os.environ, **env.sandbox.environment()}
        done = subprocess.run(
            [sys.executable, "-c", run, *command],
            env={**variables, "KUBECONFIG": str(env.sandbox.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    try:
        with cluster.karpenter.running():
            found = leeway("--from")
            assert (found["to"], found["done"], found["steps"]) == ("leeway", True, [])
            assert cluster.get(DEPLOYMENT)["spec"]["replicas"] == 0
            switch = switch_of(table, name)
            assert switch is not None
            assert switch.buyer is Buyer.LEEWAY
            leeway("--to")
            assert cluster.get(DEPLOYMENT)["spec"]["replicas"] == switch.replicas == 1
    finally:
        last = switch_of(table, name)
        version = last.version + 1 if last is not None else 1
        table.put(SWITCH, Switch(name, version, Buyer.LEEWAY, datetime.now(UTC)))
        table.put(HOME, ManifestHome(name, home_of(table, name).version + 1, home.home))
    assert cluster.claims() == karpenters
    assert (cluster.karpenter.began, cluster.ec2.ended) == ([], [])
