"""Manifests in the API server: what users apply acts within seconds, and its status says so."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from leeway.aws.table import DynamoTable
from leeway.manifests.in_cluster import HOME, Home, ManifestHome
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_cli.manifests.crds import crd_of, defined_kinds
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox

from tests.end_to_end.environment import until
from tests.end_to_end.provisioning import CLUSTER, ROLE, run, sandbox_with, table_of
from tests.end_to_end.rights import granted, used
from tests.manifests.crd_cases import CLASS, POOL, changed

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS, CLASSES = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
EVENTS = "/api/v1/namespaces/default/events"
OWN = "/apis/leeway.sh/v1/clusters"
OF_KEDA = {"watch scaledobjects.keda.sh"}
"""The cluster has no CRD of KEDA."""
SELECTED = {"tags": {"discovery": "prod"}}
GOOD = changed(
    CLASS,
    {
        "metadata.name": "default",
        "spec.role": ROLE,
        "spec.subnetSelectorTerms": [SELECTED],
        "spec.securityGroupSelectorTerms": [SELECTED],
    },
)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    """A cluster whose users keep its manifests in the API server."""
    with sandbox_with(tmp_path) as (sandbox, _):
        dynamodb = client("dynamodb", sandbox.aws_url)
        table = DynamoTable(lambda: dynamodb, table_of(sandbox))
        table.put(HOME, ManifestHome(CLUSTER, 1, Home.CLUSTER))
        yield sandbox


@pytest.fixture
def api(sandbox: Sandbox) -> Iterator[httpx2.Client]:
    """The API server as a user of it sees it, with Leeway's CRDs."""
    with closing(kubeconfig_connection(sandbox.kubeconfig)) as connection:
        http = connection.plain
        for kind in defined_kinds():
            assert http.post(CRDS, json=crd_of(kind)).status_code == 201
        yield http


def conditions(http: httpx2.Client, path: str) -> dict[str, str]:
    found = http.get(path).json().get("status", {}).get("conditions", ())
    return {one["type"]: one["status"] for one in found}


def test_a_manifest_that_is_applied_acts_within_seconds_and_its_status_says_so(
    sandbox: Sandbox, api: httpx2.Client
) -> None:
    """No schedule fires but the one that begins the watch."""

    def created(path: str, document: dict[str, Any]) -> None:
        answer = api.post(path, json=document)
        assert answer.status_code == 201, answer.text

    def ready(path: str, value: str = "True") -> bool:
        return conditions(api, path).get("Ready") == value

    (name,) = [str(one["name"]) for one in sandbox.schedules() if "watch-pods" in one["name"]]
    sandbox.fire(name)
    until(lambda: used(sandbox, "WatchPodsRole") >= granted("leeway-watch") - OF_KEDA)

    created(CLASSES, changed(GOOD, {"spec.subnetSelectorTerms": [{"id": "subnet-0abc"}]}))
    created(POOLS, POOL)
    until(lambda: ready(f"{POOLS}/pool", "False"))
    until(lambda: conditions(api, f"{CLASSES}/default").get("SubnetsReady") == "False")

    metadata = api.get(f"{CLASSES}/default").json()["metadata"]
    api.put(f"{CLASSES}/default", json=changed(GOOD, {"metadata": metadata}))
    until(lambda: ready(f"{CLASSES}/default") and ready(f"{POOLS}/pool"))
    pool = api.get(f"{POOLS}/pool").json()
    status = api.get(f"{CLASSES}/default").json()["status"]
    assert status["instanceProfile"] == ROLE
    assert len(status["subnets"]) > 1
    machines = Counter(
        one["key"]
        for ami in status["amis"]
        for one in ami["requirements"]
        if one["operator"] == "Exists"
    )
    # Of each architecture one without accelerators and one for GPUs, and one for Neuron.
    assert len(status["amis"]) == 5
    assert machines == {
        "karpenter.k8s.aws/instance-gpu-count": 2,
        "karpenter.k8s.aws/instance-accelerator-count": 1,
    }
    assert pool["status"]["nodes"] == 0
    assert "leeway-status" in {one["manager"] for one in pool["metadata"]["managedFields"]}

    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    lease = {"holderIdentity": "karpenter_1", "leaseDurationSeconds": 15, "renewTime": now}
    created(LEASES, {"metadata": {"name": "karpenter-leader-election"}, "spec": lease})
    run(sandbox)
    assert conditions(api, f"{POOLS}/pool")["KarpenterIsRunning"] == "True"
    api.delete(f"{LEASES}/karpenter-leader-election")

    # The CRD cannot know the name of the cluster.
    foreign = {"metadata": {"name": "somebody-elses"}, "spec": {}}
    created(OWN, {"apiVersion": "leeway.sh/v1", "kind": "Cluster", **foreign})
    until(lambda: ready(f"{OWN}/somebody-elses", "False"))
    until(lambda: "KarpenterIsRunning" not in conditions(api, f"{POOLS}/pool"))
    wanted = "cluster somebody-elses: metadata.name"
    until(lambda: any(wanted in one["message"] for one in api.get(EVENTS).json()["items"]))

    before = api.get(f"{POOLS}/pool").json()["metadata"]["resourceVersion"]
    run(sandbox)
    after = api.get(f"{POOLS}/pool").json()["metadata"]["resourceVersion"]
    assert after == before, "a status that has not changed is not written"
    written = {one for one in used(sandbox, "ProvisionNodesRole") if one.startswith("patch ")}
    assert written <= granted("leeway-manifest-status")
