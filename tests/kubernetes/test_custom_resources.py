"""The API of custom resources and of Karpenter's Leases, as an API server answers it."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes.custom_resources import LEASE, HttpClusterApi
from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway.manifests.in_cluster import TAKE, running_karpenter
from leeway.manifests.reading import find_kind

from tests.kubernetes.faulty_server import (
    FaultyServer,
    Request,
    json_answer,
    running_faulty_server,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FaultyServer]:
    with running_faulty_server(tmp_path) as server:
        yield server


@pytest.fixture
def api(server: FaultyServer) -> Iterator[HttpClusterApi]:
    with closing(kubeconfig_connection(server.kubeconfig)) as connection:
        yield HttpClusterApi(connection)


@pytest.mark.parametrize(
    ("spec", "runs"),
    [
        ({"holderIdentity": "a", "renewTime": "2026-11-23T11:59:50.000000Z"}, True),
        # What client-go writes with ReleaseOnCancel.
        (
            {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "renewTime": "2026-11-23T11:59:50.000000Z",
            },
            True,
        ),
        ({"leaseDurationSeconds": 1, "renewTime": "2026-11-23T11:58:59.000000Z"}, False),
        ({"holderIdentity": "a"}, False),
        ({"holderIdentity": "a", "renewTime": "9999-12-31T23:59:59.000000-05:00"}, False),
        ({"renewTime": "2026-11-23T11:00:00Z", "leaseDurationSeconds": 10**17}, False),
    ],
)
def test_karpenter_runs_until_a_minute_after_the_last_renewal_of_its_lease(
    server: FaultyServer, api: HttpClusterApi, spec: dict[str, Any], runs: bool
) -> None:
    server.by_default(json_answer({"kind": "Status", "status": "Failure", "code": 404}, 404))
    server.on("GET", f"{LEASES}/{LEASE}", json_answer({"kind": "Lease", "spec": spec}))
    found = api.karpenter_leases()
    assert (running_karpenter("prod", found, NOW) is not None) is runs
    assert all(one.lasts <= timedelta(days=1) for one in found)


def test_of_each_page_only_what_leeway_reads_is_kept(
    server: FaultyServer, api: HttpClusterApi
) -> None:
    def scaled(name: str, **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": labels, "managedFields": [{"manager": "a"}]}}

    first = [scaled("of-keda"), scaled("ours", **{TAKE: "true"})]
    second = [scaled("also-ours", **{TAKE: "true"}), scaled("of-keda-too")]

    def answer(request: Request) -> None:
        items, token = (second, "") if "continue" in request.query else (first, "next")
        page = {"kind": "List", "metadata": {"continue": token}, "items": items}
        json_answer(page)(request)

    server.on("GET", "/apis/keda.sh/v1alpha1/scaledobjects", answer)
    found = api.objects(find_kind("keda.sh/v1alpha1", "ScaledObject"))
    assert found is not None
    assert [one["metadata"]["name"] for one in found] == ["ours", "also-ours"]
    assert not any("managedFields" in one["metadata"] for one in found)
    assert found[0]["kind"] == "ScaledObject"
