"""`leeway switch` against the sandbox's AWS and API server, beside a small Karpenter.

Time is that of the sandbox, and each wait of the command moves a clock ahead instead.
"""

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from leeway.admission.record import ADMISSION
from leeway.manifests.in_cluster import HOME, Home, ManifestHome
from leeway.switched import Buyer, switch_of
from leeway_cli import main
from leeway_cli.adopt.settings.objects import KubernetesObjects
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_cli.manifests.crds import crd_of, defined_kinds
from leeway_cli.switch.plan import plan_switch
from leeway_cli.switch.run import carry_out
from leeway_cli.switch.world import LiveWorld
from leeway_sandbox.karpenter import CLAIMS, FINALIZER, NODES, POOLS, Karpenter
from leeway_sandbox.provisioning import provision_aws
from leeway_sandbox.scenario import Scenario, demo_scenario

from tests.adopt.world import World, running_world
from tests.aws.stored import table_in
from tests.cli.conftest import drop_clients

NAME = "demo"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEEWAY = {"leeway.sh/owner": "leeway", "leeway.sh/nodepool": "flexible"}


@dataclass
class Beside:
    """A cluster that Karpenter runs, with two nodes. `ahead` is how far the clock of the command
    is ahead; Karpenter renews its Lease by it."""

    world: World
    karpenter: Karpenter
    kubernetes: KubernetesObjects
    kubeconfig: Path
    ahead: timedelta = timedelta(0)
    drained: list[str] = field(default_factory=list)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def sleep(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=10 * seconds)
        self.karpenter.act(self.now())

    def live(self) -> LiveWorld:
        return LiveWorld(
            cluster=NAME,
            managed=True,
            kubernetes=self.kubernetes,
            ec2=partial(self.world.aws.client, "ec2"),
            table=table_in(self.world.aws),
            now=self.now,
            drain_node=self.drain,
        )

    def drain(self, node: str) -> None:
        """What `leeway terminate` does in the end; its own tests show the rest."""
        self.drained.append(node)
        instance = self.get(f"{NODES}/{node}")["spec"]["providerID"].rpartition("/")[2]
        self.world.aws.client("ec2").terminate_instances(InstanceIds=[instance])

    def switch(self, to: Buyer) -> None:
        carry_out(self.live(), to, lambda _: None, self.sleep)

    def tags(self, instance: str) -> dict[str, str]:
        found = self.world.aws.client("ec2").describe_instances(InstanceIds=[instance])
        return {
            one["Key"]: one["Value"] for one in found["Reservations"][0]["Instances"][0]["Tags"]
        }

    def get(self, path: str) -> Any:
        return self.world.kubernetes.api.get(path).json()

    def joins(self, instance: str) -> None:
        """Wait until the node of an instance is Ready, and set it up as admit_node does."""
        live = self.world.kubernetes
        node = live.until(lambda: self.live().read().nodes.get(instance, ""))
        live.until(lambda: live.is_ready(node))
        machine = {"category": "m", "generation": "5", "family": "m5", "cpu": "4"}
        labels = {f"karpenter.k8s.aws/instance-{name}": value for name, value in machine.items()}
        labels["karpenter.k8s.aws/ec2nodeclass"] = "default"
        labels["karpenter.sh/registered"] = "true"
        live.patch(f"{NODES}/{node}", {"metadata": {"labels": labels}, "spec": {"taints": None}})

    def resolve_class(self, like: Any) -> None:
        """Write into the status of the class what an instance was launched with."""
        status = {
            "amis": [{"id": like["ImageId"], "requirements": []}],
            "subnets": [{"id": like["SubnetId"], "zone": "us-east-1a"}],
            "securityGroups": [{"id": one["GroupId"]} for one in like["SecurityGroups"]],
        }
        path = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/default/status"
        answer = self.world.kubernetes.patch(path, {"status": status})
        assert answer.status_code == 200, answer.text

    def settle(self) -> None:
        """Let Karpenter act until each of its nodes is registered."""
        self.world.kubernetes.until(self._registered)

    def _registered(self) -> bool:
        self.karpenter.act(self.now())
        nodes = [one["metadata"].get("finalizers") or () for one in self.get(NODES)["items"]]
        claims = self.get(CLAIMS)["items"]
        return len(nodes) >= len(claims) and all(FINALIZER in one for one in nodes)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    with running_world(tmp_path_factory.mktemp("world")) as world:
        aws, live = world.aws, world.kubernetes
        world.cluster(NAME)
        world.stack("leeway", ClusterNames=NAME)
        aws.control("PUT", "links", {"kubernetes": {NAME: str(live.control.base_url)}})
        provision_aws(Scenario(cluster=NAME, groups=(), workloads=()), aws.url)
        table_in(aws).put(HOME, ManifestHome(NAME, 1, Home.CLUSTER))
        for kind in defined_kinds():
            live.create(DEFINITIONS, crd_of(kind))
        kubeconfig = live.kubeconfig()
        api = httpx2.Client(
            base_url=live.url,
            headers=live.api.headers,
            verify=ssl.create_default_context(cafile=live.ca),
        )
        connection = kubeconfig_connection(kubeconfig, None)
        ec2, eks, ssm = map(aws.client, ("ec2", "eks", "ssm"))
        karpenter = Karpenter(api, NAME, ec2, eks, ssm, version="1.34")
        karpenter.install()
        classes = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
        live.until(lambda: live.api.get(classes).status_code == 200)
        live.until(lambda: live.api.get(POOLS).status_code == 200)
        pool = demo_scenario(0, 3, of_pools=1).pools[0]
        for manifest in pool.manifests:
            path = POOLS if manifest["kind"] == "NodePool" else classes
            live.create(path, dict(manifest))
        found = Beside(world, karpenter, KubernetesObjects(connection), kubeconfig)
        for number in range(2):
            karpenter.add_claim(f"flexible-{number}", pool.manifests[1]["metadata"]["name"])
        found.settle()
        yield found
        connection.close()
        api.close()


def test_nodes_go_to_leeway_and_back(beside: Beside) -> None:
    table, instances = table_in(beside.world.aws), [*beside.karpenter.began]
    before = beside.get(CLAIMS)["items"]
    plan = plan_switch(beside.live().read(), Buyer.LEEWAY)
    assert plan.refusals == ()
    assert [one.do.value for one in plan.steps] == [
        "name-karpenter",
        "scale",
        "wait",
        "name-leeway",
        "record",
        "tag",
    ]
    beside.switch(Buyer.LEEWAY)
    for one in instances:
        assert LEEWAY.items() <= beside.tags(one).items()
        recorded = table.get(ADMISSION, cluster=NAME, instance=one)
        assert recorded is not None
        assert recorded.launch is not None
    assert beside.get(CLAIMS)["items"] == before, "NodeClaims stay as they are"
    assert plan_switch(beside.live().read(), Buyer.LEEWAY).steps == ()

    # Meanwhile Leeway launches a node.
    own = {"leeway.sh/owner": "leeway", "leeway.sh/nodepool": "flexible"}
    cluster = {"eks:eks-cluster-name": NAME, f"kubernetes.io/cluster/{NAME}": "owned"}
    labels = {"karpenter.sh/nodepool": "flexible"}
    launched = beside.karpenter.start_instance("own", {**own, **cluster, **labels})
    new = launched["InstanceId"]
    ec2 = beside.world.aws.client("ec2")
    ec2.delete_tags(Resources=[new], Tags=[{"Key": "karpenter.sh/nodepool"}])
    beside.joins(new)
    beside.resolve_class(launched)
    assert new not in beside.live().read().unfit
    beside.switch(Buyer.KARPENTER)
    assert beside.drained == []
    assert all("leeway.sh/owner" not in beside.tags(one) for one in [*instances, new])
    assert beside.tags(new)["karpenter.k8s.aws/ec2nodeclass"] == "default"
    switch = switch_of(table, NAME)
    assert switch is not None
    assert (switch.buyer, switch.replicas) == (Buyer.KARPENTER, 1)
    beside.settle()
    kept = {one["metadata"]["name"]: one for one in beside.get(CLAIMS)["items"]}
    assert len(kept) == 3
    assert all(kept[one["metadata"]["name"]]["spec"] == one["spec"] for one in before)
    assert (beside.karpenter.began, beside.karpenter.ended) == (instances, [])
    nodes = beside.get(NODES)["items"]
    assert len(nodes) == 3
    assert not any(one["spec"].get("unschedulable") for one in nodes)
    assert beside.karpenter.drifted() == {}, "Karpenter would replace each node after the switch"


def test_a_node_that_karpenter_cannot_keep_is_drained(beside: Beside) -> None:
    beside.switch(Buyer.LEEWAY)
    groups = [{"GroupId": "sg-newer"}]
    beside.resolve_class({"ImageId": "ami-newer", "SubnetId": "", "SecurityGroups": groups})
    (orphan,) = beside.karpenter.began[:1]
    claims = beside.live().read().claims
    path = next(f"{CLAIMS}/{one.name}" for one in claims if one.instance == orphan)
    beside.world.kubernetes.patch(path, {"metadata": {"finalizers": []}})
    node = beside.live().read().nodes[orphan]
    beside.world.kubernetes.patch(f"{NODES}/{node}", {"metadata": {"ownerReferences": []}})
    beside.world.kubernetes.api.delete(path)
    beside.switch(Buyer.KARPENTER)
    assert beside.drained == [node]
    assert beside.karpenter.ended == []
    assert {*beside.karpenter.drifted().values()} == {"AMIDrift"}, "the class has another AMI"


def test_karpenter_ends_a_node_that_is_deleted_after_it_has_it_back(beside: Beside) -> None:
    beside.karpenter.act(beside.now())
    seen = beside.live().read()
    instance = next(one.instance for one in seen.claims if one.taken and one.joined)
    name = seen.nodes[instance]
    beside.world.kubernetes.api.delete(f"{NODES}/{name}")

    def is_gone() -> bool:
        beside.karpenter.act(beside.now())
        return all(one["metadata"]["name"] != name for one in beside.get(NODES)["items"])

    beside.world.kubernetes.until(is_gone)
    assert beside.karpenter.ended == [instance]
    assert instance not in {one.instance for one in beside.live().read().claims}


def test_the_command_prints_its_plan_and_refuses_in_one_line(
    beside: Beside, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {
        "AWS_ENDPOINT_URL": beside.world.aws.url,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "KUBECONFIG": str(beside.kubeconfig),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "LEEWAY_TABLE"):
        monkeypatch.delenv(name, raising=False)
    drop_clients()

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run(["switch", *arguments])
        found = capsys.readouterr()
        return code, found.out, found.err

    assert run(NAME)[2] == "leeway: expected one of --from karpenter and --to karpenter.\n"
    assert "--deployment" in run(NAME, "--to", "karpenter", "--deployment", "karpenter")[2]
    beside.karpenter.act()  # the command itself has the clock of this machine
    code, out, err = run(NAME, "--from", "karpenter", "--dry-run", "-o", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["to"], document["done"]) == ("leeway", False)
    code, out, err = run(NAME, "--to", "karpenter", "--deployment", "kube-system/missing")
    assert code == 1
    assert "no Deployment of Karpenter" in err
    assert "Nothing was changed" in err
    code, out, err = run(NAME, "--to", "karpenter")
    assert code == 1, "nobody can be asked"
    assert "--yes" in err
    drop_clients()
