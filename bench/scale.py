"""Measures what limits a stack: the functions by clusters and nodes, in a settled minute and in a
storm, and the quotas that the names of clusters fill.

The code of the functions runs here as in Lambda, each in a process of its own, and calls a server
of prepared answers (bench.canned_account), because the sandbox cannot hold 50,000 instances.
"""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import boto3
import yaml
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.manifests.configuration import StoredManifest, StoredManifests
from leeway.manifests.reading import read_manifests
from leeway.selection.offers.survey import compressed
from leeway_cli.selection.sources import sandbox_survey
from leeway_sandbox.template import read_template
from rich.console import Console
from rich.table import Table

from bench.canned_account import INSTANCE
from bench.functions import FULL_VCPU_MB
from bench.provision import manifests
from bench.provision_read import served
from bench.scale_run import RUNS, cluster_name

ROOT = Path(__file__).parents[1]
SIZES = ((60, 5_000), (300, 5_000), (60, 50_000))
"""Clusters, and nodes of all of them."""


QUOTAS = {"policies": 10_240, "variables": 4_096, "parameter": 4_096}
"""Characters of all inline policies of a role, without whitespace; bytes of a function's variables;
bytes of a parameter. Source: IAM user guide, "IAM and AWS STS quotas"; Lambda developer guide,
"Lambda quotas"; CloudFormation user guide, "Understand CloudFormation quotas"."""

NAME_LENGTHS = (12, 20, 30, 50)


def main() -> None:
    """Print how many clusters the quotas allow, and the runs of each function."""
    console = Console()
    console.print(_quotas())
    for clusters, nodes in SIZES:
        console.print(_runs(clusters, nodes))


def _quotas() -> Table:
    table = Table(title="Clusters of a stack, by the length of their names")
    columns = ("length", "policies of a role", "variables of a function", "parameter ClusterNames")
    for column in columns:
        table.add_column(column, justify="right")
    for length in NAME_LENGTHS:
        few, many = (_filled(length, count) for count in (1, 101))
        most = [
            min(
                int(1 + (quota - size) / ((many[what][of] - size) / 100))
                for of, size in few[what].items()
                if many[what][of] > size
            )
            for what, quota in QUOTAS.items()
        ]
        table.add_row(str(length), *map(str, most))
    return table


def _filled(length: int, clusters: int) -> dict[str, dict[str, int]]:
    """Return how much of each quota each role or function of a stack with so many clusters fills.
    It grows by the same with each name."""
    names = ",".join(f"{number:0{length}}" for number in range(clusters))
    found = read_template(ROOT / "template.yaml", {"ClusterNames": names})
    return {
        "policies": {
            of: len(re.sub(r"\s", "", json.dumps([p["PolicyDocument"] for p in policies])))
            for of, role in found.stack.roles.items()
            for policies in [role.properties["Policies"]]
        },
        "variables": {
            one.name: sum(len(name) + len(value) for name, value in one.environment.items())
            for one in found.functions
        },
        "parameter": {"": len(names)},
    }


def _runs(clusters: int, nodes: int) -> Table:
    """Run all functions for a stack of this size, one after the other."""
    table = Table(title=f"{clusters} clusters, {nodes:,} nodes")
    columns = ("run", "of", "CPU s", "ms each", "peak MB", "calls to the table", "others")
    for column in (*columns, "KB from the table", "KB from API servers"):
        table.add_column(column, justify="right")
    memory = {
        one.code.name: one.memory for one in read_template(ROOT / "template.yaml", {}).functions
    }
    with served("bench.canned_account", clusters, nodes) as port:
        url = f"http://127.0.0.1:{port}"
        _prepare(url, clusters)
        for run in RUNS:
            command = [sys.executable, "-m", "bench.scale_run", run, url]
            arguments = [*command, str(clusters), str(nodes)]
            done = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            cpu, of = found["cpu"], found["of"]
            share = memory[run.partition(":")[0]] / FULL_VCPU_MB
            table.add_row(
                run.replace("_", " ").replace(":", ", "),
                f"{of:,}",
                f"{cpu:.2f} ({cpu / min(share, 1):.1f} in Lambda)",
                f"{1000 * cpu / of:.1f}",
                str(found["peak"]),
                *(f"{found[one]:,.0f}" for one in ("table", "others", "table_kb", "api_kb")),
            )
            Console(stderr=True).print(f"{clusters} clusters, {nodes} nodes, {run}: {found}")
    return table


def _prepare(url: str, clusters: int) -> None:
    """Store a catalog, and for each cluster the pool of its nodes.
    They are as it says, and may be of one type only: so nothing is given back."""
    session = boto3.session.Session("bench", "bench", region_name="us-east-1")
    dynamodb = session.client("dynamodb", endpoint_url=url)
    table = DynamoTable(lambda: dynamodb, "leeway")
    table.put(SURVEY, compressed(sandbox_survey()), region="us-east-1")
    writing = StoredManifests(table)
    for number in range(clusters):
        node_class, pool, _ = manifests("bench")
        node_class["spec"] |= {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"id": "ami-0123456789abcdef0"}],
            "subnetSelectorTerms": [{"id": "subnet-0123456789abcdef0"}],
            "securityGroupSelectorTerms": [{"id": "sg-0123456789abcdef0"}],
        }
        pool["metadata"]["name"] = "web"
        rules = {"node.kubernetes.io/instance-type": INSTANCE}
        rules["karpenter.sh/capacity-type"] = "on-demand"
        pool["spec"]["template"]["spec"]["requirements"] = [
            {"key": key, "operator": "In", "values": [value]} for key, value in rules.items()
        ]
        for one in read_manifests(yaml.safe_dump_all([node_class, pool]), "bench").written:
            now = datetime.now(UTC)
            stored = StoredManifest(one.kind.resource, "", one.name, one.body, 1, "bench", now)
            writing.write(cluster_name(number), stored, replaces=0)
