"""SAM templates are read as a deployment expands them."""

from pathlib import Path
from typing import Any

import pytest
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.template import DeployedTemplate, read_template

ROOT = Path(__file__).parents[2]
ARN = "arn:aws:lambda:us-east-1:123456789012:function:"

TEMPLATE = """
Transform: AWS::Serverless-2016-10-31
Parameters:
  Colour: {Type: String, Default: green}
  Names: {Type: CommaDelimitedList, Default: "a, b"}
Mappings:
  Sizes: {green: {memory: 512}}
Conditions:
  Green: !Equals [!Ref Colour, green]
Globals:
  Function:
    Runtime: python3.13
    Handler: handler.handler
    AutoPublishAlias: live
    Layers: [!Ref Common]
Resources:
  Common:
    Type: AWS::Serverless::LayerVersion
    Properties: {ContentUri: layer}
  Receiver:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: receiver
      MemorySize: !FindInMap [Sizes, !Ref Colour, memory]
      Role: !GetAtt Role.Arn
      Environment:
        Variables:
          TABLE: !Ref Table
          NAMES: !Join ["+", !Ref Names]
          WORKER: !Ref Worker.Alias
          TEXT: !Sub "${Colour} ${AWS::Region} ${Queue.QueueName} ${!kept}"
          MAYBE: !If [Green, "yes", !Ref AWS::NoValue]
          FIRST: !Select [0, !Split ["-", "x-y"]]
      EventInvokeConfig:
        MaximumRetryAttempts: 1
        DestinationConfig: {OnFailure: {Type: SQS, Destination: !GetAtt Queue.Arn}}
      Events:
        Notice:
          Type: EventBridgeRule
          Properties:
            Pattern: {source: [aws.ec2]}
            RetryPolicy: {MaximumRetryAttempts: 5}
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      FunctionName: !Sub "${AWS::StackName}-worker"
      CodeUri: worker
      Timeout: 900
      DurableConfig: {ExecutionTimeout: 3600, RetentionPeriodInDays: 7}
      DeadLetterQueue: {Type: SQS, TargetArn: !GetAtt Queue.Arn}
  Role:
    Type: AWS::IAM::Role
    Properties:
      AssumeRolePolicyDocument: {}
      Policies:
        - PolicyName: all
          PolicyDocument:
            Statement:
              - {Effect: Allow, Action: [ec2:DescribeInstances, dynamodb:GetItem], Resource: "*"}
              - {Effect: Allow, Action: ec2:RunInstances, Resource: "*"}
  Table:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}]
      TimeToLiveSpecification: {AttributeName: expires, Enabled: true}
  Queue:
    Type: AWS::SQS::Queue
    Properties: {MessageRetentionPeriod: 60, SqsManagedSseEnabled: true}
  Unwanted:
    Type: AWS::SQS::Queue
    Condition: Red
Outputs:
  Worker: {Value: !Ref Worker.Alias, Description: Works}
  Unwanted: {Value: !Ref Unwanted, Condition: Red}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("layer", "receiver", "worker"):
        (tmp_path / folder).mkdir()
    text = TEMPLATE.replace("Globals:", "  Red: !Not [!Condition Green]\nGlobals:", 1)
    (tmp_path / "template.yaml").write_text(text)
    return tmp_path


def _read(project: Path, **parameters: Any) -> DeployedTemplate:
    return read_template(project / "template.yaml", parameters)


def test_parameters_override_the_templates_defaults(project: Path) -> None:
    text = (project / "template.yaml").read_text().replace("green: {memory", "red: {memory")
    (project / "template.yaml").write_text(text)
    template = _read(project, Colour="red", Names="c")

    assert template.functions[0].environment["NAMES"] == "c"
    assert "MAYBE" not in template.functions[0].environment
    assert [queue.logical_id for queue in template.queues] == ["Queue", "Unwanted"]


def test_a_resource_with_a_false_condition_does_not_exist(project: Path) -> None:
    assert [queue.logical_id for queue in _read(project).queues] == ["Queue"]


def test_code_comes_from_the_source_tree_or_from_a_build(project: Path) -> None:
    build = project / "build"
    for folder in ("Common/python", "Receiver", "Worker"):
        (build / folder).mkdir(parents=True)
    source, _ = _read(project).functions
    built, _ = read_template(project / "template.yaml", {}, build=build).functions

    assert (source.code, source.layers) == (project / "receiver", (project / "layer",))
    assert (built.code, built.layers) == (build / "Receiver", (build / "Common/python",))


def test_a_fifo_queue_without_a_name_gets_one_of_a_fifo_queue(project: Path) -> None:
    path = project / "template.yaml"
    text = path.read_text().replace("{MessageRetentionPeriod: 60", "{FifoQueue: true")
    path.write_text(text)
    (queue,) = _read(project).queues

    assert queue.name == "leeway-Queue.fifo"
    assert queue.arn.endswith(":leeway-Queue.fifo")
    assert queue.attributes["FifoQueue"] == "true"


EVENT = """
        Wake:
          Type: SQS
          Properties: {Queue: !GetAtt Queue.Arn}
"""


def test_an_sqs_event_is_an_event_source_of_the_alias(project: Path) -> None:
    path = project / "template.yaml"
    path.write_text(path.read_text().replace("  Worker:\n", EVENT[1:] + "  Worker:\n", 1))
    (source,) = _read(project).event_sources

    assert source.function == f"{ARN}leeway-Receiver:live"
    assert source.queue == "arn:aws:sqs:us-east-1:123456789012:leeway-Queue"
    assert (source.batch_size, source.partial_failures, source.concurrency) == (10, False, None)


def test_an_event_source_that_is_no_queue_is_refused(project: Path) -> None:
    path = project / "template.yaml"
    event = EVENT[1:].replace("Type: SQS", "Type: DynamoDB").replace("Queue:", "Stream:")
    event = event.replace("}", ", StartingPosition: LATEST}")
    event = event.replace("!GetAtt Queue.Arn", "!GetAtt Table.Arn")
    path.write_text(path.read_text().replace("  Worker:\n", event + "  Worker:\n", 1))

    with pytest.raises(SandboxError, match="ReceiverWake: the sandbox supports enabled event"):
        _read(project)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("!Ref Table", "!Ref Tabel", "Receiver: the template has no parameter or resource Tabel"),
        (
            "!Ref Table",
            "!GetAtt Table.Colour",
            "Receiver: the sandbox does not support the attribute Colour",
        ),
        ("!Ref Table", "!ImportValue x", "Receiver: the sandbox does not support Fn::ImportValue"),
        ("!If [Green", "!If [Blue", "Receiver: the template has no condition Blue"),
        ("[0, !Split", "[9, !Split", "Receiver: Fn::Select of"),
        ("!Ref Colour, memory", "!Ref Colour, disk", "Receiver: Fn::FindInMap of"),
        ("CodeUri: receiver", "CodeUri: nowhere", "Receiver: the folder"),
        ("Pattern: {source: [aws.ec2]}", "Patern: {}", "Receiver"),
        (", Default: green", "", "parameter Colour has no default"),
    ],
)
def test_an_expression_that_cannot_be_resolved_is_named(
    project: Path, before: str, after: str, message: str
) -> None:
    path = project / "template.yaml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))

    with pytest.raises(SandboxError, match=message.replace(".", r"\.")):
        _read(project)


def test_an_unknown_parameter_is_refused(project: Path) -> None:
    with pytest.raises(SandboxError, match="The template has no parameter Color"):
        _read(project, Color="red")


def test_the_stack_has_the_values_outputs_and_resources_of_the_deployment(project: Path) -> None:
    stack = _read(project, Colour="green").stack

    assert stack.parameters == {"Colour": "green", "Names": "a,b"}
    live = f"{ARN}leeway-worker:live"
    assert stack.outputs == {"Worker": {"Value": live, "Description": "Works"}}
    found = {one.logical_id: (one.kind, one.physical_id) for one in stack.resources}
    assert found["WorkerAliaslive"] == ("AWS::Lambda::Alias", live)
    assert found["Role"] == ("AWS::IAM::Role", "leeway-Role")
    (version,) = [one for one in found.values() if one[1].startswith(f"{ARN}leeway-worker:1")]
    assert version[0] == "AWS::Lambda::Version"
    assert "Unwanted" not in found
    assert stack.roles["Role"].properties["Policies"][0]["PolicyName"] == "all"


def test_the_template_of_the_project_can_be_read() -> None:
    template = read_template(ROOT / "template.yaml", {"ClusterNames": "one,two"})
    functions = {function.name: function for function in template.functions}

    receive, retire = functions["leeway-receive-notice"], functions["leeway-retire-node"]
    assert receive.environment["LEEWAY_CLUSTERS"] == "one,two"
    assert receive.environment["LEEWAY_RETIRE_NODE"] == f"{retire.arn}:live"
    assert retire.execution_timeout
    assert {table.name for table in template.tables} == {receive.environment["LEEWAY_TABLE"]}
    assert template.rules
    assert all(rule.targets for rule in template.rules)
