"""Which clusters are watched, by their stored manifests."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from leeway.manifests.configuration import Configuration, StoredManifest, StoredManifests
from leeway.manifests.in_cluster import HOME, Home, ManifestHome
from leeway.pod_watch.watch_pods import WatchMode, mode_of
from leeway.reasons import Reason

from tests.aws.stored import manifest
from tests.fakes.clock import FakeClock
from tests.fakes.table import TableInMemory

NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def stored(resource: str, api_version: str, kind: str, spec: dict[str, Any]) -> StoredManifest:
    document = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "general"},
        "spec": spec,
    }
    return manifest("general", resource=resource, body=json.dumps(document))


def pool(requirements: object = ()) -> StoredManifest:
    template = {"spec": {"nodeClassRef": NODE_CLASS, "requirements": requirements or []}}
    spec = {"template": template}
    return stored("nodepool.karpenter.sh", "karpenter.sh/v1", "NodePool", spec)


HEADROOM = stored("headroom.leeway.sh", "leeway.sh/v1", "Headroom", {"buffers": []})


class Unheard:
    def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
        pass


@pytest.mark.parametrize(
    ("manifests", "mode"),
    [
        ((), WatchMode.NOT_AT_ALL),
        ((manifest(spec={"provisioning": {"watch": True}}), HEADROOM), WatchMode.NOT_AT_ALL),
        ((pool(),), WatchMode.BY_WATCH),
        # Its nodes are given back.
        (
            (replace(pool(), deleted_at=datetime(2026, 11, 20, tzinfo=UTC)),),
            WatchMode.BY_THE_MINUTE,
        ),
        ((pool(requirements=5),), WatchMode.NOT_AT_ALL),  # it is invalid and can launch nothing
        ((manifest(), pool()), WatchMode.BY_WATCH),
        ((manifest(spec={"provisioning": {"watch": False}}), pool()), WatchMode.BY_THE_MINUTE),
        # Only interruptions and launches go on in a paused cluster: it is watched.
        ((manifest(spec={"paused": True}), pool()), WatchMode.BY_WATCH),
    ],
)
def test_a_cluster_is_watched_if_it_has_a_pool(
    manifests: tuple[StoredManifest, ...], mode: WatchMode
) -> None:
    table = TableInMemory(FakeClock())
    stored = StoredManifests(table)
    for one in manifests:
        stored.write("prod", one, replaces=0)
    configuration = Configuration(stored, FakeClock(), Unheard())
    assert mode_of(configuration, table, "prod") is mode


@pytest.mark.parametrize(
    ("manifests", "mode"),
    [
        ((), WatchMode.WITH_MANIFESTS),  # the first manifest acts at once
        ((manifest(spec={"provisioning": {"watch": False}}),), WatchMode.BY_THE_MINUTE),
    ],
)
def test_manifests_in_the_api_server_are_watched_before_there_is_a_pool(
    manifests: tuple[StoredManifest, ...], mode: WatchMode
) -> None:
    table = TableInMemory(FakeClock())
    table.put(HOME, ManifestHome("prod", 1, Home.CLUSTER))
    stored = StoredManifests(table)
    for one in manifests:
        stored.write("prod", one, replaces=0)
    configuration = Configuration(stored, FakeClock(), Unheard())
    assert mode_of(configuration, table, "prod") is mode
