"""Deploying a template into a running sandbox."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from leeway_sandbox.deployment import deploy
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.template import read_template
from moto.server import ThreadedMotoServer

from tests.sandbox import control_token
from tests.sandbox.aws.started import started
from tests.sandbox.lambda_service.conftest import KEYS, Service, eventually, running_service

TEMPLATE = """
Transform: AWS::Serverless-2016-10-31
Resources:
  Common:
    Type: AWS::Serverless::LayerVersion
    Properties: {ContentUri: layer}
  Receiver:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: python3.13
      Handler: handler.handler
      CodeUri: receiver
      Layers: [!Ref Common]
      AutoPublishAlias: live
      Environment: {Variables: {TABLE: !Ref Table}}
      Policies:
        - Statement: [{Effect: Allow, Action: dynamodb:PutItem, Resource: !GetAtt Table.Arn}]
      Events:
        Notice:
          Type: EventBridgeRule
          Properties: {Pattern: {source: [aws.ec2]}}
        Tick:
          Type: ScheduleV2
          Properties: {ScheduleExpression: rate(1 minute), GroupName: !Ref Ticks}
  Ticks:
    Type: AWS::Scheduler::ScheduleGroup
    Properties: {Name: !Sub "${AWS::StackName}-ticks"}
  Table:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
      TimeToLiveSpecification: {AttributeName: expires, Enabled: true}
      PointInTimeRecoverySpecification: {PointInTimeRecoveryEnabled: true}
  Queue:
    Type: AWS::SQS::Queue
"""
DURABLE = """
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: python3.13
      Handler: handler.handler
      CodeUri: receiver
      DurableConfig: {ExecutionTimeout: 60, RetentionPeriodInDays: 1}
"""
RULE = """
  Rule:
    Type: AWS::Events::Rule
    Properties:
      EventPattern: {source: [aws.health]}
      Targets: [{Id: one, Arn: !GetAtt TARGET.Arn}]
"""
PERMISSION = """
  Permission:
    Type: AWS::Lambda::Permission
    Properties:
      Action: lambda:InvokeFunction
      FunctionName: !Ref Worker
      Principal: events.amazonaws.com
      SourceArn: !GetAtt Rule.Arn
"""
SCHEDULE = """
  Nightly:
    Type: AWS::Scheduler::Schedule
    Properties:
      ScheduleExpression: cron(0 3 * * ? *)
      FlexibleTimeWindow: {Mode: "OFF"}
      Target: {Arn: !GetAtt Worker.Arn, RoleArn: "arn:aws:iam::123456789012:role/any"}
"""
CONSUMER = """
  Consumer:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: python3.13
      Handler: handler.handler
      CodeUri: consumer
      Timeout: 20
      AutoPublishAlias: live
      Environment: {Variables: {TABLE: !Ref Table, QUEUE: !Ref Wakes}}
      Policies:
        - Statement: [{Effect: Allow, Action: dynamodb:PutItem, Resource: !GetAtt Table.Arn}]
      Events:
        Wake:
          Type: SQS
          Properties:
            Queue: !GetAtt Wakes.Arn
            BatchSize: 1
            FunctionResponseTypes: [ReportBatchItemFailures]
            ScalingConfig: {MaximumConcurrency: 5}
  Wakes:
    Type: AWS::SQS::Queue
    Properties:
      FifoQueue: true
      VisibilityTimeout: 120
      RedrivePolicy: {deadLetterTargetArn: !GetAtt DeadWakes.Arn, maxReceiveCount: 3}
  DeadWakes:
    Type: AWS::SQS::Queue
    Properties: {FifoQueue: true}
"""
CONSUME = """
import os
import boto3

def handler(event, context):
    if "send" in event:
        boto3.client("sqs").send_message(
            QueueUrl=os.environ["QUEUE"], MessageBody=event["send"], MessageGroupId="one",
            MessageDeduplicationId="1")
        return None
    table = boto3.resource("dynamodb").Table(os.environ["TABLE"])
    for record in event["Records"]:
        table.put_item(Item={"pk": record["body"]})
"""
LAYER = "ANSWER = 42\n"
HANDLER = """
import os
import boto3
from common import ANSWER

def handler(event, context):
    table = boto3.resource("dynamodb").Table(os.environ["TABLE"])
    table.put_item(Item={"pk": "a", **event})
    return ANSWER
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("layer", "receiver", "consumer"):
        (tmp_path / folder).mkdir()
    (tmp_path / "layer" / "common.py").write_text(LAYER)
    (tmp_path / "receiver" / "handler.py").write_text(HANDLER)
    (tmp_path / "consumer" / "handler.py").write_text(CONSUME)
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    return tmp_path


@pytest.fixture
def aws() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def service(aws: str) -> Iterator[Service]:
    with running_service("--aws", aws) as service:
        yield service


def test_a_template_is_deployed_into_the_sandbox(project: Path, aws: str, service: Service) -> None:
    deploy(read_template(project / "template.yaml", {}), aws, service.url, control_token.HEADERS)

    clients: dict[str, Any] = {
        name: boto3.client(name, endpoint_url=aws, **KEYS)
        for name in ("dynamodb", "sqs", "events", "scheduler")
    }
    assert service.invoke("leeway-Receiver:live", {"note": "x"}) == 42
    item = clients["dynamodb"].get_item(TableName="leeway-Table", Key={"pk": {"S": "a"}})["Item"]
    expiry = clients["dynamodb"].describe_time_to_live(TableName="leeway-Table")
    rule = clients["events"].describe_rule(Name="leeway-ReceiverNotice")
    (target,) = clients["events"].list_targets_by_rule(Rule="leeway-ReceiverNotice")["Targets"]
    assert item["note"] == {"S": "x"}
    assert expiry["TimeToLiveDescription"]["AttributeName"] == "expires"
    assert clients["sqs"].get_queue_url(QueueName="leeway-Queue")["QueueUrl"]
    assert json.loads(rule["EventPattern"]) == {"source": ["aws.ec2"]}
    assert target["Arn"].endswith(":function:leeway-Receiver:live")
    tick = clients["scheduler"].get_schedule(Name="ReceiverTick", GroupName="leeway-ticks")
    assert tick["ScheduleExpression"] == "rate(1 minute)"
    assert tick["Target"]["Arn"] == target["Arn"]
    for client in clients.values():
        client.close()


def test_a_function_gets_the_messages_of_its_queue(project: Path) -> None:
    path = project / "template.yaml"
    path.write_text(TEMPLATE + CONSUMER)
    with started() as (_, aws), running_service("--aws", aws) as service:
        deploy(read_template(path, {}), aws, service.url, control_token.HEADERS)
        dynamodb = boto3.client("dynamodb", endpoint_url=aws, **KEYS)
        service.invoke("leeway-Consumer", {"send": "hello"})

        def written() -> Any:
            return dynamodb.get_item(TableName="leeway-Table", Key={"pk": {"S": "hello"}}).get(
                "Item"
            )

        eventually(written)
        (batch,) = eventually(lambda: service.journal("queue-batch"))
        dynamodb.close()
    assert batch["queue"] == "leeway-Wakes.fifo"
    assert batch["messages"][0]["group"] == "one"
    assert batch["outcome"] == "ok"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "VisibilityTimeout: 120",
            "VisibilityTimeout: 19",
            "ConsumerWake: Lambda refuses .* timeout: 19 seconds is less than .* 20 seconds",
        ),
        (
            "BatchSize: 1",
            "MaximumBatchingWindowInSeconds: 1",
            "Batching window is not supported for FIFO queues",
        ),
        (
            "Queue: !GetAtt Wakes.Arn",
            'Queue: "arn:aws:sqs:us-east-1:123456789012:elsewhere"',
            "the template has no arn:aws:sqs:us-east-1:123456789012:elsewhere",
        ),
        (
            "Timeout: 20",
            "DurableConfig: {ExecutionTimeout: 60, RetentionPeriodInDays: 1}",
            "the sandbox does not support queues of durable functions",
        ),
    ],
)
def test_a_mapping_that_lambda_refuses_is_refused(
    project: Path, before: str, after: str, message: str
) -> None:
    path = project / "template.yaml"
    assert before in CONSUMER
    path.write_text(TEMPLATE + CONSUMER.replace(before, after, 1))
    nowhere = "http://127.0.0.1:9"

    with pytest.raises(SandboxError, match=message):
        deploy(read_template(path, {}), nowhere, nowhere, {})


@pytest.mark.parametrize(
    ("added", "message"),
    [
        (RULE.replace("TARGET", "Receiver"), "Rule: no AWS::Lambda::Permission lets"),
        (
            DURABLE + RULE.replace("TARGET", "Worker") + PERMISSION,
            "Rule: the durable function Worker needs an alias",
        ),
        (DURABLE + SCHEDULE, "Nightly: the durable function Worker needs an alias"),
    ],
)
def test_a_target_that_can_never_be_invoked_is_refused(
    project: Path, added: str, message: str
) -> None:
    path = project / "template.yaml"
    path.write_text(path.read_text() + added)
    nowhere = "http://127.0.0.1:9"

    with pytest.raises(SandboxError, match=message):
        deploy(read_template(path, {}), nowhere, nowhere, {})
