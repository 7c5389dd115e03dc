"""The table's manifests, against the sandbox's DynamoDB."""

from typing import ClassVar

import pytest
from leeway.aws.table import DynamoTable
from leeway.clock import SystemClock
from leeway.manifests.configuration import CAUTIOUS, Configuration, StoredManifests
from leeway.reasons import Reason
from leeway.table import RecordChanged

from tests.aws.stored import TABLE, manifest
from tests.fakes.table import TableInMemory
from tests.sandbox.aws.started import Sandbox


@pytest.fixture(params=["dynamo", "memory"])
def manifests(request: pytest.FixtureRequest, dynamo: DynamoTable) -> StoredManifests:
    return StoredManifests(dynamo if request.param == "dynamo" else TableInMemory())


def test_manifests_are_read_as_they_were_written_each_in_its_cluster(
    manifests: StoredManifests,
) -> None:
    policy = manifest("mine")
    scaled = manifest("web", resource="scaledobject.keda.sh", namespace="shop")
    pool = manifest("old", resource="nodepool.karpenter.sh", original='{"kind":"Provisioner"}')
    manifests.write("mine", policy, 0)
    manifests.write("mine", pool, 0)
    manifests.write("mine", scaled, 0)
    manifests.write("mine-2", manifest("mine-2"), 0)
    assert manifests.of("mine") == (policy, pool, scaled)
    assert manifests.of("mine", "cluster.leeway.sh") == (policy,)
    assert manifests.of("nobodys") == ()


def test_the_time_at_which_a_pool_was_deleted_stays_until_it_is_written_again(
    manifests: StoredManifests,
) -> None:
    pool = manifest("web", resource="nodepool.karpenter.sh")
    manifests.write("gone", pool, 0)
    manifests.delete_manifest("gone", pool)
    assert manifests.of("gone") == ()
    (deleted,) = manifests.of("gone", deleted=True)
    assert (deleted.resource, deleted.name, deleted.body) == (pool.resource, "web", "")
    assert deleted.deleted_at is not None
    with pytest.raises(RecordChanged):
        manifests.delete_manifest("gone", pool)
    manifests.write("gone", pool, 0)
    assert manifests.of("gone", deleted=True) == (pool,)


def test_an_item_written_by_hand_does_not_hide_others_and_makes_a_policy_cautious(
    aws: Sandbox, dynamo: DynamoTable
) -> None:
    manifests = StoredManifests(dynamo)

    class Reported:
        lines: ClassVar[list[str]] = []

        def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
            self.lines.append(f"{manifest}: {reason}")

    key = {"pk": {"S": "MANIFESTS#by-hand"}, "sk": {"S": "cluster.leeway.sh#/by-hand"}}
    for attributes in (
        {},
        {"record": {"N": "1"}, "version": {"S": "first"}},
        {"record": {"S": '{"body": "{}", "deleted_at": "yesterday"}'}, "version": {"N": "1.5"}},
    ):
        aws.client("dynamodb").put_item(TableName=TABLE, Item={**key, **attributes})
        scaled = manifest("web", resource="scaledobject.keda.sh", namespace="shop")
        if len(manifests.of("by-hand")) == 1:
            manifests.write("by-hand", scaled, 0)
        assert scaled in manifests.of("by-hand")
        configuration = Configuration(manifests, SystemClock(), Reported())
        assert configuration.policy_of("by-hand") == CAUTIOUS
        assert Reported.lines.pop().startswith("cluster.leeway.sh/by-hand: ")
    aws.client("dynamodb").put_item(TableName=TABLE, Item=key)
    (bare, _) = manifests.of("by-hand")
    manifests.write("by-hand", manifest("by-hand"), bare.version)
    assert Configuration(manifests, SystemClock(), Reported()).policy_of("by-hand") != CAUTIOUS
