"""Serves AWS and the API servers of many clusters from prepared answers.

The sandbox cannot hold 50,000 instances. The table is one in memory, Lambda and SQS accept
everything, and nothing runs. Instances are as EKS has them: twenty tags, three network
interfaces with ten addresses each. The API server of a cluster has the path of its name; its nodes
are those of its instances, all of the pool `web`, with ten pods each, and nothing changes.

`python -m bench.canned_account CLUSTERS NODES` prints its port.
"""

import json
import sys
import time
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, JOINED, NODEPOOL, ON_DEMAND, ZONE

from bench.canned_api import KINDS, PODS_PER_NODE, canned_node, canned_pod, node_name
from bench.canned_table import CannedTable, TableRefused
from bench.scale_run import cluster_name, instance_id

PAGE = 1_000
INSTANCE = "m5.xlarge"
LABELS = {
    **JOINED,
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "karpenter.k8s.aws/ec2nodeclass": "default",
    CAPACITY_TYPE: ON_DEMAND,
    INSTANCE_TYPE: INSTANCE,
    NODEPOOL: "web",
    ZONE: "us-east-1a",
}
"""What `admit_node` and the kubelet write: such a node does not drift from its pool."""

VERSION = 1_000_000
"""The resource version of all lists."""


def _instance(number: int, cluster: str) -> str:
    """An instance as DescribeInstances has it, 18 KB."""
    instance = instance_id(number)
    tags = {
        f"kubernetes.io/cluster/{cluster}": "owned",
        "aws:eks:cluster-name": cluster,
        "eks:cluster-name": cluster,
        "eks:eks-cluster-name": cluster,
        "leeway.sh/owner": "leeway",
        "aws:ec2:fleet-id": f"fleet-{number:08x}",
        "leeway.sh/nodepool": "web",
        **{f"example.com/team-{n}": f"platform-{n}" for n in range(13)},
    }
    interfaces = "".join(_interface(number, card) for card in range(3))
    tag_set = "".join(f"<item><key>{k}</key><value>{v}</value></item>" for k, v in tags.items())
    volumes = "".join(
        f"<item><deviceName>/dev/xvd{letter}</deviceName><ebs><volumeId>vol-{number:017x}</volumeId>"
        "<status>attached</status><attachTime>2026-11-20T09:00:00.000Z</attachTime>"
        "<deleteOnTermination>true</deleteOnTermination></ebs></item>"
        for letter in "ab"
    )
    address = f"10.0.{number // 250}.{number % 250}"
    return (
        f"<item><reservationId>r-{number:017x}</reservationId><ownerId>123456789012</ownerId>"
        f"<groupSet/><instancesSet><item><instanceId>{instance}</instanceId>"
        "<imageId>ami-0123456789abcdef0</imageId>"
        "<instanceState><code>16</code><name>running</name></instanceState>"
        f"<privateDnsName>{node_name(number)}</privateDnsName><dnsName/>"
        "<reason/><amiLaunchIndex>0</amiLaunchIndex><productCodes/>"
        f"<instanceType>{INSTANCE}</instanceType><launchTime>2026-11-20T09:00:00.000Z</launchTime>"
        "<placement><availabilityZone>us-east-1a</availabilityZone><groupName/>"
        "<tenancy>default</tenancy></placement><monitoring><state>disabled</state></monitoring>"
        "<subnetId>subnet-0123456789abcdef0</subnetId><vpcId>vpc-0123456789abcdef0</vpcId>"
        f"<privateIpAddress>{address}</privateIpAddress><sourceDestCheck>true</sourceDestCheck>"
        "<groupSet><item><groupId>sg-0123456789abcdef0</groupId><groupName>nodes</groupName></item>"
        "</groupSet><architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType>"
        "<rootDeviceName>/dev/xvda</rootDeviceName>"
        f"<blockDeviceMapping>{volumes}</blockDeviceMapping>"
        "<virtualizationType>hvm</virtualizationType>"
        f"<clientToken>fleet-{number}</clientToken><tagSet>{tag_set}</tagSet>"
        f"<hypervisor>xen</hypervisor><networkInterfaceSet>{interfaces}</networkInterfaceSet>"
        "<ebsOptimized>true</ebsOptimized><enaSupport>true</enaSupport>"
        "<cpuOptions><coreCount>2</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>"
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


_SUBNET = (
    "<subnetSet><item><subnetId>subnet-0123456789abcdef0</subnetId>"
    "<vpcId>vpc-0123456789abcdef0</vpcId><state>available</state>"
    "<availabilityZone>us-east-1a</availabilityZone>"
    "<availabilityZoneId>use1-az1</availabilityZoneId>"
    "<availableIpAddressCount>4000</availableIpAddressCount>"
    "<tagSet>{tags}</tagSet></item></subnetSet>"
)
_NETWORK = {
    "DescribeSecurityGroups": "<securityGroupInfo><item><groupId>sg-0123456789abcdef0</groupId>"
    "<groupName>nodes</groupName><vpcId>vpc-0123456789abcdef0</vpcId></item></securityGroupInfo>",
    "DescribeImages": "<imagesSet><item><imageId>ami-0123456789abcdef0</imageId>"
    "<imageState>available</imageState><architecture>x86_64</architecture><name>al2023</name>"
    "<creationDate>2026-11-20T09:00:00.000Z</creationDate></item></imagesSet>",
}
_EMPTY = {
    "DescribeSpotInstanceRequests": "spotInstanceRequestSet",
    "DescribeInstanceStatus": "instanceStatusSet",
    "DescribeLaunchTemplates": "launchTemplates",
}


_EKS = {
    "version": "1.33",
    "status": "ACTIVE",
    "endpoint": "https://api.example.com",
    "certificateAuthority": {"data": "Y2E="},
    "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16", "ipFamily": "ipv4"},
    "resourcesVpcConfig": {"clusterSecurityGroupId": "sg-0123456789abcdef0"},
}


class Account:
    """The prepared answers."""

    def __init__(self, clusters: int, nodes: int) -> None:
        self._clusters, self._nodes = clusters, nodes
        self.table = CannedTable()
        self._pages = [
            "".join(
                _instance(number, cluster_name(number % clusters))
                for number in range(first, min(first + PAGE, nodes))
            )
            for first in range(0, nodes, PAGE)
        ]
        self.objects = lru_cache(8)(self._objects)

    def ec2(self, form: dict[str, list[str]]) -> bytes:
        """Answer a call of the Query protocol."""
        action = form["Action"][0]
        if action == "DescribeInstances":
            page = int(form.get("NextToken", ["0"])[0])
            content = f"<reservationSet>{self._pages[page]}</reservationSet>"
            if page + 1 < len(self._pages):
                content += f"<nextToken>{page + 1}</nextToken>"
        elif action == "DescribeSubnets":
            tags = "".join(
                f"<item><key>leeway.sh/cluster/{cluster_name(number)}</key><value/></item>"
                for number in range(self._clusters)
            )
            content = _SUBNET.format(tags=tags)
        else:
            content = _NETWORK.get(action) or f"<{_EMPTY[action]}/>"
        space = "http://ec2.amazonaws.com/doc/2016-11-15/"
        return f'<{action}Response xmlns="{space}">{content}</{action}Response>'.encode()

    def _objects(self, cluster: str, plural: str) -> list[bytes]:
        """Make the objects of a cluster: 500,000 pods do not fit into memory."""
        numbers = range(int(cluster.rpartition("-")[2]), self._nodes, self._clusters)
        if plural == "nodes":
            return [canned_node(number, number + 1, **LABELS) for number in numbers]
        if plural == "pods":
            return [
                canned_pod(pod, node_name(number), pod + 1)
                for number in numbers
                for pod in range(PODS_PER_NODE * number, PODS_PER_NODE * (number + 1))
            ]
        return []


class Handler(BaseHTTPRequestHandler):
    """Answers for the account of the server."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_POST(self) -> None:
        """Answer a call of EC2, DynamoDB or SQS, or an asynchronous invocation of a function."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        service, _, operation = self.headers.get("X-Amz-Target", "").partition(".")
        if service.startswith("DynamoDB"):
            try:
                answer, status = (
                    self.server.account.table.answer(operation, json.loads(content)),
                    200,
                )
            except TableRefused as refused:
                answer, status = {"__type": refused.code, "message": str(refused)}, 400
            self._answer("application/x-amz-json-1.0", json.dumps(answer).encode(), status)
        elif service == "AmazonSQS":
            empty: dict[str, Any] = (
                {"Successful": [], "Failed": []} if operation.endswith("Batch") else {}
            )
            self._answer("application/x-amz-json-1.0", json.dumps(empty).encode())
        elif self.path.endswith("/invocations"):
            self._answer("application/json", b"", 202)
        else:
            self._answer("text/xml", self.server.account.ec2(parse_qs(content.decode())))

    def do_GET(self) -> None:
        """Answer DescribeCluster, or a list or a watch of the API server of a cluster."""
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        cluster, plural = url.path.split("/")[1], url.path.rpartition("/")[2]
        if cluster == "clusters":
            self._answer(
                "application/json", json.dumps({"cluster": _EKS | {"name": plural}}).encode()
            )
        elif plural not in KINDS:
            missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": plural}
            self._answer("application/json", json.dumps(missing).encode(), 404)
        elif "watch" in query:
            self._watch(float(query["timeoutSeconds"][0]))
        else:
            self._list(cluster, plural, query)

    def _list(self, cluster: str, plural: str, query: dict[str, list[str]]) -> None:
        selected = {"labelSelector", "fieldSelector"} & query.keys()
        items = [] if selected else self.server.account.objects(cluster, plural)
        start = int(query.get("continue", ["0"])[0])
        end = start + int(query.get("limit", [len(items)])[0])
        metadata = {"resourceVersion": str(VERSION)}
        metadata |= {"continue": str(end)} if end < len(items) else {}
        if "as=Table" in self.headers["Accept"]:
            columns = [{"name": "Name"}, {"name": "Status"}]
            names = [json.loads(one)["metadata"]["name"] for one in items[start:end]]
            rows = [{"cells": [name, "Ready"]} for name in names]
            table = {"columnDefinitions": columns, "rows": rows, "metadata": metadata}
            self._answer("application/json", json.dumps({"kind": "Table", **table}).encode())
        else:
            kind = KINDS[plural]
            head = json.dumps({"kind": kind, "metadata": metadata}).encode()[:-1]
            body = head + b', "items": [' + b",".join(items[start:end]) + b"]}"
            self._answer("application/json", body)

    def _watch(self, seconds: float) -> None:
        """Send nothing but a bookmark, as a settled cluster does."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        object_ = {"kind": "Pod", "metadata": {"resourceVersion": str(VERSION)}}
        self.wfile.write(json.dumps({"type": "BOOKMARK", "object": object_}).encode() + b"\n")
        self.wfile.flush()
        self.close_connection = True
        time.sleep(seconds)

    def _answer(self, kind: str, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no access log."""


class Server(ThreadingHTTPServer):
    """Serves an account."""

    request_queue_size = 512
    daemon_threads = True

    def __init__(self, account: Account) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.account = account


if __name__ == "__main__":
    server = Server(Account(int(sys.argv[1]), int(sys.argv[2])))
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
