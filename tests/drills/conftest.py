"""One sandbox for all drills. Schedules and runs of provision_nodes begin when a drill says so.

A run is a minute. A second one, which a message starts beside that of a drill, would launch and
mark offerings too: the queue is consumed only in its own drill.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from leeway.manifests.configuration import StoredManifests
from leeway.manifests.in_cluster import HOME, Home, ManifestHome
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_cli.manifests.crds import crd_name, crd_of, defined_kinds
from leeway_cli.reason_codes import declared_codes
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario

from tests.cli.conftest import drop_clients
from tests.drills.night import PAGE, Night, consume_queue, path_of, shell_of
from tests.drills.nodes import table_of_drills
from tests.drills.page import wakes
from tests.drills.shell import Shell
from tests.end_to_end.conftest import daemonset, deployment, scaled_object
from tests.end_to_end.environment import Entry, Environment
from tests.end_to_end.provisioning import CLUSTER, PARAMETERS, prepare, store
from tests.end_to_end.rights import check_calls_are_granted
from tests.launch.pools import document, node_class, pool
from tests.manifests.crd_cases import CLASS, POOL, changed

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS, CLASSES = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
AL2023 = "amazon-eks-node-al2023-x86_64-standard-1.34-v20261101"
WORLD = Scenario(
    cluster=CLUSTER,
    groups=(Group("hooked", 3, terminate_hook=True), Group("plain", 3)),
    workloads=(deployment("web", 12, 1), deployment("mine-warm", 1, 1), daemonset("cni")),
)


def manifests() -> list[dict[str, Any]]:
    """What users have stored, with its mistakes. Functions read it again after 45 seconds, so it is
    there before their first run."""
    warm = {"name": "warm", "replicas": 1, "pod": {"requests": {"cpu": "10m"}}}
    broken = headroom("broken", {"buffers": "many"})
    mine = headroom("mine", {"namespace": "default", "buffers": [warm]})
    sizeless = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "sizeless", "namespace": "default"},
        "spec": {
            "scalableRef": {"kind": "Deployment", "name": "web"},
            "limits": {"nvidia.com/gpu": 1},
        },
    }
    nobody = scaled_object("nobody", "StatefulSet", "nobody")
    twins = [scaled_object(name, "Deployment", "web") for name in ("twin-a", "twin-b")]
    family = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"]}
    overlays = [
        document("NodeOverlay", name, {"weight": 5, "requirements": [family], "price": price})
        for name, price in (("overlaid-a", "1.0"), ("overlaid-b", "2.0"))
    ]
    healthy = pool("healthy", capacity=["on-demand"], only={"cpu": ["2"]})
    own = node_class(amiFamily="AL2023", amiSelectorTerms=[{"tags": {"discovery": "own"}}])
    own["metadata"]["name"] = "own"
    wrong = pool("wrong-ami", capacity=["on-demand"], only={"cpu": ["2"]})
    wrong["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "own"
    small = node_class(
        blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "1Gi"}}]
    )
    gone = node_class(amiFamily="AL2023", amiSelectorTerms=[{"id": "ami-0123456789abcdef0"}])
    misfits = []
    for name, settings in (("small-disk", small), ("gone-image", gone)):
        settings["metadata"]["name"] = name
        misfits.append(pool(name, capacity=["on-demand"], only={"cpu": ["2"]}))
        misfits[-1]["spec"]["template"]["spec"]["nodeClassRef"]["name"] = name
    dear = pool("dear", capacity=["on-demand"], only={"cpu": ["96"]})
    gated = pool("gated", capacity=["on-demand"], only={"cpu": ["2"]})
    gate = {"key": "example.com/gate", "effect": "NoSchedule"}
    gated["spec"]["template"]["spec"]["startupTaints"] = [gate]
    never = node_class(amiFamily="AL2023", amiSelectorTerms=[{"tags": {"discovery": "lost"}}])
    never["metadata"]["name"] = "lost"
    lost = pool("lost", capacity=["on-demand"], only={"cpu": ["2"]})
    lost["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "lost"
    pools = [healthy, wrong, *misfits, dear, gated, lost]
    # Pods of the groups do not run on nodes of pools.
    taint = {"key": "example.com/drill", "effect": "NoSchedule"}
    for one in pools:
        one["spec"]["template"]["spec"]["taints"] = [taint]
    cluster = document("Cluster", CLUSTER, {"launches": {"atMost": 3, "usdPerHour": 2}})
    headrooms = [nobody, broken, mine, sizeless, *twins]
    return [*headrooms, *overlays, *pools, node_class(), own, never, small, gone, cluster]


def headroom(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A Headroom."""
    metadata = {"name": name}
    return {"apiVersion": "leeway.sh/v1", "kind": "Headroom", "metadata": metadata, "spec": spec}


def own_images(sandbox: Sandbox) -> None:
    """Copy an AMI: the sandbox starts no kubelet from one that nobody has marked as its family."""
    ec2 = client("ec2", sandbox.aws_url)
    (source,) = ec2.describe_images(Filters=[{"Name": "name", "Values": [AL2023]}])["Images"]
    for name in ("own", "lost"):
        copy = {"SourceImageId": source["ImageId"], "SourceRegion": "us-east-1", "Name": name}
        image = ec2.copy_image(**copy)["ImageId"]
        ec2.create_tags(Resources=[image], Tags=[{"Key": "discovery", "Value": name}])


@pytest.fixture(scope="session")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The sandbox. At the end, every call of a function must be granted to its role."""
    options = {
        "kubernetes": ["--node-join", "1"],
        "aws": ["--schedule-speed", "0"],
        "lambda": ["--retry-delay", "0.1"],
    }
    state = tmp_path_factory.mktemp("drills")
    with Sandbox.start(WORLD, state_dir=state, parameters=PARAMETERS, options=options) as sandbox:
        consume_queue(sandbox, enabled=False)
        prepare(sandbox)
        own_images(sandbox)
        store(sandbox, *manifests())
        env = Environment(sandbox)
        yield env
        check_calls_are_granted(sandbox)
        check_alarms_have_sections(env.since(0).of("logs"))


def check_alarms_have_sections(lines: list[Entry]) -> None:
    """Check that each code of a line that an alarm counts has a section that an alarm leads to.
    Alarms count errors, and warnings but those of provision_nodes."""
    sections = {one.name: one.runbook for one in declared_codes() if one.runbook}
    counted = {
        entry["line"]["code"]
        for entry in lines
        if isinstance(entry["line"], dict) and entry["line"].get("code") in sections
        if entry["line"]["level"] == "ERROR"
        or (entry["line"]["level"] == "WARNING" and "provision" not in entry["function"])
    }
    assert counted
    assert {code: sections[code] for code in counted if not wakes(PAGE[sections[code]])} == {}


@pytest.fixture(scope="module")
def shell(env: Environment) -> Iterator[Shell]:
    """The shell of the person on call. `leeway` runs in this process: its environment is that of
    the shell."""
    found = shell_of(env.sandbox)
    before = dict(os.environ)
    os.environ.update(found.environment)
    drop_clients()
    yield found
    os.environ.clear()
    os.environ.update(before)
    drop_clients()


@pytest.fixture
def night(env: Environment, shell: Shell, request: pytest.FixtureRequest) -> Iterator[Night]:
    """The drill of the section that the test names. Its faults and pods end with it."""
    night = Night(env, shell, *path_of(request))
    yield night
    night.end()


@dataclass(frozen=True, slots=True)
class InCluster:
    """The API server, which has the manifests of the cluster."""

    http: httpx2.Client

    def create_pool(self, name: str) -> None:
        """Create a NodePool, and its node class."""
        for path, usual in ((CLASSES, CLASS), (POOLS, POOL)):
            answer = self.http.post(path, json=changed(usual, {"metadata.name": name}))
            assert answer.status_code == 201, answer.text


@pytest.fixture
def in_cluster(night: Night) -> Iterator[InCluster]:
    """The users of the cluster keep its manifests in the API server. Those of the table act, too,
    and at the end it has no others."""
    table = table_of_drills(night)
    table.put(HOME, ManifestHome(CLUSTER, 1, Home.CLUSTER))
    with closing(kubeconfig_connection(night.sandbox.kubeconfig)) as connection:
        http = connection.plain
        for kind in defined_kinds():
            assert http.post(CRDS, json=crd_of(kind)).status_code == 201
        yield InCluster(http)
        night.end()
        table.delete(HOME, cluster=CLUSTER)
        for kind in defined_kinds():
            http.delete(f"{CRDS}/{crd_name(kind)}")
    stored = StoredManifests(table)
    for one in stored.of(CLUSTER):
        if one.in_cluster:
            stored.delete_manifest(CLUSTER, one)
