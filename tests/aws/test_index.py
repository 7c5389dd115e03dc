"""The index of instances: a storm of notices reads it instead of EC2."""

from collections.abc import Iterator

import pytest
from leeway.aws.table import DynamoTable
from leeway.instances.facts import FACTS as RECORD
from leeway.instances.facts import InstanceFacts, facts_in
from leeway.interruption.instance_state import InstanceState, read_instance
from leeway.interruption.receive_notice import NoticeResult

from tests.aws.receive_notice import TAGS, interruption, launch, receive_notice
from tests.aws.stored import TABLE, table_in
from tests.fakes.functions import Starts
from tests.retirement.retirements import FACTS
from tests.sandbox.aws.started import Sandbox


def facts(number: int, cluster: str = "prod") -> InstanceFacts:
    changes = {"instance": f"i-{number:017x}", "cluster": cluster}
    return FACTS.model_copy(update=changes)


@pytest.fixture
def index(aws: Sandbox) -> Iterator[DynamoTable]:
    index = table_in(aws)
    yield index
    remove(index, *facts_in(index, "prod"), *facts_in(index, "other"))


def remove(index: DynamoTable, *instances: str) -> None:
    index.change(RECORD, delete=({"instance": one} for one in instances))


def calls(aws: Sandbox, action: str) -> int:
    counted: dict[str, int] = aws.control("GET", "status")["calls"]
    return counted.get(action, 0)


def test_written_facts_are_read_by_cluster(index: DynamoTable) -> None:
    many = {one.instance: one for one in map(facts, range(60))}
    index.change(RECORD, many.values())
    index.change(RECORD, [facts(100, "other")])
    assert facts_in(index, "prod") == many
    remove(index, *list(many)[10:])
    assert list(facts_in(index, "prod")) == list(many)[:10]


def test_an_invalid_item_counts_as_missing_and_can_be_written_again(
    aws: Sandbox, index: DynamoTable
) -> None:
    index.change(RECORD, [facts(1), facts(2)])
    aws.client("dynamodb").update_item(
        TableName=TABLE,
        Key={"pk": {"S": f"INSTANCE#{facts(2).instance}"}, "sk": {"S": "FACTS"}},
        UpdateExpression="SET #record = :invalid",
        ExpressionAttributeNames={"#record": "record"},
        ExpressionAttributeValues={":invalid": {"S": "{}"}},
    )
    assert list(facts_in(index, "prod")) == [facts(1).instance]
    index.change(RECORD, [facts(2)])
    assert len(facts_in(index, "prod")) == 2


def test_each_notice_of_a_storm_takes_one_read_and_no_call_of_ec2(
    aws: Sandbox, index: DynamoTable
) -> None:
    storm = [facts(number) for number in range(200, 210)]
    index.change(RECORD, storm)
    counted = (
        "ec2:DescribeInstances",
        "dynamodb:BatchGetItem",
        "dynamodb:Query",
        "dynamodb:PutItem",
    )
    before = {action: calls(aws, action) for action in counted}
    starts = Starts()
    for one in storm:
        receipt = receive_notice(aws, starts).receive(interruption(one.instance, id=one.instance))
        assert [r.result for r in receipt.instances] == [NoticeResult.STARTED]
    assert [calls(aws, action) - before[action] for action in counted] == [0, 10, 0, 10]
    assert len(starts.started) == 10


def test_an_instance_that_is_missing_from_the_index_is_read_from_ec2(
    aws: Sandbox, index: DynamoTable
) -> None:
    instance = launch(aws, TAGS)
    before = calls(aws, "ec2:DescribeInstances")
    starts = Starts()
    receive_notice(aws, starts).receive(interruption(instance))
    assert starts.started == [(instance, "prod", 1)]
    assert calls(aws, "ec2:DescribeInstances") - before == 1


def test_a_record_and_the_facts_of_its_instance_are_read_by_one_call(
    aws: Sandbox, index: DynamoTable, dynamo: DynamoTable
) -> None:
    instance = launch(aws, TAGS)
    assert read_instance(dynamo, instance, ["prod"]) == InstanceState()
    receive_notice(aws, Starts()).receive(interruption(instance))
    index.change(RECORD, [FACTS.model_copy(update={"instance": instance})])
    before = calls(aws, "dynamodb:BatchGetItem")
    known = read_instance(dynamo, instance, ["dev", "prod"])
    assert known.retirement is not None
    assert known.retirement.instance == instance
    assert known.facts is not None
    assert known.facts.owner == FACTS.owner
    assert calls(aws, "dynamodb:BatchGetItem") - before == 1
    assert read_instance(dynamo, instance, ["dev"]).retirement is None
