"""Deploying a template into a running sandbox."""

from pathlib import Path

import pytest
from leeway_sandbox.deployment import deploy
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.template import read_template

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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("layer", "receiver", "consumer"):
        (tmp_path / folder).mkdir()
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    return tmp_path


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
