"""Measures provisioning: from the creation of a pod to the CreateFleet call, and whole runs.

The first part is a sandbox with deployed functions. In the second part the functions' code runs in
a process of its own, with the sandbox's AWS and an API server of prepared bytes.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import yaml
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.manifests.configuration import StoredManifest, StoredManifests
from leeway.manifests.reading import read_manifests
from leeway.selection.offers.survey import compressed
from leeway_cli.selection.sources import sandbox_survey
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import DISCOVERY_TAG, NODE_ROLE, Scenario, pod_spec
from lightkube import Client, KubeConfig
from lightkube.codecs import from_dict
from rich.console import Console
from rich.table import Table

from bench import provision_read
from bench.canned_api import PODS_PER_NODE
from bench.statistics import percentile

SAMPLES = 30
PENDING = 500
REPEATS = 3
WARM_UP = 3
CLUSTER, REGION = "bench", "us-east-1"
SMALL = {"key": "bench", "value": "small", "effect": "NoSchedule"}
WAIT_TIMEOUT = 60.0
BETWEEN = 4.0
"""Seconds between two samples: the instance of the last one has joined, and no burst continues."""


def manifests(cluster: str) -> list[dict[str, Any]]:
    """Return a pool of small nodes for `small` pods, a pool of all others, and their node class."""
    terms = [{"tags": {DISCOVERY_TAG: cluster}}]
    node_class = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "role": NODE_ROLE,
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": terms,
            "securityGroupSelectorTerms": terms,
        },
    }
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    rules = {
        "kubernetes.io/arch": ["amd64"],
        "karpenter.sh/capacity-type": ["spot", "on-demand"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
    }
    requirements = [{"key": k, "operator": "In", "values": v} for k, v in rules.items()]
    small = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["2"]}
    pools = []
    for name, more in (("general", {}), ("small", {"taints": [SMALL]})):
        own = [*requirements, *([small] if name == "small" else [])]
        spec = {"nodeClassRef": reference, "requirements": own, **more}
        pools.append(
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodePool",
                "metadata": {"name": name},
                "spec": {"template": {"spec": spec}},
            }
        )
    return [node_class, *pools]


@contextmanager
def sandbox_with_pools(
    folder: Path, documents: Sequence[dict[str, Any]], speed: int = 0
) -> Iterator[Sandbox]:
    """Run a sandbox without nodes, with these manifests and a catalog. Its schedules run on
    command, or at a speed: 1 is real time."""
    options = {"kubernetes": ["--node-join", "1"], "aws": ["--schedule-speed", str(speed)]}
    with Sandbox.start(Scenario(CLUSTER, ()), state_dir=folder, options=options) as sandbox:
        stock(sandbox, documents)
        yield sandbox


def stock(sandbox: Sandbox, documents: Sequence[dict[str, Any]]) -> None:
    """Store a catalog, and manifests of the cluster."""
    client = _client(sandbox, "dynamodb")
    table = DynamoTable(lambda: client, sandbox.environment()["LEEWAY_TABLE"])
    table.put(SURVEY, compressed(sandbox_survey()), region=REGION)
    writing = StoredManifests(table)
    for one in read_manifests(yaml.safe_dump_all(documents), "bench").written:
        resource, now = one.kind.resource, datetime.now(UTC)
        stored = StoredManifest(resource, "", one.name, one.body, 1, "bench", now)
        writing.write(CLUSTER, stored, replaces=0)


def delays(sandbox: Sandbox, samples: int) -> list[float]:
    """Create pods one after the other that need a node each; return the seconds from the request
    to create a pod to the end of the CreateFleet call."""
    sandbox.write_kubeconfig()
    (watch,) = [one["name"] for one in sandbox.schedules() if one["name"].endswith("watch-pods")]
    sandbox.fire(watch)
    config = KubeConfig.from_file(sandbox.kubeconfig)
    with Client(config, trust_env=False) as kube:
        # The first pods start the functions.
        found = [_delay(sandbox, kube, number) for number in range(WARM_UP + samples)]
    return found[WARM_UP:]


def _delay(sandbox: Sandbox, kube: Client, number: int) -> float:
    before, began = len(_fleets(sandbox)), time.time()
    kube.create(from_dict(pending_pod(number)))
    until = time.monotonic() + WAIT_TIMEOUT
    while len(_fleets(sandbox)) == before:
        if time.monotonic() > until:
            raise TimeoutError("no fleet was requested for a pod")
        time.sleep(0.05)
    time.sleep(BETWEEN)
    return float(_fleets(sandbox)[before]["at"]) - began


def pending_pod(number: int) -> dict[str, Any]:
    """Return a pod that needs a small node of its own."""
    toleration = {"key": SMALL["key"], "operator": "Exists"}
    spec = pod_spec(cpu="1500m", grace=1)["spec"] | {
        "tolerations": [toleration],
        "nodeSelector": {"karpenter.sh/nodepool": "small"},
    }
    metadata = {"name": f"pod-{number}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _fleets(sandbox: Sandbox) -> list[dict[str, Any]]:
    return [entry for entry in sandbox.journal() if entry["kind"] == "fleet"]


def run_once(sandbox: Sandbox, nodes: int) -> dict[str, Any]:
    """Run the buyer in a process of its own for a cluster of this size, with the sandbox's AWS."""
    environment = {**os.environ, **sandbox.sam_environment()["ProvisionNodesFunction"]}
    with provision_read.canned_cluster(nodes) as port:
        arguments = [sys.executable, "-m", "bench.provision_run", port, str(PENDING)]
        done = subprocess.run(
            arguments, check=True, stdout=subprocess.PIPE, text=True, env=environment
        )
    measured: dict[str, Any] = json.loads(done.stdout)
    _forget_launches(sandbox)
    return measured


def _forget_launches(sandbox: Sandbox) -> None:
    """Delete the launch intents and end the instances, so that the next run launches as many."""
    dynamodb, table = _client(sandbox, "dynamodb"), sandbox.environment()["LEEWAY_TABLE"]
    items = dynamodb.query(
        TableName=table,
        KeyConditionExpression="pk = :launches",
        ExpressionAttributeValues={":launches": {"S": f"LAUNCH#{CLUSTER}"}},
    )["Items"]
    for item in items:
        dynamodb.delete_item(TableName=table, Key={name: item[name] for name in ("pk", "sk")})
    ec2 = _client(sandbox, "ec2")
    named = [name for fleet in _fleets(sandbox) for name in fleet["instances"]]
    if named:
        ec2.terminate_instances(InstanceIds=named)


def _client(sandbox: Sandbox, service: str) -> Any:
    environment = sandbox.environment()
    return boto3.client(
        service,
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        region_name=REGION,
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


def main() -> None:
    """Measure everything, and print the tables."""
    console = Console()
    runs = Table(title=f"Runs of the buyer, {PODS_PER_NODE} pods per node: wall / CPU seconds")
    columns = ("nodes", "first, nothing pending", f"warm, {PENDING} pending", "launched")
    for column in (*columns, "again, nodes on the way", "peak"):
        runs.add_column(column, justify="right")
    with (
        TemporaryDirectory() as folder,
        sandbox_with_pools(Path(folder), manifests(CLUSTER)) as sandbox,
    ):
        console.print(_delay_table(delays(sandbox, SAMPLES)))
        for nodes in provision_read.SIZES:
            _forget_launches(sandbox)
            some = [run_once(sandbox, nodes) for _ in range(REPEATS)]
            launched = max(int(one["launching"]["launched"]) for one in some)
            cold, warm, again = (_medians(some, what) for what in ("cold", "launching", "again"))
            peak = max(one["peak"] for one in some)
            runs.add_row(f"{nodes:,}", cold, warm, str(launched), again, f"{peak} MB")
    console.print(runs)
    provision_read.main()


def _delay_table(found: Sequence[float]) -> Table:
    table = Table(title=f"From the creation of a pod to CreateFleet: {len(found)} pods")
    for name in ("p50", "p99", "longest"):
        table.add_column(name, justify="right")
    table.add_row(*(f"{percentile(found, at):.2f} s" for at in (0.5, 0.99, 1)))
    return table


def _medians(some: Sequence[Mapping[str, Any]], what: str) -> str:
    return " / ".join(
        f"{percentile([one[what][unit] for one in some], 0.5):.2f}" for unit in ("wall", "cpu")
    )
