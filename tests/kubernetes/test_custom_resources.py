"""The API of custom resources and of Karpenter's Leases, as an API server answers it."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from leeway.kubernetes.custom_resources import LEASE, HttpClusterApi
from leeway.kubernetes.watches import manifest_watch
from leeway.manifests.in_cluster import TAKE, running_karpenter
from leeway.manifests.reading import find_kind
from leeway.manifests.status import StatusPatch
from leeway.pod_watch.follower import KindMissing, PodChange
from leeway.ports.kubernetes import (
    ClusterForbidden,
    ClusterRefused,
    ClusterUnavailable,
    WatchExpired,
)
from leeway_cli.kubeconfig import kubeconfig_connection

from tests.kubernetes.faulty_server import (
    Answer,
    FaultyServer,
    Request,
    json_answer,
    running_faulty_server,
    text_answer,
    watch_answer,
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


NAMED = {"name": "a", "uid": "u", "resourceVersion": "7"}
OF_POOLS = "/apis/karpenter.sh/v1/nodepools"
GONE = text_answer(404, "404 page not found\n", "text/plain")


def failure(code: int) -> Answer:
    return json_answer({"kind": "Status", "status": "Failure", "code": code}, code)


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        (json_answer({"kind": "NodePool"}), True),
        (failure(409), False),
        (failure(404), False),
        (GONE, False),
        (failure(403), ClusterForbidden),
        (failure(422), ClusterRefused),
        (failure(429), ClusterUnavailable),
        (text_answer(200, "<html>Sign in</html>", "text/html"), ClusterUnavailable),
    ],
)
def test_a_status_is_written_only_at_the_version_that_was_read(
    server: FaultyServer, api: HttpClusterApi, answer: Answer, written: bool | type[Exception]
) -> None:
    server.on("PATCH", f"{OF_POOLS}/a/status", answer)
    document = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": NAMED}
    patch = StatusPatch(document, {"nodes": 1})
    if isinstance(written, bool):
        assert api.patch_status(patch) is written
    else:
        with pytest.raises(written):
            api.patch_status(patch)
    (*_, (verb, _, query)) = server.requests
    assert (verb, query) == ("PATCH", {"fieldManager": "leeway-status"})


def changes_of(
    server: FaultyServer, resource: str, *answers: tuple[str, Answer]
) -> list[PodChange]:
    for path, answer in answers:
        server.on("WATCH", path, answer)
    found: list[PodChange] = []
    with closing(kubeconfig_connection(server.kubeconfig)) as connection:
        manifest_watch(lambda _: connection, resource)("prod", "").run(lambda: None, found.append)
    return found


def test_a_watch_takes_the_newest_version_that_is_served(server: FaultyServer) -> None:
    event = watch_answer(("ADDED", {"metadata": {**NAMED, "generation": 2}}), stays_open=False)
    older = OF_POOLS.replace("v1", "v1beta1")
    (change,) = changes_of(server, "nodepool.karpenter.sh", (OF_POOLS, GONE), (older, event))
    assert change.manifest is not None
    assert (change.version, change.manifest.uid, change.gone) == ("7", "u", False)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (GONE, KindMissing),
        (failure(403), ClusterForbidden),
        (failure(410), WatchExpired),
        (watch_answer(("ERROR", {"kind": "Status", "code": 410})), WatchExpired),
        (failure(503), ClusterUnavailable),
    ],
)
def test_what_ends_a_watch_on_manifests_is_named(
    server: FaultyServer, answer: Answer, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        changes_of(server, "headroom.leeway.sh", ("/apis/leeway.sh/v1/headrooms", answer))
    assert type(raised.value) is error


def test_scaled_objects_of_keda_are_no_manifests(server: FaultyServer) -> None:
    ours = {"metadata": {**NAMED, "annotations": {TAKE: "true"}}}
    theirs = {"metadata": {**NAMED, "uid": "v"}}
    event = watch_answer(("ADDED", ours), ("ADDED", theirs), stays_open=False)
    path = "/apis/keda.sh/v1alpha1/scaledobjects"
    found = changes_of(server, "scaledobject.keda.sh", (path, event))
    assert [one.gone for one in found] == [False, True]


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
