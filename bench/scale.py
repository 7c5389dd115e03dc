"""Measures what limits a stack: `reconcile` by clusters and nodes, and computes the quotas that the
names of clusters fill.

`reconcile` reads all instances of the region each minute, so it meets the number of nodes first. It
runs here as in Lambda, in a process of its own: DynamoDB and Auto Scaling are those of the sandbox,
EC2 is a server of prepared pages, because the sandbox cannot hold 50,000 instances. The instances
are as EKS has them: twenty tags, three network interfaces with ten addresses each.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from leeway_sandbox.access import new_token
from leeway_sandbox.template import parse_template, read_template
from rich.console import Console
from rich.table import Table

from bench.canned_api import PODS_PER_NODE, canned_node, canned_pod, node_name
from bench.functions import FULL_VCPU_MB
from bench.provision_read import connection_of, served
from bench.statistics import peak_mb

ROOT = Path(__file__).parents[1]
SIZES = ((1, 50), (60, 1_200), (1, 5_000), (10, 50_000))
"""Clusters, and nodes of all of them."""

PAGE = 1_000
QUOTAS = {"policies": 10_240, "variables": 4_096, "parameter": 4_096}
"""Characters of all inline policies of a role, without whitespace; bytes of a function's variables;
bytes of a parameter. Source: IAM user guide, "IAM and AWS STS quotas"; Lambda developer guide,
"Lambda quotas"; CloudFormation user guide, "Understand CloudFormation quotas"."""

NAME_LENGTHS = (12, 20, 30, 50)

MEMORY_MB = 512
"""The default of ReconcileMemorySize."""


def main() -> None:
    """Print how many clusters the quotas allow, and the runs of reconcile."""
    console = Console()
    console.print(_quotas())
    console.print(_runs())


def _quotas() -> Table:
    table = Table(title="Clusters of a stack, by the length of their names")
    columns = ("length", "policies of a role", "variables of a function", "parameter ClusterNames")
    for column in columns:
        table.add_column(column, justify="right")
    for length in NAME_LENGTHS:
        few, many = (_filled(length, count) for count in (1, 101))
        most = [
            int(1 + (quota - few[what]) / ((many[what] - few[what]) / 100))
            for what, quota in QUOTAS.items()
        ]
        table.add_row(str(length), *map(str, most))
    return table


def _filled(length: int, clusters: int) -> dict[str, int]:
    """Return how much of each quota a stack with so many clusters fills. It grows by the same with
    each name."""
    names = ",".join(f"{number:0{length}}" for number in range(clusters))
    found = read_template(ROOT / "template.yaml", {"ClusterNames": names})
    policies = [json.dumps(role.properties["Policies"]) for role in found.stack.roles.values()]
    return {
        "policies": max(len(re.sub(r"\s", "", one)) for one in policies),
        "variables": max(
            sum(len(name) + len(value) for name, value in one.environment.items())
            for one in found.functions
        ),
        "parameter": len(names),
    }


def _runs() -> Table:
    table = Table(title="A settled minute of reconcile, in a process of its own")
    columns = (
        "clusters",
        "nodes",
        "CPU s",
        f"s at {MEMORY_MB} MB",
        "peak MB",
        "calls to the table",
        "others",
        "KB from the table",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for clusters, nodes in SIZES:
        with served("bench.scale", "ec2", clusters, nodes) as port:
            command = [sys.executable, "-m", "bench.scale", "run", port, str(clusters)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        seconds = found["cpu"] * FULL_VCPU_MB / MEMORY_MB
        table.add_row(
            f"{clusters:,}",
            f"{nodes:,}",
            f"{found['cpu']:.1f}",
            f"{seconds:.0f}",
            str(found["peak"]),
            *(f"{found[one]:,.0f}" for one in ("table", "others", "kb")),
        )
    return table


def _run(port: str, clusters: int) -> dict[str, float]:
    """Run reconcile twice: the first run writes the index, the second one is measured."""
    with TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        new_token(token)
        aws = [sys.executable, "-m", "leeway_sandbox.aws", "--control-token", str(token)]
        with subprocess.Popen(aws, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                url = json.loads(process.stdout.readline())["url"]
                return _runs_with(url, port, clusters)
            finally:
                process.terminate()


def _runs_with(url: str, port: str, clusters: int) -> dict[str, float]:
    names = ",".join(_name(number) for number in range(clusters))
    os.environ |= {
        "AWS_ENDPOINT_URL": url,
        "AWS_ENDPOINT_URL_EC2": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
        "LEEWAY_ACCOUNT": "123456789012",
        "LEEWAY_RETIRE_NODE": "leeway-retire-node",
        "LEEWAY_ADMIT_NODE": "leeway-admit-node",
        "LEEWAY_TABLE": "leeway",
        "LEEWAY_CLUSTERS": names,
        "POWERTOOLS_METRICS_NAMESPACE": "Leeway",
        "POWERTOOLS_SERVICE_NAME": "leeway",
    }
    from leeway.reconciliation import reconcile
    from leeway.reconciliation.reconcile import ReconcileRequest
    from leeway.wiring import clusters as clusters_of
    from leeway.wiring import reconcile as wiring
    from leeway.wiring.clients import client, session

    calls: Counter[str] = Counter()
    read = Counter[str]()

    def count(http_response: Any, model: Any, **_: object) -> None:
        service = model.service_model.service_name
        calls[service] += 1
        read[service] += len(http_response.content)

    # Clients copy the handlers of their session.
    session().events.register("after-call", count)
    _create_table(client("dynamodb"))
    connection = connection_of(os.environ["AWS_ENDPOINT_URL_EC2"])
    opened = SimpleNamespace(get=lambda _: connection)
    for module in (wiring, clusters_of):
        vars(module)["connections"] = lambda: opened
    # The sandbox answers one call at a time, and callers that wait would give up.
    reconcile.CLUSTER_CONCURRENCY = 1
    reconciling = wiring.reconciliation()
    reconciling.run(ReconcileRequest())
    calls.clear()
    read.clear()
    began = time.process_time()
    for report in reconciling.run(ReconcileRequest()):
        assert not report.problems, report.problems
    cpu = time.process_time() - began
    table = calls["dynamodb"]
    return {
        "cpu": cpu,
        "peak": peak_mb(),
        "table": table,
        "others": calls.total() - table,
        "kb": read["dynamodb"] / 1024,
    }


def _create_table(dynamodb: Any) -> None:
    template = parse_template((ROOT / "template.yaml").read_text())
    properties = template["Resources"]["Table"]["Properties"]
    names = ("AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes", "KeySchema")
    dynamodb.create_table(TableName="leeway", **{name: properties[name] for name in names})


def _name(number: int) -> str:
    return f"cluster-{number:03}"


def _instance(number: int, cluster: str) -> str:
    """An instance as DescribeInstances has it, 18 KB."""
    instance = f"i-{number:017x}"
    tags = {
        f"kubernetes.io/cluster/{cluster}": "owned",
        "aws:eks:cluster-name": cluster,
        "eks:cluster-name": cluster,
        "eks:eks-cluster-name": cluster,
        "leeway.sh/owner": "leeway",
        "leeway.sh/nodepool": "web",
        **{f"example.com/team-{n}": f"platform-{n}" for n in range(14)},
    }
    interfaces = "".join(_interface(number, card) for card in range(3))
    tag_set = "".join(f"<item><key>{k}</key><value>{v}</value></item>" for k, v in tags.items())
    volumes = "".join(
        f"<item><deviceName>/dev/xvd{letter}</deviceName><ebs><volumeId>vol-{number:017x}</volumeId>"
        "<status>attached</status><attachTime>2026-11-20T09:00:00.000Z</attachTime>"
        "<deleteOnTermination>true</deleteOnTermination></ebs></item>"
        for letter in "ab"
    )
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return (
        f"<item><reservationId>r-{number:017x}</reservationId><ownerId>123456789012</ownerId>"
        f"<groupSet/><instancesSet><item><instanceId>{instance}</instanceId>"
        "<imageId>ami-0123456789abcdef0</imageId>"
        "<instanceState><code>16</code><name>running</name></instanceState>"
        f"<privateDnsName>ip-{address.replace('.', '-')}.ec2.internal</privateDnsName><dnsName/>"
        "<reason/><amiLaunchIndex>0</amiLaunchIndex><productCodes/>"
        "<instanceType>m5.2xlarge</instanceType><launchTime>2026-11-20T09:00:00.000Z</launchTime>"
        "<placement><availabilityZone>us-east-1a</availabilityZone><groupName/>"
        "<tenancy>default</tenancy></placement><monitoring><state>disabled</state></monitoring>"
        "<subnetId>subnet-0123456789abcdef0</subnetId><vpcId>vpc-0123456789abcdef0</vpcId>"
        f"<privateIpAddress>{address}</privateIpAddress><sourceDestCheck>true</sourceDestCheck>"
        "<groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>nodes</groupName></item>"
        "</groupSet><architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType>"
        "<rootDeviceName>/dev/xvda</rootDeviceName>"
        f"<blockDeviceMapping>{volumes}</blockDeviceMapping>"
        "<instanceLifecycle>spot</instanceLifecycle><virtualizationType>hvm</virtualizationType>"
        f"<clientToken>fleet-{number}</clientToken><tagSet>{tag_set}</tagSet>"
        f"<hypervisor>xen</hypervisor><networkInterfaceSet>{interfaces}</networkInterfaceSet>"
        "<ebsOptimized>true</ebsOptimized><enaSupport>true</enaSupport>"
        "<cpuOptions><coreCount>4</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>"
        "<metadataOptions><state>applied</state><httpTokens>required</httpTokens>"
        "<httpPutResponseHopLimit>2</httpPutResponseHopLimit></metadataOptions>"
        "</item></instancesSet></item>"
    )


def _interface(number: int, card: int) -> str:
    addresses = "".join(
        f"<item><privateIpAddress>10.0.{card}.{n}</privateIpAddress>"
        f"<privateDnsName>ip-10-0-{card}-{n}.ec2.internal</privateDnsName>"
        f"<primary>{str(n == 0).lower()}</primary></item>"
        for n in range(10)
    )
    return (
        f"<item><networkInterfaceId>eni-{number:016x}{card}</networkInterfaceId>"
        "<subnetId>subnet-0123456789abcdef0</subnetId><vpcId>vpc-0123456789abcdef0</vpcId>"
        "<description>aws-K8S</description><ownerId>123456789012</ownerId><status>in-use</status>"
        "<macAddress>0a:ff:c3:00:00:00</macAddress><sourceDestCheck>true</sourceDestCheck>"
        "<groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>nodes</groupName></item>"
        f"</groupSet><attachment><attachmentId>eni-attach-{number:016x}</attachmentId>"
        f"<deviceIndex>{card}</deviceIndex><status>attached</status>"
        "<attachTime>2026-11-20T09:00:00.000Z</attachTime>"
        "<deleteOnTermination>true</deleteOnTermination></attachment>"
        f"<privateIpAddressesSet>{addresses}</privateIpAddressesSet></item>"
    )


_EMPTY = {
    "DescribeSpotInstanceRequests": "spotInstanceRequestSet",
    "DescribeInstanceStatus": "instanceStatusSet",
    "DescribeLaunchTemplates": "launchTemplates",
}


def _serve(clusters: int, nodes: int) -> None:
    """Serve EC2 and an API server that all clusters share, with the nodes of one of them."""
    pages = [
        "".join(
            _instance(number, _name(number % clusters))
            for number in range(first, min(first + PAGE, nodes))
        )
        for first in range(0, nodes, PAGE)
    ]
    own = {
        "nodes": [canned_node(number, number + 1) for number in range(nodes // clusters)],
        "pods": [
            canned_pod(number, node_name(number // PODS_PER_NODE), number + 1)
            for number in range(PODS_PER_NODE * nodes // clusters)
        ],
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Answer a call of EC2's Query protocol."""
            length = int(self.headers["Content-Length"])
            form = parse_qs(self.rfile.read(length).decode())
            action = form["Action"][0]
            if action == "DescribeInstances":
                page = int(form.get("NextToken", ["0"])[0])
                content = f"<reservationSet>{pages[page]}</reservationSet>"
                if page + 1 < len(pages):
                    content += f"<nextToken>{page + 1}</nextToken>"
            else:
                content = f"<{_EMPTY[action]}/>"
            space = "http://ec2.amazonaws.com/doc/2016-11-15/"
            name = f"{action}Response"
            self._answer("text/xml", f'<{name} xmlns="{space}">{content}</{name}>'.encode())

        def do_GET(self) -> None:
            """Answer a list of an API server: nodes, as a table if it is asked for."""
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            plural = url.path.rpartition("/")[2]
            items = [] if "labelSelector" in query else own.get(plural, [])
            start = int(query.get("continue", ["0"])[0])
            end = start + int(query.get("limit", [len(items)])[0])
            metadata = {"resourceVersion": "1"} | (
                {"continue": str(end)} if end < len(items) else {}
            )
            if "as=Table" in self.headers["Accept"]:
                columns = [{"name": "Name"}, {"name": "Status"}]
                rows = [{"cells": [f"node-{n}", "Ready"]} for n in range(len(items[start:end]))]
                table = {"columnDefinitions": columns, "rows": rows, "metadata": metadata}
                self._answer("application/json", json.dumps({"kind": "Table", **table}).encode())
            else:
                head = json.dumps({"kind": "List", "metadata": metadata}).encode()[:-1]
                body = head + b', "items": [' + b",".join(items[start:end]) + b"]}"
                self._answer("application/json", body)

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no access log."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "ec2":
        _serve(int(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.stdout.write(json.dumps(_run(sys.argv[2], int(sys.argv[3]))))
