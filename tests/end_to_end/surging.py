"""What tests of surges share: a client that calls a Service, the right to scale, the reasons."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leeway.aws.table import DynamoTable
from leeway.retirement.context import DRAIN_STATE
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from lightkube import ApiError, Client
from lightkube.models.discovery_v1 import Endpoint
from lightkube.resources.core_v1 import Pod
from lightkube.resources.discovery_v1 import EndpointSlice

from tests.end_to_end.environment import until

EVERY = 0.1
"""Seconds between two requests."""


class ServiceClient:
    """Sends its requests to the ready addresses in turn, as kube-proxy may. A request fails if
    there is none, or if no running container is behind it. `answers` are the names of the pods that
    answered, `failures` why a request failed."""

    def __init__(self, kube: Client, namespace: str, service: str) -> None:
        self._kube, self._namespace, self._service = kube, namespace, service
        self._stop = threading.Event()
        self.answers: list[str] = []
        self.failures: list[str] = []

    @contextmanager
    def calling(self) -> Iterator["ServiceClient"]:
        """Call the Service while the block runs, from its first ready address on: a controller
        adds it some time after the pod is Ready."""
        until(lambda: any(self._ready()))
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += EVERY
            self.request()

    def request(self) -> bool:
        """Send one request; return whether it was answered."""
        endpoints = list(self._ready())
        if not endpoints:
            self.failures.append(f"no endpoint is ready after {len(self.answers)} answers")
            return False
        target = endpoints[len(self.answers) % len(endpoints)].targetRef
        assert target is not None
        name = str(target.name)
        try:
            pod = self._kube.get(Pod, name, namespace=self._namespace)
        except ApiError as error:
            self.failures.append(f"{name}: {error}")
            return False
        same = pod.metadata is not None and pod.metadata.uid == target.uid
        phase = pod.status.phase if pod.status else None
        if same and phase == "Running":
            self.answers.append(name)
        else:
            self.failures.append(f"{name} is {phase}")
        return same and phase == "Running"

    def _ready(self) -> Iterator[Endpoint]:
        labels: dict[str, Any] = {"kubernetes.io/service-name": self._service}
        for one in self._kube.list(EndpointSlice, namespace=self._namespace, labels=labels):
            for endpoint in one.endpoints or ():
                if endpoint.conditions is None or endpoint.conditions.ready is not False:
                    yield endpoint


def right_in(namespace: str) -> dict[str, Any]:
    """Return the RoleBinding that lets Leeway scale the workloads of a namespace."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "leeway-surge", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "leeway-surge"},
        "subjects": [
            {"apiGroup": group, "kind": "Group", "name": f"leeway:{one}"}
            for one in ("drain", "capacity")
        ],
    }


def reasons(sandbox: Sandbox, instance: str) -> str:
    """Return the reasons of the pods of a retirement, as `leeway status` shows them."""
    name = sandbox.environment()["LEEWAY_TABLE"]
    table = DynamoTable(lambda: client("dynamodb", sandbox.aws_url), name)
    state = table.get(DRAIN_STATE, cluster=sandbox.endpoints.cluster, instance=instance)
    return " ".join(pod.reason.message for pod in state.pods) if state else ""
