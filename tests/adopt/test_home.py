"""Where users keep manifests: what adopt asks, installs and leaves."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from leeway.manifests.configuration import POOL, StoredManifests
from leeway.manifests.in_cluster import HOME, Home, ManifestHome, home_of
from leeway_cli.adopt.run import Command, ask_home
from leeway_cli.adopt.settings.home import Crd, ManifestsHome, desired_home
from leeway_cli.output import Format
from leeway_cli.stack import Stack

from tests.aws.stored import manifest
from tests.fakes.table import TableInMemory


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> TableInMemory:
    found = TableInMemory()
    monkeypatch.setattr("leeway_cli.adopt.run.table", lambda name: found)
    return found


def asked(monkeypatch: pytest.MonkeyPatch, answer: bool, terminal: bool = True) -> Home | None:
    """Ask a user who gives this answer."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: terminal))
    monkeypatch.setattr("typer.confirm", lambda *_, **__: answer)
    services = SimpleNamespace(stack=Stack("leeway", None))
    found: Any = SimpleNamespace(cluster=SimpleNamespace(name="prod"), services=services)
    return ask_home(found, Command(yes=False, dry_run=False, output=Format.TABLE))


def test_adopt_asks_once_and_only_a_person(
    monkeypatch: pytest.MonkeyPatch, table: TableInMemory
) -> None:
    assert asked(monkeypatch, answer=True) is Home.CLUSTER
    assert asked(monkeypatch, answer=False) is Home.TABLE
    assert asked(monkeypatch, answer=True, terminal=False) is None
    table.put(HOME, ManifestHome("prod", 1, Home.TABLE))
    assert asked(monkeypatch, answer=True) is None


def test_only_manifests_in_the_cluster_need_crds_and_release_leaves_these() -> None:
    assert desired_home("prod", None) == ()
    assert desired_home("prod", Home.TABLE) == (ManifestsHome("prod", Home.TABLE),)
    *crds, home = desired_home("prod", Home.CLUSTER)
    assert home == ManifestsHome("prod", Home.CLUSTER)
    assert Crd("nodepools.karpenter.sh") in crds
    assert all("Kubernetes deletes all objects" in str(one.stays) for one in crds)


def test_a_release_removes_the_home_and_the_copies_of_pools_whose_nodes_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = TableInMemory()
    monkeypatch.setattr("leeway_cli.adopt.settings.home.table", lambda name: records)
    services: Any = SimpleNamespace(stack=Stack("leeway", None))
    stored = StoredManifests(records)
    records.put(HOME, ManifestHome("prod", 1, Home.CLUSTER))
    own = replace(manifest("prod"), resource=POOL, name="own")
    copied = replace(own, name="copied", in_cluster=True)
    for one in (own, copied):
        stored.write("prod", one, 0)
    ManifestsHome("prod", Home.CLUSTER).remove(services)
    assert home_of(records, "prod").version == 0
    assert stored.of("prod", deleted=True) == (own,), "no trace that ends the nodes of the pool"
