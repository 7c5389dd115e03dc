"""The table's manifests, against the sandbox's DynamoDB."""

from functools import partial
from typing import ClassVar

import pytest
from leeway.aws.manifests import DynamoManifests, DynamoManifestWriting
from leeway.clock import SystemClock
from leeway.manifests.configuration import CAUTIOUS, Configuration
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.table import RecordChanged
from leeway.reasons import Reason

from tests.aws.stored import TABLE, manifest
from tests.sandbox.aws.started import Sandbox


@pytest.fixture
def manifests(aws: Sandbox) -> DynamoManifests:
    return DynamoManifests(partial(aws.client, "dynamodb"), TABLE)


@pytest.fixture
def writing(aws: Sandbox) -> DynamoManifestWriting:
    return DynamoManifestWriting(partial(aws.client, "dynamodb"), TABLE)


def test_manifests_are_read_as_they_were_written_each_in_its_cluster(
    manifests: DynamoManifests, writing: DynamoManifestWriting
) -> None:
    policy = manifest("mine")
    scaled = manifest("web", resource="scaledobject.keda.sh", namespace="shop")
    pool = manifest("old", resource="nodepool.karpenter.sh", original='{"kind":"Provisioner"}')
    writing.write("mine", policy, 0)
    writing.write("mine", pool, 0)
    writing.write("mine", scaled, 0)
    writing.write("mine-2", manifest("mine-2"), 0)
    assert manifests.of("mine") == (policy, pool, scaled)
    assert manifests.of("mine", "cluster.leeway.sh") == (policy,)
    assert manifests.of("nobodys") == ()


def test_the_second_of_two_writers_gets_a_conflict_for_a_manifest(
    manifests: DynamoManifests, writing: DynamoManifestWriting
) -> None:
    first, second = manifest("two", spec={"paused": True}), manifest("two", spec={"dryRun": True})
    writing.write("two", first, 0)
    with pytest.raises(RecordChanged):
        writing.write("two", second, 0)
    writing.write("two", manifest("two", 2), 1)
    with pytest.raises(RecordChanged):
        writing.delete("two", first)
    writing.delete("two", manifest("two", 2))
    assert manifests.of("two") == ()
    with pytest.raises(RecordChanged):
        writing.write("two", manifest("two", 3), 2)


def test_the_time_at_which_a_pool_was_deleted_stays_until_it_is_written_again(
    manifests: DynamoManifests, writing: DynamoManifestWriting
) -> None:
    pool = manifest("web", resource="nodepool.karpenter.sh")
    writing.write("gone", pool, 0)
    writing.delete("gone", pool)
    assert manifests.of("gone") == ()
    (deleted,) = manifests.of("gone", deleted=True)
    assert (deleted.resource, deleted.name, deleted.body) == (pool.resource, "web", "")
    assert deleted.deleted_at is not None
    with pytest.raises(RecordChanged):
        writing.delete("gone", pool)
    writing.write("gone", pool, 0)
    assert manifests.of("gone", deleted=True) == (pool,)


def test_manifests_of_several_pages_are_read_completely(
    manifests: DynamoManifests, writing: DynamoManifestWriting
) -> None:
    large = [manifest(f"n{i}", body="x" * 340 * 1024, resource="big.leeway.sh") for i in range(5)]
    for one in large:
        writing.write("large", one, 0)
    assert [one.name for one in manifests.of("large")] == ["n0", "n1", "n2", "n3", "n4"]


def test_a_throttled_table_is_unavailable_and_a_missing_one_is_refused(
    aws: Sandbox, manifests: DynamoManifests
) -> None:
    throttled = {"error": "ProvisionedThroughputExceededException", "service": "dynamodb"}
    aws.control("PUT", "faults", {"faults": [throttled]})
    with pytest.raises(CloudUnavailable):
        manifests.of("prod")
    aws.control("PUT", "faults", {"faults": []})
    with pytest.raises(CloudRefused, match="ResourceNotFound"):
        DynamoManifests(partial(aws.client, "dynamodb"), "no-such-table").of("prod")


def test_an_item_written_by_hand_does_not_hide_others_and_makes_a_policy_cautious(
    aws: Sandbox, manifests: DynamoManifests, writing: DynamoManifestWriting
) -> None:
    class Reported:
        lines: ClassVar[list[str]] = []

        def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
            self.lines.append(f"{manifest}: {reason}")

    key = {"pk": {"S": "MANIFESTS#by-hand"}, "sk": {"S": "cluster.leeway.sh#/by-hand"}}
    for attributes in (
        {},
        {"body": {"N": "1"}, "version": {"S": "first"}, "written_at": {"S": "yesterday"}},
        {"body": {"S": "{"}, "version": {"N": "1.5"}},
    ):
        aws.client("dynamodb").put_item(TableName=TABLE, Item={**key, **attributes})
        scaled = manifest("web", resource="scaledobject.keda.sh", namespace="shop")
        if len(manifests.of("by-hand")) == 1:
            writing.write("by-hand", scaled, 0)
        assert scaled in manifests.of("by-hand")
        configuration = Configuration(manifests, SystemClock(), Reported())
        assert configuration.policy_of("by-hand") == CAUTIOUS
        assert Reported.lines.pop().startswith("cluster.leeway.sh/by-hand: ")
    aws.client("dynamodb").put_item(TableName=TABLE, Item=key)
    (bare, _) = manifests.of("by-hand")
    writing.write("by-hand", manifest("by-hand"), bare.version)
    assert Configuration(manifests, SystemClock(), Reported()).policy_of("by-hand") != CAUTIOUS
