"""Runs for a cluster whose manifests are in its API server: copied, used, and told their status."""

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from leeway.hibernation import Hibernation, Sleeping
from leeway.launch.images import Image, ImageVariant
from leeway.launch.reservations import CapacityReservation
from leeway.manifest_run import READY_FOR, WRITES_FOR, Dependencies, ManifestRun
from leeway.manifests.configuration import Configuration, StoredManifests
from leeway.manifests.in_cluster import HOME, Home, Lease, ManifestCopies, ManifestHome
from leeway.manifests.reading import Kind
from leeway.manifests.status import PoolUsage, StatusPatch
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes import (
    ClusterForbidden,
    ClusterRefused,
    ClusterUnavailable,
    Event,
    ObjectReference,
)
from leeway.provisioning.report import ProvisioningReport
from leeway.reasons import Reason
from leeway.selection.offers.reservations import ReservedCapacity

from tests.aws.stored import manifest
from tests.fakes.failing import failing
from tests.launch.launching import World as Aws
from tests.manifests.crd_cases import CLASS, POOL, changed
from tests.manifests.test_status import conditions, merged

SELECTED = {"tags": {"discovery": "prod"}}
GOOD = changed(
    CLASS,
    {
        "metadata.name": "default",
        "spec.role": "prod-nodes",
        "spec.subnetSelectorTerms": [SELECTED],
        "spec.securityGroupSelectorTerms": [SELECTED],
    },
)
DONE = Reason("Provisioned", "Leeway launched nothing.")


class Api:
    """The API server: its objects by kind and name, with versions, and what was written."""

    def __init__(self) -> None:
        self.kinds: dict[str, dict[str, Any]] = {"Cluster": {}, "EC2NodeClass": {}, "NodePool": {}}
        self.leases: list[Lease] = []
        self.patches: list[StatusPatch] = []
        self.events: list[Event] = []
        self.tried = 0  # writes, also those that fail
        self.error: Exception | None = None  # of each write
        self.refused: set[str] = set()  # objects whose status is refused
        self.pruned: set[str] = set()  # fields that the CRDs do not have
        self.meanwhile: Callable[[], None] = lambda: None  # before the next write
        self._version = 0

    def put(self, document: Mapping[str, Any]) -> None:
        """Create an object, or change it as a user does."""
        new, kind = copy.deepcopy(dict(document)), document["kind"]
        name = new["metadata"]["name"]
        before = self.kinds[kind].get(name, {"metadata": {}})
        self._version += 1
        new["metadata"] |= {
            "uid": name,
            "generation": before["metadata"].get("generation", 0) + 1,
            "resourceVersion": str(self._version),
        }
        new["status"] = before.get("status", {})
        self.kinds[kind][name] = new

    def objects(self, kind: Kind) -> Sequence[Mapping[str, Any]] | None:
        served = kind.api_version.endswith("/v1") and kind.name in self.kinds
        return copy.deepcopy(list(self.kinds[kind.name].values())) if served else None

    def karpenter_leases(self) -> Sequence[Lease]:
        return self.leases

    def patch_status(self, patch: StatusPatch) -> bool:
        self.tried += 1
        self.meanwhile()
        if self.error is not None:
            raise self.error
        metadata = patch.document["metadata"]
        if metadata["name"] in self.refused:
            raise ClusterRefused("422: status.subnets: Invalid value")
        stored = self.kinds[patch.document["kind"]].get(metadata["name"])
        if not stored or stored["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            return False
        self.patches.append(patch)
        found = merged(stored["status"], patch.status)
        found = {name: value for name, value in found.items() if name not in self.pruned}
        if found != stored["status"]:
            self._version += 1
            stored["metadata"]["resourceVersion"] = str(self._version)
            stored["status"] = found
        return True

    def write_event(self, event: Event) -> None:
        self.tried += 1
        self.meanwhile()
        if self.error is not None:
            raise self.error
        self.events.append(event)

    def status(self, kind: str, name: str) -> dict[str, str]:
        """The conditions of an object."""
        found = self.kinds[kind][name]["status"]
        return {type_: value for type_, (value, _) in conditions(found).items()}


class Silent:
    """The Reports Protocol of a configuration."""

    def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
        pass


class World:
    def __init__(self) -> None:
        self.aws, self.api = Aws(), Api()
        self.table = self.aws.table
        self.table.put(HOME, ManifestHome("prod", 1, Home.CLUSTER))
        self.usage: Mapping[str, PoolUsage] | None = {}
        self.copied_before: set[str] = set()
        self.sleeping: Sleeping = {}
        self.limits: list[float] = []  # of the requests that write
        self.stored = StoredManifests(self.table)
        self.configuration = Configuration(self.stored, self.aws, Silent())
        self.runs = self.environment()
        self.api.put(GOOD)
        self.api.put(POOL)

    def environment(self) -> ManifestRun:
        """A run in an environment of its own."""
        return ManifestRun(
            Dependencies(
                run=self._provision,
                copy=ManifestCopies(self.table, lambda _: self.api, self.aws).copy,
                manifests=self.configuration,
                open_cluster=lambda _: self.api,
                within=self._within,
                sources=self.aws.deps.sources,
                table=self.table,
                clock=self.aws,
            )
        )

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        self.limits.append(seconds)
        yield

    def _provision(self, cluster: str, why: str, until: datetime) -> ProvisioningReport:
        kinds = ("nodepool.karpenter.sh",)
        found = self.configuration.manifests(cluster, kinds)
        self.copied_before = {one.name for one in found}
        return ProvisioningReport(cluster, why, DONE, usage=self.usage, sleeping=self.sleeping)

    def run(self) -> list[str]:
        """Run, and return the codes of the problems."""
        report = self.runs.run("prod", "test", self.aws.now() + timedelta(seconds=60))
        return [one.code for one in report.launch_problems]


@pytest.fixture
def world() -> World:
    return World()


def test_a_run_launches_by_what_the_api_server_has_now_and_says_so_there(world: World) -> None:
    assert world.run() == []
    assert world.copied_before == {"pool"}
    assert world.api.status("NodePool", "pool")["Ready"] == "True"
    status = world.api.kinds["EC2NodeClass"]["default"]["status"]
    assert [one["id"] for one in status["subnets"]] == ["subnet-a", "subnet-b", "subnet-c"]
    assert status["securityGroups"] == [{"id": "sg-1"}]
    assert status["instanceProfile"] == "prod-nodes"
    assert [one["requirements"][0]["values"] for one in status["amis"]] == [["arm64"], ["amd64"]]
    assert status["amis"][1]["requirements"][1:] == [
        {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"},
        {"key": "karpenter.k8s.aws/instance-accelerator-count", "operator": "DoesNotExist"},
    ]
    # A pool that is applied is used by the next run, whatever the cache of the manifests has.
    world.api.put(changed(POOL, {"metadata.name": "second"}))
    world.run()
    assert world.copied_before == {"pool", "second"}


def test_each_run_reads_the_manifests_of_the_table(world: World) -> None:
    """An environment that knew the old number of a static pool would launch again what another one
    has given back."""
    world.table.put(HOME, ManifestHome("prod", 2, Home.TABLE), replaces=1)
    for number, name in enumerate(("first", "second"), start=1):
        body = json.dumps(changed(POOL, {"metadata.name": name}))
        pool = manifest(name, 1, resource="nodepool.karpenter.sh", body=body)
        world.stored.write("prod", pool, replaces=0)
        world.run()
        assert len(world.copied_before) == number


def test_an_alias_has_an_ami_for_each_kind_of_machine_and_other_terms_one(world: World) -> None:
    """Karpenter replaces a node whose AMI is not the first one for its machine."""
    world.aws.offer_images(ImageVariant("x86_64", "nvidia"))
    world.run()
    *_, found = world.api.kinds["EC2NodeClass"]["default"]["status"]["amis"]
    assert found["requirements"] == [
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"},
    ]
    own = Image("ami-0123456789abcdef0", "own", "x86_64", world.aws.now(), "/dev/xvda")
    world.aws.images.known[own.id] = own
    terms = [{"id": own.id}]
    world.api.put(changed(GOOD, {"spec.amiSelectorTerms": terms, "spec.amiFamily": "AL2023"}))
    world.run()
    (found,) = world.api.kinds["EC2NodeClass"]["default"]["status"]["amis"]
    assert [one["key"] for one in found["requirements"]] == ["kubernetes.io/arch"]


def test_subnets_that_leeway_must_not_use_stay_in_the_status(world: World) -> None:
    world.run()
    before = world.api.kinds["EC2NodeClass"]["default"]["status"]["subnets"]
    foreign = {"discovery": "prod", "kubernetes.io/cluster/other": "owned"}
    world.aws.networks.tags = dict.fromkeys(world.aws.networks.tags, foreign)
    world.aws.sleep(READY_FOR.total_seconds())
    world.run()
    status = world.api.kinds["EC2NodeClass"]["default"]["status"]
    assert world.api.status("EC2NodeClass", "default")["SubnetsReady"] == "False"
    assert status["subnets"] == before


def test_a_class_lists_the_capacity_reservations_that_it_selects(world: World) -> None:
    """Karpenter replaces a node in a reservation that the status of its class does not have."""
    ends = world.aws.now() + timedelta(minutes=30)
    block = ReservedCapacity("cr-1", block=True)
    tags = {"leeway.sh/cluster/prod": ""}
    world.aws.reservations.add(
        CapacityReservation(
            block, "123456789012", "m5.large", "us-east-1a", 1, 1, ends=ends, tags=tags
        )
    )
    world.api.put(changed(GOOD, {"spec.capacityReservationSelectorTerms": [{"id": "cr-1"}]}))
    world.run()
    (found,) = world.api.kinds["EC2NodeClass"]["default"]["status"]["capacityReservations"]
    assert found == {
        "id": "cr-1",
        "availabilityZone": "us-east-1a",
        "endTime": f"{ends:%Y-%m-%dT%H:%M:%SZ}",
        "instanceMatchCriteria": "targeted",
        "instanceType": "m5.large",
        "interruptible": False,
        "ownerID": "123456789012",
        "reservationType": "capacity-block",
        "state": "expiring",
    }


def test_a_cluster_whose_manifests_are_in_the_table_is_left_alone(world: World) -> None:
    world.table.put(HOME, ManifestHome("prod", 2, Home.TABLE))
    assert world.run() == []
    assert (world.api.patches, world.copied_before) == ([], set())


def test_the_same_state_is_not_written_again_by_any_environment(world: World) -> None:
    world.run()
    world.api.patches.clear()
    for _ in range(3):
        world.aws.sleep(400)
        world.runs = world.environment()
        world.run()
    assert world.api.patches == []


def test_aws_is_asked_again_only_when_it_is_time_or_the_settings_change(world: World) -> None:
    world.run()
    world.aws.networks.known.clear()
    world.run()
    assert world.api.status("EC2NodeClass", "default")["SubnetsReady"] == "True"
    world.aws.sleep(READY_FOR.total_seconds())
    world.run()
    assert world.api.status("EC2NodeClass", "default")["SubnetsReady"] == "False"
    assert world.api.status("NodePool", "pool")["Ready"] == "False"
    world.api.put(changed(GOOD, {"spec.securityGroupSelectorTerms": [{"id": "sg-2"}]}))
    world.run()
    assert world.api.status("EC2NodeClass", "default")["SecurityGroupsReady"] == "False"


def test_an_aws_that_does_not_answer_is_asked_once_in_a_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def silent(terms: object) -> Any:
        asked.append(terms)
        raise CloudUnavailable("EC2 does not answer")

    monkeypatch.setattr(world.aws.networks, "subnets", silent)
    world.api.put(changed(GOOD, {"metadata.name": "another"}))
    assert world.run() == []
    assert len(asked) == 1
    assert set(world.api.status("EC2NodeClass", "another").values()) == {"True", "Unknown"}
    assert world.api.status("NodePool", "pool")["Ready"] == "False"


def test_a_change_between_the_list_and_the_write_wins(world: World) -> None:
    def change() -> None:
        world.api.meanwhile = lambda: None
        world.api.put(changed(GOOD, {"spec.tags": {"a": "b"}}))

    world.api.meanwhile = change
    assert world.run() == []
    assert world.api.kinds["EC2NodeClass"]["default"]["status"] == {}
    world.run()
    (ready,) = (
        one
        for one in world.api.kinds["EC2NodeClass"]["default"]["status"]["conditions"]
        if one["type"] == "Ready"
    )
    assert ready["observedGeneration"] == 2


def test_an_object_that_is_gone_meanwhile_is_no_problem(world: World) -> None:
    world.api.meanwhile = world.api.kinds["NodePool"].clear
    assert world.run() == []


@pytest.mark.parametrize("error", [ClusterForbidden("403: no"), RuntimeError("odd")])
def test_a_status_that_cannot_be_written_is_one_problem_and_nothing_else(
    world: World, error: Exception
) -> None:
    world.api.error = error
    assert world.run() == ["StatusNotWritten"]
    assert world.copied_before == {"pool"}


def test_a_status_that_one_crd_refuses_does_not_keep_others_from_theirs(world: World) -> None:
    world.api.refused = {"default"}
    assert world.run() == ["StatusNotWritten"]
    assert world.api.status("NodePool", "pool")["Ready"] == "True"


def test_fields_that_the_crd_of_the_cluster_lacks_are_not_sent_again_and_again(
    world: World,
) -> None:
    world.api.pruned = {"nodes", "nodeClassObservedGeneration"}
    for _ in range(3):
        world.run()
    sent = [one.document["metadata"]["name"] for one in world.api.patches]
    assert sent.count("pool") == 2
    world.usage = {"pool": PoolUsage(1, joined=True)}
    world.run()
    assert world.api.kinds["NodePool"]["pool"]["status"]["resources"]["nodes"] == "1"


def test_a_list_that_is_refused_leaves_the_last_known_manifests(world: World) -> None:
    world.run()
    failing(world.api, "objects", ClusterForbidden("403: no"))
    assert world.run() == ["ManifestsNotCopied"]
    assert world.copied_before == {"pool"}


def test_an_invalid_manifest_has_one_event_in_an_hour_and_its_last_version_applies(
    world: World,
) -> None:
    world.run()
    world.api.put(changed(POOL, {"spec.template.spec.requirements": [{"key": 7}]}))
    for _ in range(3):
        world.run()
    (event,) = world.api.events
    assert event.reason == "ManifestInvalid"
    about = ObjectReference("NodePool", "pool", "pool", api_version="karpenter.sh/v1")
    assert event.about == about
    assert "spec.template.spec.requirements" in event.message
    assert world.api.status("NodePool", "pool")["ValidationSucceeded"] == "False"
    assert world.copied_before == {"pool"}
    world.aws.sleep(3600)
    world.run()
    assert len(world.api.events) == 2, "the API server deletes Events after an hour"
    world.api.put(POOL)
    world.run()
    assert world.api.status("NodePool", "pool")["Ready"] == "True"
    assert len(world.api.events) == 2


def test_a_pool_that_hibernates_has_one_event_that_says_until_when(world: World) -> None:
    now, berlin = world.aws.now(), ZoneInfo("Europe/Berlin")
    world.sleeping = {"pool": Hibernation("pool", now, now.replace(hour=19, minute=0), berlin)}
    for _ in range(3):
        world.run()
    (event,) = world.api.events
    assert (event.reason, event.warning) == ("PoolHibernates", False)
    assert "hibernates until 20:00 Europe/Berlin" in event.message
    world.runs = world.environment()
    world.run()
    assert len({one.name for one in world.api.events}) == 1, "the API server refuses the second one"
    tomorrow = now.replace(hour=19, minute=0) + timedelta(days=1)
    world.sleeping = {"pool": Hibernation("pool", now, tomorrow, berlin)}
    world.run()
    assert len({one.name for one in world.api.events}) == 2


def test_while_karpenter_runs_it_is_neither_overwritten_nor_corrected(world: World) -> None:
    now = world.aws.now()
    world.api.leases = [Lease("kube-system", now, timedelta(seconds=15))]
    world.api.put(changed(POOL, {"spec.template.spec.requirements": [{"key": 7}]}))
    world.run()
    assert world.api.kinds["EC2NodeClass"]["default"]["status"] == {}
    assert world.api.status("NodePool", "pool") == {"KarpenterIsRunning": "True"}
    assert world.api.events == []


def test_a_class_without_a_pool_and_a_pool_without_a_class_have_a_status(world: World) -> None:
    world.api.kinds["EC2NodeClass"].clear()
    world.api.put(changed(GOOD, {"metadata.name": "unused"}))
    world.run()
    assert world.api.status("EC2NodeClass", "unused")["Ready"] == "True"
    assert world.api.status("NodePool", "pool")["NodeClassReady"] == "False"


def put_invalid_pools(api: Api, count: int) -> None:
    for number in range(count):
        changes = {"metadata.name": f"odd{number}", "spec.template.spec.requirements": [{"key": 7}]}
        api.put(changed(POOL, changes))


def test_the_time_of_a_run_ends_its_writes(world: World) -> None:
    put_invalid_pools(world.api, 3)
    world.runs.run("prod", "test", world.aws.now())
    assert (world.api.patches, world.api.events) == ([], [])
    world.run()
    assert len(world.api.events) == 3
    assert 0 < world.limits[-1] < 60, "requests that hang end with the run"


def test_the_status_of_one_cluster_leaves_time_for_the_next_one(world: World) -> None:
    for number in range(30):
        world.api.put(changed(POOL, {"metadata.name": f"pool{number}"}))
    world.api.meanwhile = lambda: world.aws.sleep(1)
    for _ in range(5):
        before, patches = world.aws.now(), len(world.api.patches)
        world.run()
        assert world.aws.now() - before <= WRITES_FOR
        assert world.limits[-1] == WRITES_FOR.total_seconds()
        assert len(world.api.patches) > patches, "the next run goes on where it ended"


def test_events_end_with_the_time_of_the_run(world: World) -> None:
    put_invalid_pools(world.api, 3)
    world.run()
    world.aws.sleep(3600)  # the Events are due again, and no status is
    world.api.meanwhile = lambda: world.aws.sleep(60)  # each write takes all the time
    before = world.api.tried
    world.run()
    assert world.api.tried == before + 1


@pytest.mark.parametrize("error", [ClusterUnavailable("timeout"), ClusterForbidden("403: no")])
def test_an_api_server_that_does_not_write_one_event_is_asked_for_no_other_one(
    world: World, error: Exception
) -> None:
    put_invalid_pools(world.api, 3)
    world.run()
    world.aws.sleep(3600)  # the Events are due again, and no status is
    world.api.error, before = error, world.api.tried
    assert world.run() == []
    assert world.api.tried == before + 1


def test_an_api_server_that_does_not_answer_gets_no_event_after_a_status(world: World) -> None:
    put_invalid_pools(world.api, 3)
    world.api.error = ClusterUnavailable("timeout")
    assert world.run() == ["StatusNotWritten"]
    assert world.api.tried == 1
    assert "pool" in world.copied_before


def test_node_classes_that_one_run_has_no_time_for_are_read_by_the_next_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"default", *(f"class{number}" for number in range(9))}
    for name in names - {"default"}:
        terms = [SELECTED, {"id": f"subnet-{name}"}]
        world.api.put(changed(GOOD, {"metadata.name": name, "spec.subnetSelectorTerms": terms}))
    subnets = world.aws.networks.subnets

    def slow(terms: Any) -> Any:
        world.aws.sleep(1)
        return subnets(terms)

    monkeypatch.setattr(world.aws.networks, "subnets", slow)
    ready: list[set[str]] = []
    for _ in range(5):
        world.runs.run("prod", "test", world.aws.now() + timedelta(seconds=9))
        classes = world.api.kinds["EC2NodeClass"]
        written = {name for name in names if classes[name]["status"]}
        assert all(world.api.status("EC2NodeClass", name)["Ready"] == "True" for name in written)
        pool = world.api.kinds["NodePool"]["pool"]["status"]
        assert bool(pool) == ("default" in written), "nothing is said of a class before it is read"
        ready.append(written)
    assert set() < ready[0] < names, "one run has no time for all of them"
    assert ready[-1] == names
