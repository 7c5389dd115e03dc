"""A cluster in its own process, which tests use only over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
from leeway_sandbox.children import Child

from tests.sandbox import control_token

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_PATIENCE_SECONDS = 60.0


class Live:
    """A running cluster: its API as admin, its control API, and waits for conditions."""

    def __init__(self, ready: Mapping[str, Any], folder: Path) -> None:
        self.url: str = ready["url"]
        self.ca: str = ready["ca"]
        self.token: str = ready["token"]
        self.folder = folder
        self.api = self.client(self.token)
        self.control = httpx.Client(
            base_url=ready["control"], headers=control_token.HEADERS, timeout=60
        )

    def client(self, token: str) -> httpx.Client:
        """Return a client of the API with a token."""
        return httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=self.ca),
            timeout=60,
        )

    def kubeconfig(self) -> Path:
        """Write a kubeconfig of the admin."""
        path = self.folder / "kubeconfig"
        cluster = {"server": self.url, "certificate-authority": self.ca}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}],
            "current-context": "sandbox",
        }
        path.write_text(json.dumps(content))
        return path

    def add_nodes(self, *numbers: int, cpu: str = "8", **labels: str) -> list[str]:
        """Start instances and wait until their nodes are Ready; returns the nodes' names."""
        names = []
        for number in numbers:
            zone = f"us-east-1{'abc'[(number - 1) % 3]}"
            instance = f"i-{number - 1:017x}"
            name = f"ip-10-0-0-{number}.ec2.internal"
            resources = {"cpu": cpu, "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
            node = {
                "metadata": {
                    "name": name,
                    "labels": {
                        "topology.kubernetes.io/zone": zone,
                        "node.kubernetes.io/instance-type": "m5.2xlarge",
                        **labels,
                    },
                },
                "spec": {"providerID": f"aws:///{zone}/{instance}"},
                "status": {"capacity": resources},
            }
            self.report(instance, "running", node=node, join=0)
            names.append(name)
        self.until(lambda: all(self.is_ready(name) for name in names))
        return names

    def report(self, instance: str, state: str, **more: object) -> None:
        """Report the state of an instance to the cluster."""
        body = {"instance": instance, "state": state, **more}
        self.control.post("/_sandbox/instances", json=body).raise_for_status()

    def is_ready(self, node: str) -> bool:
        """Whether a node is Ready."""
        response = self.api.get(f"/api/v1/nodes/{node}")
        if response.status_code == 404:
            return False  # it has not joined yet
        conditions = response.json().get("status", {}).get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object."""
        response = self.api.post(path, json=body)
        assert response.status_code == 201, response.text
        created: dict[str, Any] = response.json()
        return created

    def patch(self, path: str, body: object, kind: str = "merge-patch+json") -> httpx.Response:
        """Send a patch of some type."""
        headers = {"Content-Type": f"application/{kind}"}
        return self.api.patch(path, content=json.dumps(body), headers=headers)

    def pods(self, label: str = "", namespace: str = "default") -> list[dict[str, Any]]:
        """List the pods of a namespace by label."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        response = self.api.get(path, params={"labelSelector": label})
        items: list[dict[str, Any]] = response.json()["items"]
        return items

    def running(self, label: str, namespace: str = "default") -> list[dict[str, Any]]:
        """List the running pods that are not terminating."""
        return [
            pod
            for pod in self.pods(label, namespace)
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def deploy(self, name: str, replicas: int, **settings: Any) -> list[dict[str, Any]]:
        """Create a Deployment labelled app=name and wait until its pods run."""
        self.create(
            "/apis/apps/v1/namespaces/default/deployments", deployment(name, replicas, **settings)
        )
        self.until(lambda: len(self.running(f"app={name}")) == replicas)
        return self.running(f"app={name}")

    def evict(self, pod: str, **options: object) -> httpx.Response:
        """Evict a pod."""
        body: dict[str, object] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": "default"},
        }
        if options:
            body["deleteOptions"] = options
        return self.api.post(f"{PODS}/{pod}/eviction", json=body)

    def abandon_eviction(self, pod: str, budget: str) -> None:
        """Request an eviction, and disconnect when its budget counts the pod as disrupted."""
        host = self.url.removeprefix("https://")
        context = ssl.create_default_context(cafile=self.ca)
        impatient = http.client.HTTPSConnection(host, context=context, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        with contextlib.closing(impatient):
            impatient.request("POST", f"{PODS}/{pod}/eviction", json.dumps(body), headers)
            self.until(lambda: pod in self.budget_status(budget).get("disruptedPods", {}))

    def budget_status(self, name: str) -> dict[str, Any]:
        """Return the status of a PodDisruptionBudget."""
        status: dict[str, Any] = self.api.get(f"{BUDGETS}/{name}").json()["status"]
        return status

    def journal(self, kind: str = "") -> list[dict[str, Any]]:
        """Return the journal entries of one kind or of all kinds."""
        entries = self.control.get("/_sandbox/journal").json()["entries"]
        return [entry for entry in entries if not kind or entry["kind"] == kind]

    def fail_with(self, *faults: dict[str, object]) -> None:
        """Replace the faults of the API."""
        response = self.control.put("/_sandbox/faults", json={"faults": faults})
        assert response.status_code == 200, response.text

    def until[Result](self, condition: Callable[[], Result]) -> Result:
        """Wait until a condition is true; return its value."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while not (result := condition()):
            assert time.monotonic() < give_up, "what the test waits for did not happen"
            time.sleep(0.02)
        return result


def deployment(name: str, replicas: int, **settings: Any) -> dict[str, Any]:
    """Return a Deployment; the settings are `annotations`, `spec` and `requests` of its pods."""
    container = {
        "name": "c",
        "image": "pause",
        "resources": {"requests": settings.get("requests", {"cpu": "10m"})},
    }
    metadata: dict[str, Any] = {"labels": {"app": name}}
    if "annotations" in settings:
        metadata["annotations"] = settings["annotations"]
    spec = {
        "terminationGracePeriodSeconds": 30,
        "containers": [container],
        **settings.get("spec", {}),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def budget(name: str, app: str, **bounds: object) -> dict[str, Any]:
    """Return a PodDisruptionBudget for the pods labelled app=…"""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, **bounds},
    }


def bare_pod(name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod without a controller."""
    container = {"name": "c", "image": "pause"}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def restricted_pod(name: str) -> dict[str, Any]:
    """Return a pod without a controller that the level `restricted` of PodSecurity allows."""
    profile = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = bare_pod(name, securityContext=profile)
    pod["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return pod


@contextlib.contextmanager
def running_cluster(folder: Path, *flags: str) -> Iterator[Live]:
    """Run a cluster while the context lasts."""
    quick = ["--pod-start", "0.1", "--node-ready", "0.05", "--volume-attach", "0.1"]
    quick += ["--pod-quarantine", "1", *control_token.OPTIONS]
    arguments = ["--certificate", str(folder / "tls"), *quick, *flags]
    process = Child.start("leeway_sandbox.kubernetes", arguments, folder / "kubernetes.log")
    try:
        live = Live(process.ready(_PATIENCE_SECONDS), folder)
        with live.api, live.control:
            yield live
    finally:
        process.stop()
