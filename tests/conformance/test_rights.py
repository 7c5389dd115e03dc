"""The rights of the functions on a cluster that runs already, and who else gets through."""

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
import yaml
from leeway_cli.main import run
from leeway_sandbox.real_cluster.target import RealCluster
from leeway_sandbox.real_cluster.upstream import JSON, Upstream
from lightkube import ApiError
from lightkube.resources.apps_v1 import Deployment
from lightkube.types import PatchType

from tests.cli.conftest import drop_clients
from tests.conformance.conftest import Conformance
from tests.end_to_end.environment import until
from tests.end_to_end.test_scheduled_functions import HEADROOM

HEADROOM_NAMESPACE = "leeway-headroom"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.fixture
def front(env: Conformance) -> Iterator[httpx.Client]:
    """A client of the endpoint that the functions reach, without a token."""
    context = ssl.create_default_context(cafile=env.sandbox.endpoints.ca)
    with httpx.Client(base_url=env.sandbox.kubernetes_url, verify=context, timeout=60) as client:
        yield client


def test_nobody_gets_through_without_an_access_entry(front: httpx.Client) -> None:
    assert front.get("/api/v1/nodes").status_code == 401
    wrong = {"Authorization": "Bearer k8s-aws-v1.wrong"}
    assert front.get("/api/v1/nodes", headers=wrong).status_code == 401


def test_nobody_chooses_whom_the_sandbox_impersonates(
    env: Conformance, front: httpx.Client
) -> None:
    admin = {"Authorization": f"Bearer {env.sandbox.endpoints.token}"}
    assert front.get("/api/v1/nodes", headers=admin).status_code == 200
    answer = front.get("/api/v1/nodes", headers={**admin, "Impersonate-User": "somebody"})
    assert answer.status_code == 403


def test_nodes_have_the_provider_ids_of_their_instances(
    env: Conformance, real: RealCluster, front: httpx.Client
) -> None:
    admin = {"Authorization": f"Bearer {env.sandbox.endpoints.token}"}
    # The oldest one. If other tests have used up the cluster's own nodes, it is a successor.
    (instance, node) = env.free_nodes(1).popitem()
    shown = front.get(f"/api/v1/nodes/{node}", headers=admin).json()
    assert shown["spec"]["providerID"].endswith(f"/{instance}")
    listed = front.get("/api/v1/nodes", headers=admin).json()["items"]
    assert shown["spec"]["providerID"] in [one["spec"]["providerID"] for one in listed]
    query = {"watch": "1", "fieldSelector": f"metadata.name={node}"}
    with front.stream("GET", "/api/v1/nodes", headers=admin, params=query) as stream:
        event = json.loads(next(stream.iter_lines()))
    assert event["object"]["spec"]["providerID"].endswith(f"/{instance}")
    is_own = env.node(node).spec.providerID != shown["spec"]["providerID"]
    assert is_own is (node in real.nodes), "the cluster's own stays"


def test_the_cluster_enforces_the_rights_of_each_role(env: Conformance) -> None:
    for group, verb, resource, granted in (
        ("leeway:drain", "create", "pods/eviction", True),
        ("leeway:drain", "get", "secrets", False),
        ("leeway:headroom", "create", "pods/eviction", False),
        ("leeway:capacity", "delete", "nodes", True),
        ("leeway:capacity", "list", "pods", True),
        ("leeway:watch", "delete", "nodes", False),
        ("leeway:watch", "watch", "nodepools.karpenter.sh", True),
        ("leeway:watch", "list", "nodepools.karpenter.sh", False),
        ("leeway:provision", "patch", "nodepools.karpenter.sh/status", True),
        ("leeway:provision", "patch", "nodepools.karpenter.sh", False),
        ("leeway:provision", "update", "ec2nodeclasses.karpenter.k8s.aws/status", False),
        ("leeway:capacity", "patch", "nodepools.karpenter.sh/status", False),
    ):
        assert asyncio.run(may(env, group, verb, resource)) is granted, (group, verb, resource)


@pytest.fixture
def minutes(env: Conformance, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Runs the command line against the sandbox."""
    for name, value in env.sandbox.environment().items():
        monkeypatch.setenv(name, value)
    drop_clients()
    yield lambda *arguments: run([*arguments, "--cluster", env.sandbox.endpoints.cluster])
    drop_clients()


def test_headroom_owns_the_fields_that_it_applies(
    env: Conformance,
    minutes: Callable[..., int],
    schedules: Callable[[str], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("headroom") / "headroom.yaml"
    file.write_text(yaml.safe_dump(HEADROOM))
    assert minutes("apply", "-f", str(file)) == 0

    def size() -> int | None:
        schedules("keep-headroom")
        time.sleep(2)
        try:
            found = env.kube.get(Deployment, "office-warm", namespace=HEADROOM_NAMESPACE)
        except ApiError as error:
            if error.status.code != 404:
                raise
            return None
        return found.spec.replicas if found.spec else None

    until(lambda: size() == 2)
    found = env.kube.get(Deployment, "office-warm", namespace=HEADROOM_NAMESPACE)
    assert found.metadata is not None
    owners = {(one.manager, one.operation) for one in found.metadata.managedFields or ()}
    assert ("leeway", "Apply") in owners
    # Another manager's label stays, and Leeway's next apply does not take it away.
    label = {"metadata": {"labels": {"somebodys": "own"}}}
    env.kube.patch(
        Deployment, "office-warm", label, namespace=HEADROOM_NAMESPACE, patch_type=PatchType.MERGE
    )
    assert size() == 2
    kept = env.kube.get(Deployment, "office-warm", namespace=HEADROOM_NAMESPACE)
    assert kept.metadata is not None
    assert (kept.metadata.labels or {})["somebodys"] == "own"
    assert minutes("delete", "-f", str(file)) == 0
    env.sandbox.faults("lambda", [{"function": "*keep-headroom*", "kill": "before"}])
    until(lambda: size() is None, 90)


async def may(env: Conformance, group: str, verb: str, resource: str) -> bool:
    """Ask the cluster as a member of a group whether it has a right."""
    named, _, subresource = resource.partition("/")
    kind, _, api_group = named.partition(".")
    attributes = {
        "verb": verb,
        "group": api_group,
        "resource": kind,
        "subresource": subresource,
        "namespace": "" if kind == "nodes" else env.namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    headers = [("Impersonate-User", "nobody"), ("Content-Type", JSON)]
    groups = [("Impersonate-Group", one) for one in (group, "system:authenticated")]
    async with Upstream(env.config) as upstream:
        sending = upstream.send("POST", REVIEWS, headers + groups, json.dumps(review).encode())
        async with sending as answer:
            data = await answer.aread()
    assert answer.status_code == 201, data
    return bool(json.loads(data)["status"]["allowed"])
