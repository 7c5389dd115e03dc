"""Configuration as functions see it: fresh within a minute, and never in an interruption's way."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.instances.facts import OwnerKind
from leeway.manifests.configuration import (
    CAUTIOUS,
    POOL,
    Configuration,
    StoredManifest,
    StoredManifests,
    deleted_pools,
)
from leeway.notices import NoticeKind
from leeway.parallel import in_parallel
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy, OnBlocked
from leeway.ports.aws import CloudUnavailable
from leeway.reasons import Reason

from tests.aws.stored import manifest
from tests.fakes.clock import FakeClock, StillClock
from tests.fakes.table import TableInMemory


class Table(StoredManifests):
    """A table that holds one cluster's manifests, or does not answer."""

    def __init__(self, *manifests: StoredManifest) -> None:
        super().__init__(TableInMemory())
        self.manifests = manifests
        self.answers = True
        self.reads = 0
        self.units = 0

    def of(
        self, cluster: str, resource: str = "", deleted: bool = False
    ) -> tuple[StoredManifest, ...]:
        self.reads += 1
        if not self.answers:
            raise CloudUnavailable("throttled")
        found = self.manifests if cluster == "prod" else ()
        self.units += len(found := tuple(m for m in found if resource in ("", m.resource)))
        return found


class Reported:
    """The reported problems."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
        self.lines.append(f"{cluster} {manifest} {reason}")


class World:
    """All that a configuration needs."""

    def __init__(self, *manifests: StoredManifest) -> None:
        self.table = Table(*manifests)
        self.time = StillClock()
        self.reported = Reported()
        self.configuration = Configuration(self.table, self.time, self.reported)

    def policy(self, cluster: str = "prod") -> ClusterPolicy:
        return self.configuration.policy_of(cluster)


def test_a_cluster_that_nothing_is_written_about_has_the_defaults() -> None:
    assert World().policy() == ClusterPolicy()


def test_a_table_that_is_slow_is_asked_about_all_clusters_side_by_side() -> None:
    together = threading.Barrier(4, timeout=60)

    class Slow(Table):
        def of(
            self, cluster: str, resource: str = "", deleted: bool = False
        ) -> tuple[StoredManifest, ...]:
            together.wait()
            return super().of(cluster)

    configuration = Configuration(Slow(), StillClock(), Reported())
    clusters = [f"c{number}" for number in range(4)]
    assert in_parallel(configuration.policy_of, clusters, 4) == [ClusterPolicy()] * 4


def test_the_written_fields_replace_the_defaults() -> None:
    spec = {
        "dryRun": True,
        "takes": ["karpenter"],
        "churn": {"percent": 25, "within": "1h"},
        "notices": {
            "rebalance": {"action": "ignore"},
            "terminate-hook": {"deadline": "5m", "onBlocked": "fail", "action": "cordon"},
            "scheduled-change": {"lead": "24h"},
        },
    }
    policy = World(manifest(spec=spec)).policy()
    assert policy.notices[NoticeKind.REBALANCE].action is Action.IGNORE
    hook = policy.notices[NoticeKind.TERMINATE_HOOK]
    assert (hook.within, hook.on_blocked) == (timedelta(minutes=5), OnBlocked.FAIL)
    assert hook.action is Action.CORDON
    assert policy.notices[NoticeKind.SCHEDULED_CHANGE].lead == timedelta(hours=24)
    assert hook.replacement is DEFAULTS[NoticeKind.TERMINATE_HOOK].replacement
    untouched = NoticeKind.SPOT_INTERRUPTION
    assert policy.notices[untouched] == DEFAULTS[untouched]
    assert (policy.churn.percent, policy.churn.at_least) == (25, 1)
    assert policy.churn.within == timedelta(hours=1)
    assert policy.retires_for == {OwnerKind.KARPENTER}
    assert (policy.dry_run, policy.paused) == (True, False)


def test_a_change_is_seen_within_a_minute_and_the_table_is_not_asked_before() -> None:
    world = World()
    assert not world.policy().paused
    world.table.manifests = (manifest(spec={"paused": True}),)
    world.time.sleep(10)
    world.policy()
    assert world.table.reads == 1
    world.time.sleep(49)
    assert world.policy().paused
    assert world.table.reads == 2


def test_a_table_that_does_not_answer_leaves_interruptions_to_the_defaults() -> None:
    world = World(manifest(spec={"notices": {"spot-interruption": {"action": "ignore"}}}))
    world.table.answers = False
    policy = world.policy()
    assert policy.notices == DEFAULTS
    assert policy.paused
    assert "throttled" in world.reported.lines[0]
    world.policy()
    assert world.table.reads == 1
    world.time.sleep(11)
    world.table.answers = True
    assert world.policy().notices[NoticeKind.SPOT_INTERRUPTION].action is Action.IGNORE


def test_what_was_read_last_holds_while_the_table_does_not_answer() -> None:
    world = World(manifest(spec={"dryRun": True}))
    world.policy()
    world.table.answers = False
    world.time.sleep(3600)
    assert world.policy().dry_run


def test_a_field_of_a_newer_version_is_reported_once_and_the_rest_is_obeyed() -> None:
    spec = {"dryRun": True, "burst": 2, "notices": {"rebalance": {"action": "evacuate"}}}
    world = World(manifest(spec=spec, written_by="9.0.0"))
    policy = world.policy()
    world.time.sleep(3600)
    assert world.policy() == policy
    assert policy.dry_run
    assert policy.notices == DEFAULTS
    assert len(world.reported.lines) == 2
    assert "spec.burst: unknown field" in "".join(world.reported.lines)
    assert all("written by Leeway 9.0.0" in line for line in world.reported.lines)


@pytest.mark.parametrize(
    "body", ["{", "[]", '{"apiVersion":"leeway.sh/v2","kind":"Cluster","metadata":{"name":"prod"}}']
)
def test_an_unreadable_policy_stops_voluntary_retirements(body: str) -> None:
    world = World(manifest(body=body))
    policy = world.policy()
    assert (policy.paused, policy.notices) == (True, DEFAULTS)
    assert len(world.reported.lines) == 1


def test_a_bad_manifest_is_reported_and_does_not_stop_the_others() -> None:
    good, bad = manifest("a"), manifest("b", body="{")
    world = World(bad, good)
    for _ in range(2):
        read = world.configuration.manifests("prod", {"cluster.leeway.sh"})
        assert [written.name for written in read] == ["a"]
    assert len(world.reported.lines) == 1


def test_what_can_not_be_read_is_counted_whatever_its_kind_and_for_as_long_as_it_is_there() -> None:
    unknown_field = manifest("b", spec={"burst": 2})
    no_pool = manifest("c", resource="nodepool.karpenter.sh", body='{"kind": "NodePool"}')
    world = World(manifest("a"), unknown_field, no_pool)
    for _ in range(2):
        assert world.configuration.faulty("prod") == 2
        world.time.sleep(3600)
    world.table.answers = False
    assert world.configuration.faulty("prod") == 2, "what was read last holds"
    world.table.answers, world.table.manifests = True, (manifest("a"),)
    world.time.sleep(3600)
    assert world.configuration.faulty("prod") == 0


def test_without_manifests_to_go_by_nothing_is_made_up() -> None:
    world = World()
    world.table.answers = False
    with pytest.raises(CloudUnavailable):
        world.configuration.manifests("prod", {"nodepool.karpenter.sh"})


def test_a_function_that_wants_the_policy_alone_reads_no_other_manifest() -> None:
    pools = [manifest(f"p{n}", resource="nodepool.karpenter.sh", body="{}") for n in range(20)]
    world = World(manifest(spec={"dryRun": True}), *pools)
    assert world.policy().dry_run
    assert world.table.units == 1
    assert world.reported.lines == []


def test_a_function_that_reads_all_manifests_takes_the_policy_from_among_them() -> None:
    world = World(manifest(spec={"dryRun": True}), manifest("other", resource="headroom.leeway.sh"))
    world.configuration.manifests("prod", {"headroom.leeway.sh"})
    assert world.policy().dry_run
    assert world.table.reads == 1


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
_NAMES = st.sampled_from(
    ["apiVersion", "kind", "metadata", "spec", "name", "notices", "rebalance", "lead", "churn"]
)
_ANYTHING = st.recursive(
    st.one_of(_SCALARS, st.sampled_from(["leeway.sh/v1", "Cluster", "prod", "4h", "ignore"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=6)
    ),
    max_leaves=12,
)


@given(body=st.one_of(st.text(max_size=50), _ANYTHING.map(json.dumps)))
def test_a_stored_policy_that_is_anything_at_all_is_never_in_the_way(body: str) -> None:
    world = World(manifest(body=body))
    policy = world.policy()
    assert policy == CAUTIOUS or policy.notices.keys() == DEFAULTS.keys()
    assert policy != CAUTIOUS or world.reported.lines, "what makes it cautious is said"


@given(spec=_ANYTHING)
def test_a_policy_with_any_spec_is_never_in_the_way(spec: object) -> None:
    policy = World(manifest(body=json.dumps({**_CLUSTER, "spec": spec}))).policy()
    assert policy.notices.keys() == DEFAULTS.keys()


_CLUSTER = {"apiVersion": "leeway.sh/v1", "kind": "Cluster", "metadata": {"name": "prod"}}


def pool(name: str, **changes: Any) -> StoredManifest:
    """A stored pool."""
    return replace(manifest(name, resource=POOL), **changes)


def test_a_pool_is_deleted_only_if_somebody_deleted_it() -> None:
    late = datetime(2026, 11, 20, 10, tzinfo=UTC)
    table = Table(pool("gone", deleted_at=late), pool("other"), pool("invalid", body="{}"))
    config = Configuration(table, FakeClock(late), Reported())
    assert deleted_pools(table, "prod") == {"gone": late}
    assert config.has_deleted("prod", (POOL,))
    written = config.manifests("prod", (POOL,))
    assert "gone" not in {one.name for one in written}


def test_pools_that_cannot_be_read_now_are_not_deleted() -> None:
    early = datetime(2026, 11, 20, 9, tzinfo=UTC)
    table = Table(pool("gone", deleted_at=early))
    assert deleted_pools(table, "prod")
    table.answers = False
    with pytest.raises(CloudUnavailable):
        deleted_pools(table, "prod")
