"""A Kubernetes API that serves prepared bytes, as fast as an API server with a warm cache.

The sandbox's cluster would take minutes to start 50,000 pods, and encodes each object when it is
listed. This server knows the lists and watches that the reads of provisioning use, without TLS.
`POST /_more?count=N` adds N pending pods.
"""

import asyncio
import json
import sys
from typing import Any

from aiohttp import web

PODS_PER_NODE = 10
_FILLER = [
    {"manager": "kubelet", "operation": "Update", "fieldsV1": {f"f:key-{n}": {} for n in range(90)}}
]
_IMAGES = [
    {"names": [f"602401143452.dkr.ecr.us-east-1.amazonaws.com/team/service-{n}@sha256:{n:064x}"]}
    for n in range(50)
]


def _metadata(name: str, namespace: str, version: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "uid": f"00000000-0000-0000-0000-{version:012}",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-11-22T10:00:00Z",
        "managedFields": _FILLER,
        **more,
    }


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"ip-10-0-{number // 250}-{number % 250}"


def canned_pod(number: int, node: str, version: int) -> bytes:
    """Return a pod of one of 100 Deployments, 4 KB."""
    app = f"web-{number % 100:02}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-7d", "controller": True}
    labels = {"app": app, "pod-template-hash": "7d"}
    mount = {"name": "kube-api-access-x", "mountPath": "/var/run/secrets"}
    spread = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    requests = {"cpu": "390m", "memory": "512Mi"}
    container = {"name": "c", "image": "web:1", "resources": {"requests": requests}}
    name = f"{app}-7d-{number:06}"
    document = {
        "metadata": _metadata(name, "shop", version, labels=labels, ownerReferences=[owner]),
        "spec": {
            "containers": [{**container, "volumeMounts": [mount], "env": [{"name": "A"}] * 10}],
            "schedulerName": "default-scheduler",
            "priority": 0,
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
                for key in ("not-ready", "unreachable")
            ],
            "topologySpreadConstraints": [spread],
            "volumes": [{"name": f"kube-api-access-{number}", "projected": {"sources": []}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {
            "phase": "Running" if node else "Pending",
            "conditions": [{"type": f"C{n}", "status": "True"} for n in range(5)],
        },
    }
    return json.dumps(document).encode()


def canned_node(number: int, version: int, **more: str) -> bytes:
    """Return a Node of 11 KB, which ten pods fill; `more` are labels."""
    name, zone = node_name(number), f"us-east-1{'abc'[number % 3]}"
    amounts = {"cpu": "3920m", "memory": "16Gi", "pods": "58", "ephemeral-storage": "80Gi"}
    labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
    document = {
        "metadata": _metadata(name, "", version, labels=labels | more),
        "spec": {"providerID": f"aws:///{zone}/i-{number:017x}"},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "images": _IMAGES,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return json.dumps(document).encode()


class CannedApi:
    """A cluster of `nodes` nodes with ten pods each."""

    def __init__(self, nodes: int) -> None:
        self.version = 1
        self.pods: list[bytes] = []
        self.pending: list[bytes] = []
        self.nodes: list[bytes] = []
        self.events: list[tuple[int, bytes]] = []
        for number in range(nodes):
            self.version += 1
            self.nodes.append(canned_node(number, self.version))
        for number in range(PODS_PER_NODE * nodes):
            self.version += 1
            node = number // PODS_PER_NODE
            self.pods.append(canned_pod(number, node_name(node), self.version))

    def add(self, count: int) -> None:
        """Add pending pods."""
        for _ in range(count):
            self.version += 1
            pod = canned_pod(10**5 + self.version, "", self.version)
            self.pending.append(pod)
            self.events.append((self.version, b'{"type":"ADDED","object":' + pod + b"}\n"))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if request.path == "/_more":
            self.add(int(request.query["count"]))
            return web.json_response({})
        plural = request.path.rpartition("/")[2]
        if request.query.get("watch"):
            return await self._watch(request, plural)
        if plural not in KINDS:
            missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": plural}
            return web.json_response(missing, status=404)
        return self._list(request, plural)

    def _list(self, request: web.Request, plural: str) -> web.Response:
        pods = self.pending if "fieldSelector" in request.query else [*self.pods, *self.pending]
        items = {"pods": pods, "nodes": self.nodes}.get(plural, [])
        start = int(request.query.get("continue", 0))
        end = start + int(request.query.get("limit", len(items)))
        metadata = {"resourceVersion": str(self.version)}
        if end < len(items):
            metadata["continue"] = str(end)
        head = json.dumps({"kind": KINDS[plural], "metadata": metadata}).encode()[:-1]
        body = head + b', "items": [' + b",".join(items[start:end]) + b"]}"
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since = int(request.query["resourceVersion"])
        lines = [line for version, line in self.events if plural == "pods" and version > since]
        if lines:
            await response.write(b"".join(lines))
        await asyncio.sleep(int(request.query["timeoutSeconds"]))
        return response


KINDS = {
    "csinodes": "CSINodeList",
    "daemonsets": "DaemonSetList",
    "limitranges": "LimitRangeList",
    "nodes": "NodeList",
    "persistentvolumeclaims": "PersistentVolumeClaimList",
    "persistentvolumes": "PersistentVolumeList",
    "poddisruptionbudgets": "PodDisruptionBudgetList",
    "pods": "PodList",
    "priorityclasses": "PriorityClassList",
    "runtimeclasses": "RuntimeClassList",
    "storageclasses": "StorageClassList",
}


async def serve(nodes: int) -> None:
    """Serve until the process is stopped; print the port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", CannedApi(nodes).handle)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (port,) = (address[1] for address in runner.addresses)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
