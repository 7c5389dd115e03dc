"""Manifests that users keep in the API server: what is copied, kept, removed, and held."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from leeway import __version__
from leeway.manifests.configuration import StoredManifests
from leeway.manifests.in_cluster import (
    HOME,
    READ,
    SCALED_OBJECT,
    Home,
    Lease,
    ManifestCopies,
    ManifestHome,
    home_of,
    launch_block,
    name_in_cluster,
    plan_copy,
)
from leeway.manifests.reading import Kind
from leeway.ports.aws import CloudRefused
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.switched import SWITCH, Buyer, Switch
from leeway.table import RecordChanged

from tests.aws.stored import manifest
from tests.fakes.clock import FakeClock
from tests.fakes.table import TableInMemory
from tests.manifests.crd_cases import CLASS, POOL, changed

CLUSTER, KIND_OF_POOLS = "Prod_1", "nodepool.karpenter.sh"
BASE = {"apiVersion": "leeway.sh/v1", "kind": "Cluster", "metadata": {"name": "prod-1"}}
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


class Api:
    """The API server of the cluster: its objects by kind. `version` is that of Karpenter's."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[Mapping[str, Any]]] = {
            "Cluster": [],
            "EC2NodeClass": [CLASS],
            "NodePool": [POOL],
        }
        self.version = "v1"
        self.leases: list[Lease] = []
        self.broken = ""
        self.meanwhile: Callable[[], None] = lambda: None

    def objects(self, kind: Kind) -> Sequence[Mapping[str, Any]] | None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        if kind.name == self.broken:
            raise ClusterUnavailable("429: too many requests")
        versions = {"CapacityBuffer": "v1beta1", "ScaledObject": "v1alpha1"}
        version = versions.get(kind.name, self.version)
        served = kind.api_version.endswith(f"/{version}") and kind.name in self.kinds
        return self.kinds[kind.name] if served else None

    def karpenter_leases(self) -> Sequence[Lease]:
        return self.leases


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.table = TableInMemory(self.clock)
        self.api = Api()
        self.stored = StoredManifests(self.table)
        self.table.put(HOME, ManifestHome(CLUSTER, 1, Home.CLUSTER))

    def copy(self) -> list[str]:
        """Copy, and return the codes of what operators have to know."""
        copies = ManifestCopies(self.table, lambda _: self.api, self.clock)
        copied = copies.copy(CLUSTER)
        if copied is None:
            return []
        held = [copied.held] if copied.held else []
        return [one.code for one in (*copied.problems, *held)]

    def later(self) -> list[str]:
        """Copy a minute later."""
        self.clock.sleep(60)
        return self.copy()

    def titles(self) -> set[str]:
        return {one.title for one in self.stored.of(CLUSTER)}

    def blocked(self) -> str:
        now = self.clock.now()
        found = launch_block(self.table, lambda _: self.api, CLUSTER, now)
        return found.code if found else ""


@pytest.fixture
def world() -> World:
    return World()


def named(base: Mapping[str, Any], name: str, **more: Any) -> dict[str, Any]:
    return changed(base, {"metadata.name": name, **more})


def test_valid_manifests_are_copied_once_and_again_after_a_change(world: World) -> None:
    assert world.copy() == []
    assert world.titles() == {f"{KIND_OF_POOLS}/pool", "ec2nodeclass.karpenter.k8s.aws/class"}
    first = world.stored.of(CLUSTER)
    assert all(one.in_cluster for one in first)
    assert world.copy() == []
    assert world.stored.of(CLUSTER) == first
    world.api.kinds["NodePool"] = [changed(POOL, {"spec.weight": 7, "status.nodes": 3})]
    world.copy()
    (pool,) = world.stored.of(CLUSTER, KIND_OF_POOLS)
    assert json.loads(pool.body)["spec"]["weight"] == 7
    assert "status" not in json.loads(pool.body)


def test_a_cluster_whose_manifests_are_in_the_table_is_not_read(world: World) -> None:
    world.table.put(HOME, ManifestHome(CLUSTER, 2, Home.TABLE))
    world.api.broken = "NodePool"
    assert world.copy() == []
    assert world.titles() == set()
    assert home_of(world.table, "another").home is Home.TABLE


def test_what_an_api_server_and_kubectl_add_is_not_copied(world: World) -> None:
    added = {"uid": "u", "generation": 3, "managedFields": [{}], "finalizers": ["karpenter.sh/t"]}
    metadata = {
        "name": "pool",
        "labels": {"team": "a"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "b": "c"},
    }
    world.api.kinds["NodePool"] = [changed(POOL, {"metadata": {**metadata, **added}})]
    assert world.copy() == []
    (pool,) = world.stored.of(CLUSTER, KIND_OF_POOLS)
    found = json.loads(pool.body)["metadata"]
    assert found == {"name": "pool", "labels": {"team": "a"}, "annotations": {"b": "c"}}


def test_an_invalid_manifest_keeps_its_last_valid_copy(world: World) -> None:
    world.copy()
    before = world.stored.of(CLUSTER)
    world.api.kinds["NodePool"] = [changed(POOL, {"spec.weight": 1000})]
    assert world.copy() == ["ManifestInvalid"]
    assert world.stored.of(CLUSTER) == before


def test_a_complete_list_removes_a_manifest_and_an_incomplete_one_removes_nothing(
    world: World,
) -> None:
    world.api.kinds["NodePool"] = [POOL, named(POOL, "other")]
    world.copy()
    world.api.kinds["NodePool"] = [POOL]
    world.api.broken = "EC2NodeClass"
    with pytest.raises(ClusterUnavailable):
        world.copy()
    assert f"{KIND_OF_POOLS}/other" in world.titles()
    world.api.broken = ""
    assert world.copy() == []
    world.clock.sleep(50)
    assert world.copy() == []
    assert f"{KIND_OF_POOLS}/other" in world.titles(), "two lists a minute apart have to lack it"
    assert world.later() == []
    assert f"{KIND_OF_POOLS}/other" not in world.titles()
    assert not home_of(world.table, CLUSTER).missing
    gone = [one for one in world.stored.of(CLUSTER, deleted=True) if one.deleted_at]
    assert [one.name for one in gone] == ["other"], "its nodes are given back"
    world.api.kinds["NodePool"] = [POOL, named(POOL, "other")]
    world.copy()
    assert f"{KIND_OF_POOLS}/other" in world.titles()


@pytest.mark.parametrize("how", ["the CRD", "the objects"])
def test_if_all_pools_are_gone_they_stay_and_nothing_is_launched(world: World, how: str) -> None:
    world.api.kinds["EC2NodeClass"] = [CLASS, named(CLASS, "other")]
    world.copy()
    before = world.stored.of(CLUSTER)
    assert world.blocked() == ""
    world.api.kinds["EC2NodeClass"] = [CLASS]
    if how == "the CRD":
        del world.api.kinds["NodePool"]
    else:
        world.api.kinds["NodePool"] = []
    assert world.copy() == ["ManifestsHeld"]
    assert world.stored.of(CLUSTER) == before
    assert world.blocked() == "ManifestsHeld"
    world.api.kinds["NodePool"] = [POOL]
    assert world.later() == []
    assert world.blocked() == ""
    assert "ec2nodeclass.karpenter.k8s.aws/other" in world.titles(), "it counts anew"
    assert world.later() == []
    assert "ec2nodeclass.karpenter.k8s.aws/other" not in world.titles()


def test_while_kubernetes_deletes_a_crd_no_manifest_is_removed(world: World) -> None:
    """It marks the objects, deletes them one after the other, and then the kind."""
    pools: list[Mapping[str, Any]] = [POOL, named(POOL, "b"), named(POOL, "c")]
    world.api.kinds["NodePool"] = pools
    world.copy()
    before = world.stored.of(CLUSTER)
    going = {"metadata.deletionTimestamp": "2026-11-23T12:00:00Z"}
    world.api.kinds["NodePool"] = [changed(POOL, going), pools[2]]
    assert world.copy() == []
    world.clock.sleep(30)
    world.api.kinds["NodePool"] = [changed(one, going) for one in pools]
    assert world.copy() == ["ManifestsHeld"], "one that is being deleted counts as missing"
    world.api.kinds["NodePool"] = []
    assert world.later() == ["ManifestsHeld"]
    del world.api.kinds["NodePool"]
    assert world.later() == ["ManifestsHeld"]
    world.api.kinds["NodePool"] = [POOL]
    assert world.later() == []
    assert world.stored.of(CLUSTER) == before, "the others may come back, too"
    world.api.kinds["NodePool"] = pools
    assert world.later() == []
    assert world.stored.of(CLUSTER) == before


def test_a_manifest_that_was_back_in_between_is_not_removed(world: World) -> None:
    pools: list[Mapping[str, Any]] = [POOL, named(POOL, "other")]
    for found in (pools, pools[:1], pools, pools[:1]):
        world.api.kinds["NodePool"] = found
        assert world.later() == []
    assert f"{KIND_OF_POOLS}/other" in world.titles()


def test_a_copy_that_takes_too_long_is_continued_by_the_next_one(world: World) -> None:
    def slow(operation: str, _key: tuple[str, str]) -> None:
        world.clock.sleep(25 if operation == "put" else 0)

    world.table.before = slow
    world.copy()
    assert len(world.titles()) == 1
    world.copy()
    assert len(world.titles()) == 2


def test_many_missing_manifests_are_removed_in_parts(world: World) -> None:
    world.api.kinds["EC2NodeClass"] = [named(CLASS, f"c{number:03}") for number in range(510)]
    world.copy()
    world.api.kinds["EC2NodeClass"] = []
    world.copy()
    assert len(home_of(world.table, CLUSTER).missing) == 500
    world.later()
    assert len(world.titles()) == 11
    world.later()
    world.later()
    assert world.titles() == {f"{KIND_OF_POOLS}/pool"}


def test_a_person_confirms_that_pools_are_gone_by_deleting_their_copies(world: World) -> None:
    world.copy()
    world.api.kinds["NodePool"] = []
    world.copy()
    (pool,) = world.stored.of(CLUSTER, KIND_OF_POOLS)
    world.stored.delete_manifest(CLUSTER, pool)
    assert world.copy() == []
    assert world.blocked() == ""


def test_manifests_that_were_applied_to_the_table_stay_until_the_api_server_has_them(
    world: World,
) -> None:
    applied = manifest(CLUSTER)
    world.stored.write(CLUSTER, applied, 0)
    world.copy()
    assert applied in world.stored.of(CLUSTER)
    world.api.kinds["Cluster"] = [{**BASE, "spec": {"paused": True}}]
    assert world.copy() == []
    (found,) = world.stored.of(CLUSTER, "cluster.leeway.sh")
    assert (found.name, found.in_cluster) == (CLUSTER, True)
    assert json.loads(found.body)["metadata"]["name"] == CLUSTER


def test_the_cluster_manifest_has_a_name_that_an_api_server_takes(world: World) -> None:
    assert name_in_cluster("Prod_1") == "prod-1"
    world.api.kinds["Cluster"] = [{**BASE, "metadata": {"name": "other"}, "spec": {}}]
    assert world.copy() == ["ManifestInvalid"]


def test_an_older_version_is_converted(world: World) -> None:
    world.api.version = "v1beta1"
    template = changed(POOL, {"apiVersion": "karpenter.sh/v1beta1"})
    template["spec"]["template"]["spec"]["nodeClassRef"] = {"name": "default"}
    world.api.kinds = {"NodePool": [template]}
    assert world.copy() == []
    (pool,) = world.stored.of(CLUSTER, KIND_OF_POOLS)
    assert json.loads(pool.body)["apiVersion"] == "karpenter.sh/v1"
    assert "v1beta1" in pool.original


def scaled_object(name: str, namespace: str = "tenant", triggers: int = 1) -> dict[str, Any]:
    """A ScaledObject with windows that open once a year."""
    windows = [
        {
            "type": "cron",
            "metadata": {
                "timezone": "UTC",
                "start": f"{number % 60} 8 1 1 *",
                "end": f"{number % 60} 18 1 1 *",
                "desiredReplicas": "3",
            },
        }
        for number in range(triggers)
    ]
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"leeway.sh/take": "true"},
        },
        "spec": {"scaleTargetRef": {"name": "web"}, "triggers": windows},
    }


def buffer(name: str, namespace: str = "tenant", **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"podTemplateRef": {"name": "web"}, "replicas": 1},
    }


def triggers_by_name(world: World, namespace: str) -> dict[str, int]:
    return {
        one.name: len(json.loads(one.body)["spec"]["triggers"])
        for one in world.stored.of(CLUSTER, SCALED_OBJECT)
        if one.namespace == namespace
    }


def test_of_scaled_objects_only_those_are_read_that_say_so(world: World) -> None:
    assert SCALED_OBJECT in READ
    theirs = changed(scaled_object("kedas"), {"metadata.annotations": {}})
    world.api.kinds["ScaledObject"] = [scaled_object("ours"), theirs]
    assert world.copy() == []
    assert {one.name for one in world.stored.of(CLUSTER, SCALED_OBJECT)} == {"ours"}


def test_who_may_write_in_a_namespace_does_not_fill_the_table(world: World) -> None:
    def names(namespace: str) -> list[str]:
        return [one.name for one in world.stored.of(CLUSTER) if one.namespace == namespace]

    old = [buffer(f"b{number:03}") for number in range(103)]
    world.api.kinds["CapacityBuffer"] = [*old, buffer("b", "web"), buffer("c", "web")]
    assert world.copy() == ["ManifestInvalid"]
    assert world.later() == ["ManifestInvalid"]
    assert (len(names("tenant")), names("web")) == (100, ["b", "c"])
    # An API server lists them by name.
    world.api.kinds["CapacityBuffer"] = [*(buffer(f"a{number:03}") for number in range(50)), *old]
    before = names("tenant")
    for _ in range(3):
        assert world.later() == ["ManifestInvalid"]
    assert names("tenant") == before, "those that act have precedence"


def test_a_namespace_with_too_many_windows_loses_only_its_own_objects(world: World) -> None:
    """Every run of every function that plans headroom evaluates all windows of all clusters."""
    many = [scaled_object(f"s{number:03}", triggers=100) for number in range(100)]
    world.api.kinds["ScaledObject"] = [*many, scaled_object("web", "shop")]
    copies = ManifestCopies(world.table, lambda _: world.api, world.clock)
    copied = copies.copy(CLUSTER)
    assert copied is not None
    (problem,) = copied.problems
    assert problem.message == (
        "Leeway reads at most 100 objects of each kind, 500 cron triggers and 256 KB of a "
        "namespace, and does not read 95 objects of namespace tenant, such as "
        "scaledobject.keda.sh/s005. Apply the manifest again."
    )
    assert triggers_by_name(world, "tenant") == {f"s{number:03}": 100 for number in range(5)}
    assert triggers_by_name(world, "shop") == {"web": 1}
    assert f"{KIND_OF_POOLS}/pool" in world.titles()
    told = {one.document["metadata"]["name"] for one in copied.objects if one.problem}
    assert told == {f"s{number:03}" for number in range(5, 100)}


def test_invalid_objects_come_before_those_without_room(world: World) -> None:
    """A run writes twenty Events at most."""
    many = [scaled_object(f"s{number:03}", "a", triggers=100) for number in range(30)]
    invalid = changed(scaled_object("invalid", "b"), {"spec.triggers": []})
    world.api.kinds["ScaledObject"] = [*many, invalid]
    copied = ManifestCopies(world.table, lambda _: world.api, world.clock).copy(CLUSTER)
    assert copied is not None
    told = [one.document["metadata"]["name"] for one in copied.objects if one.problem]
    assert told == ["invalid", *(f"s{number:03}" for number in range(5, 30))]


def test_a_change_that_a_namespace_has_no_room_for_keeps_the_last_copy(world: World) -> None:
    world.api.kinds["ScaledObject"] = [scaled_object(f"s{n}", triggers=100) for n in range(4)]
    world.api.kinds["ScaledObject"].append(scaled_object("small", triggers=90))
    assert world.copy() == []
    world.api.kinds["ScaledObject"][4] = scaled_object("small", triggers=100)
    assert world.copy() == []
    world.api.kinds["ScaledObject"].insert(0, scaled_object("added", triggers=1))
    world.api.kinds["ScaledObject"][1] = scaled_object("s0", triggers=50)
    large = changed(scaled_object("s1"), {"metadata.annotations.note": "x" * 256 * 1024})
    world.api.kinds["ScaledObject"][2] = large
    for _ in range(3):
        assert world.later() == ["ManifestInvalid"]
    found = triggers_by_name(world, "tenant")
    assert found == {"added": 1, "s0": 50, "s1": 100, "s2": 100, "s3": 100, "small": 100}


def test_an_invalid_object_keeps_the_room_of_its_last_valid_copy(world: World) -> None:
    """Who makes objects invalid and adds others must not fill the table with copies."""
    invalid = changed(scaled_object("x", triggers=1), {"spec.triggers": []})
    for number in range(6):
        added = [scaled_object(f"s{number}-{n}", triggers=100) for n in range(5)]
        before = [named(invalid, f"s{old}-{n}") for old in range(number) for n in range(5)]
        world.api.kinds["ScaledObject"] = [*before, *added]
        world.later()
        world.later()
        assert sum(triggers_by_name(world, "tenant").values()) == 500, number


def test_copies_that_are_more_than_the_limit_are_removed(world: World) -> None:
    """An earlier version of Leeway has written them."""
    found = [scaled_object(f"s{number}", triggers=100) for number in range(7)]
    world.api.kinds["ScaledObject"] = [*found, scaled_object("web", "shop")]
    for one in found:
        name, body = one["metadata"]["name"], json.dumps(one)
        old: dict[str, Any] = {
            "resource": SCALED_OBJECT,
            "namespace": "tenant",
            "body": body,
            "in_cluster": True,
        }
        world.stored.write(CLUSTER, manifest(name, **old), 0)
    assert world.copy() == ["ManifestInvalid"]
    assert len(triggers_by_name(world, "tenant")) == 7, "as with any copy, not at once"
    assert world.later() == ["ManifestInvalid"]
    assert [*triggers_by_name(world, "tenant")] == [f"s{number}" for number in range(5)]
    assert [*triggers_by_name(world, "shop")] == ["web"]


def test_manifests_of_the_cluster_are_copied_before_those_of_namespaces(world: World) -> None:
    world.api.kinds["NodePool"] = [POOL, named(POOL, "other")]
    world.copy()
    world.api.kinds["NodePool"] = [POOL]
    world.copy()
    buffers = [buffer(f"b{number:03}", note="x" * 250_000) for number in range(50)]
    small = [buffer(f"c{number:03}") for number in range(50)]
    world.api.kinds["CapacityBuffer"] = [*buffers, *small]

    def slow(operation: str, _key: tuple[str, str]) -> None:
        world.clock.sleep(1 if operation == "put" else 0)

    world.table.before = slow
    assert world.later() == ["ManifestInvalid"]
    assert f"{KIND_OF_POOLS}/other" not in world.titles()
    for _ in range(5):
        world.copy()
    stored = [one.body for one in world.stored.of(CLUSTER) if one.namespace]
    assert len(stored) == 51
    assert sum(map(len, stored)) < 256 * 1024


@pytest.mark.parametrize(("writer", "codes"), [(__version__, []), ("0.0.1", ["ManifestInvalid"])])
def test_what_this_version_has_copied_is_not_validated_again(
    world: World, writer: str, codes: list[str]
) -> None:
    """Each run would validate hundreds of manifests. Another version may have other rules."""
    wrong = changed(POOL, {"spec.weight": 1000})
    fields: dict[str, Any] = {
        "resource": KIND_OF_POOLS,
        "body": json.dumps(wrong),
        "in_cluster": True,
    }
    world.stored.write(CLUSTER, manifest("pool", written_by=writer, **fields), 0)
    world.api.kinds["NodePool"] = [wrong]
    assert world.copy() == codes


def test_the_copy_of_another_version_is_written_again(world: World) -> None:
    fields: dict[str, Any] = {
        "resource": KIND_OF_POOLS,
        "body": json.dumps(POOL),
        "in_cluster": True,
    }
    world.stored.write(CLUSTER, manifest("pool", written_by="0.0.1", **fields), 0)
    assert world.copy() == []
    (pool,) = world.stored.of(CLUSTER, KIND_OF_POOLS)
    assert (pool.written_by, pool.version) == (__version__, 2)
    assert world.copy() == []
    assert world.stored.of(CLUSTER, KIND_OF_POOLS) == (pool,)


def test_an_object_that_is_too_large_as_the_table_stores_it_stops_no_other(world: World) -> None:
    labels = {f"l{number}": '"' * 63 for number in range(2400)}
    quotes = {"metadata.annotations": labels}
    world.api.kinds["EC2NodeClass"] = [named(CLASS, "big", **quotes), CLASS]
    assert world.copy() == ["ManifestInvalid"]
    assert world.titles() == {f"{KIND_OF_POOLS}/pool", "ec2nodeclass.karpenter.k8s.aws/class"}


def test_a_write_or_a_removal_that_the_table_refuses_stops_no_other(world: World) -> None:
    world.api.kinds["NodePool"] = [POOL, named(POOL, "other")]
    world.table.fail(CloudRefused("ValidationException: no"), "put", "delete", key="class")
    assert world.copy() == ["ManifestInvalid"]
    assert world.titles() == {f"{KIND_OF_POOLS}/pool", f"{KIND_OF_POOLS}/other"}


def test_of_two_copies_at_a_time_the_earlier_one_does_not_overwrite(world: World) -> None:
    world.copy()
    stored = world.stored.of(CLUSTER, deleted=True)
    listed = {KIND_OF_POOLS: [changed(POOL, {"spec.weight": 1})]}
    early = plan_copy(CLUSTER, stored, listed, NOW, {})
    world.api.kinds["NodePool"] = [changed(POOL, {"spec.weight": 2})]
    world.copy()
    ((written, replaces),) = early.writes
    with pytest.raises(RecordChanged):
        world.stored.write(CLUSTER, written, replaces)


@pytest.mark.parametrize(
    ("ago", "lasts", "code"),
    [
        (timedelta(0), 15, "KarpenterIsRunning"),
        (timedelta(seconds=59), 15, "KarpenterIsRunning"),
        (timedelta(seconds=60), 15, ""),
        (timedelta(seconds=-30), 15, "KarpenterIsRunning"),
        (timedelta(seconds=100), 137, "KarpenterIsRunning"),
        # Released by a leader that stops, and forged.
        (timedelta(seconds=1), 1, "KarpenterIsRunning"),
        (timedelta(seconds=301), 80_000, ""),
        (timedelta(days=-365 * 73), 15, ""),
        (timedelta(days=-365 * 73), 80_000, ""),
    ],
)
def test_nothing_is_launched_from_the_pools_of_a_karpenter_that_runs(
    world: World, ago: timedelta, lasts: int, code: str
) -> None:
    renewed = world.clock.now() - ago
    world.api.leases = [Lease("kube-system", renewed, timedelta(seconds=lasts))]
    assert world.blocked() == code
    world.table.put(HOME, ManifestHome(CLUSTER, 2, Home.TABLE))
    assert world.blocked() == "", "the manifests of the table are Leeway's own"


def test_copies_of_karpenters_pools_are_karpenters_also_after_a_change_of_the_home(
    world: World,
) -> None:
    world.copy()
    world.api.leases = [Lease("kube-system", world.clock.now(), timedelta(seconds=15))]
    world.table.put(HOME, ManifestHome(CLUSTER, 2, Home.TABLE))
    assert world.blocked() == "KarpenterIsRunning"
    world.table.delete(HOME, cluster=CLUSTER)
    assert world.blocked() == "KarpenterIsRunning"
    (pool,) = world.stored.of(CLUSTER, KIND_OF_POOLS)
    applied = replace(pool, version=pool.version + 1, in_cluster=False)
    world.stored.write(CLUSTER, applied, pool.version)
    assert world.blocked() == "", "a person has applied it to the table"


def test_a_record_that_names_karpenter_stops_launches_while_karpenter_is_down(
    world: World,
) -> None:
    now = world.clock.now()
    world.table.put(SWITCH, Switch(CLUSTER, 1, Buyer.KARPENTER, now, 2))
    assert world.blocked() == "SwitchedToKarpenter"
    world.table.put(SWITCH, Switch(CLUSTER, 2, Buyer.LEEWAY, now, 2))
    assert world.blocked() == ""
    world.api.leases = [Lease("kube-system", now, timedelta(seconds=15))]
    assert world.blocked() == "KarpenterIsRunning", "somebody has started it again"


@pytest.mark.parametrize("pools", [[], [POOL]])
def test_a_copy_that_has_read_the_old_home_writes_nothing(world: World, pools: list[Any]) -> None:
    world.copy()
    before = world.stored.of(CLUSTER)
    world.api.kinds["NodePool"] = pools
    world.api.kinds["EC2NodeClass"] = [CLASS, named(CLASS, "new")]

    def change() -> None:
        world.table.put(
            HOME, ManifestHome(CLUSTER, home_of(world.table, CLUSTER).version + 1, Home.TABLE)
        )

    world.api.meanwhile = change
    assert world.copy() == []
    assert world.stored.of(CLUSTER) == before
    assert home_of(world.table, CLUSTER).home is Home.TABLE


def test_a_lease_of_the_last_year_that_there_is_blocks_nothing(world: World) -> None:
    last = datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))
    world.api.leases = [Lease("kube-system", last, timedelta.max)]
    assert world.blocked() == ""


def test_a_copy_of_another_version_is_written_with_its_own(world: World) -> None:
    """The record of an adoption may change while a copy runs."""
    world.table.put(HOME, ManifestHome(CLUSTER, 2, Home.CLUSTER))
    world.copy()
    assert home_of(world.table, CLUSTER) == ManifestHome(CLUSTER, 2, Home.CLUSTER)
