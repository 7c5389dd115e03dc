"""A sandbox on a cluster that runs already: that of `make conformance`, or one of our own.

Our own is the sandbox's API server in a process that knows nothing of this sandbox: it has its own
credentials, and enforces RBAC, impersonation and admission policies.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway_sandbox.real_cluster.guests import MARKS
from leeway_sandbox.real_cluster.machines import LABEL
from leeway_sandbox.real_cluster.target import RealCluster, find_cluster, read_config
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import real_scenario
from lightkube import Client
from lightkube.codecs import from_dict
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Namespace, Node
from lightkube.resources.rbac_authorization_v1 import ClusterRole

from tests.end_to_end.conftest import pytest_runtest_makereport
from tests.end_to_end.environment import Environment, until
from tests.end_to_end.provisioning import PARAMETERS
from tests.sandbox.kubernetes.live import running_cluster

__all__ = ["pytest_runtest_makereport"]

GIVEN, CONTEXT, ALLOWED = (
    f"LEEWAY_CONFORMANCE_{name}" for name in ("KUBECONFIG", "CONTEXT", "YES_THIS_CLUSTER")
)
"""The variables in which `make conformance` names a cluster."""

NODES, GROUP = 5, real_scenario("", 0).groups[0].name
SOMEBODYS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "somebodys"},
    "rules": [],
}


class Conformance(Environment):
    """The sandbox, the cluster as its admin reaches it, and a namespace for the tests."""

    def __init__(self, sandbox: Sandbox, real: RealCluster, kube: Client, namespace: str) -> None:
        super().__init__(sandbox)
        self.config = read_config(real.kubeconfig, real.context)
        self.kube = kube
        self.namespace = namespace
        self._image = image_of(kube)

    def free_nodes(self, count: int, group: str = GROUP) -> dict[str, str]:
        """Return unused nodes of the group: a node that a pool has left launches no successor."""
        return super().free_nodes(count, group or GROUP)

    def deploy(self, name: str, replicas: int, grace: int = 5, sleeps: int = 0) -> None:
        """Create a Deployment and wait until its pods are Ready. They end after `sleeps` seconds;
        the kubelets of a test cluster that run no hooks end them after a share of their grace."""
        self.create(name, replicas, sleeps, terminationGracePeriodSeconds=grace)
        self.ready(name, replicas)

    def create(self, name: str, replicas: int, sleeps: int = 0, **pod: Any) -> None:
        """Create a Deployment; `pod` are fields of the spec of its pods."""
        labels = {"app": name}
        container = {
            "name": "c",
            "image": self._image,
            "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": {"cpu": "10m"}},
            "lifecycle": {"preStop": {"sleep": {"seconds": sleeps}}} if sleeps else None,
        }
        made = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], **pod},
                },
            },
        }
        self.kube.create(from_dict(made))

    def ready(self, name: str, replicas: int) -> None:
        """Wait until all pods of a Deployment are Ready."""

        def complete() -> bool:
            status = self.kube.get(Deployment, name, namespace=self.namespace).status
            return bool(status and status.readyReplicas == replicas)

        until(complete, 120)

    def delete(self, name: str) -> None:
        """Delete a Deployment."""
        self.kube.delete(Deployment, name, namespace=self.namespace)

    def node(self, name: str) -> Any:
        """Return a Node as the cluster has it."""
        return self.kube.get(Node, name)


def sandbox_on(real: RealCluster, folder: Path) -> Any:
    """Start a sandbox on a cluster."""
    scenario = real_scenario(real.name, len(real.nodes))
    return Sandbox.start(
        scenario,
        state_dir=folder,
        real=real,
        parameters=PARAMETERS,
        options={"lambda": ["--retry-delay", "1"], "aws": ["--schedule-speed", "0"]},
    )


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of the cluster."""
    if given := os.environ.get(GIVEN):
        yield Path(given)
        return
    rules = tmp_path_factory.mktemp("rules")
    (rules / "somebodys.yaml").write_text(yaml.safe_dump(SOMEBODYS))
    with running_cluster(tmp_path_factory.mktemp("real"), "--rbac", str(rules)) as live:
        live.add_nodes(*range(1, NODES + 1))
        yield live.kubeconfig()


@pytest.fixture(scope="session")
def real(kubeconfig: Path) -> RealCluster:
    """The cluster; a test run never uses one that is elsewhere unless it is named."""
    return find_cluster(kubeconfig, os.environ.get(CONTEXT) or None, os.environ.get(ALLOWED))


@pytest.fixture(scope="session")
def admin(real: RealCluster) -> Iterator[Client]:
    """The cluster without the sandbox."""
    with Client(read_config(real.kubeconfig, real.context), trust_env=False) as kube:
        yield kube


@pytest.fixture(scope="session")
def env(
    real: RealCluster, admin: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Conformance]:
    """A sandbox on the cluster, and a namespace of its own."""
    with sandbox_on(real, tmp_path_factory.mktemp("sandbox")) as sandbox:
        name = f"leeway-conformance-{uuid.uuid4().hex[:6]}"
        admin.create(Namespace(metadata=ObjectMeta(name=name)))
        yield Conformance(sandbox, real, admin, name)
        admin.delete(Namespace, name)
    check_nothing_is_left(admin)


def check_nothing_is_left(kube: Client) -> None:
    """Check that the sandbox has left the cluster as it was, but for the nodes that have ended."""
    roles = [str(role.metadata.name) for role in kube.list(ClusterRole) if role.metadata]
    assert not [name for name in roles if name.startswith("leeway")]
    for node in kube.list(Node):
        assert node.metadata is not None
        assert node.spec is not None
        assert LABEL not in (node.metadata.labels or {}), "a node without a machine"
        assert not [key for key in node.metadata.annotations or () if key.startswith(MARKS)]
        assert not [taint for taint in node.spec.taints or () if taint.key.startswith(MARKS)]


def image_of(kube: Client) -> str:
    """Return an image that only waits, and that the nodes have: no registry is asked."""
    for node in kube.list(Node):
        for image in (node.status and node.status.images) or ():
            for name in image.names or ():
                if name.partition("@")[0].partition(":")[0].endswith("/pause") and "@" not in name:
                    return name
    return "pause"


@pytest.fixture
def schedules(env: Conformance) -> Callable[[str], None]:
    """Runs the schedule of a function."""

    def fire(function: str) -> None:
        (name,) = [s["name"] for s in env.sandbox.schedules() if function in s["name"]]
        env.sandbox.fire(str(name))

    return fire
