"""Each statement that a function's role loses is exactly what that function finds missing.

The sandbox judges the calls of functions by the policies that IAM has for their roles.
"""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pytest
from leeway.launch.node_settings import cluster_tags
from leeway.launch.templates import tag_list
from leeway_cli.doctor.facts import FunctionAnswers
from leeway_cli.doctor.names import FUNCTIONS
from leeway_cli.doctor.read.probes import answers_of
from leeway_sandbox.provisioning import IMAGE, client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario

from tests.cli.conftest import drop_clients
from tests.doctor.broken import CLUSTER, GROUP, STACK, without

NOTHING_TO_ASK_ABOUT = {
    "EndInstancesThatJoinedTheClusters",
    "EndLaunchedInstancesThatNeverJoin",
}
"""No instance of this sandbox is one that these statements are about."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    scenario = Scenario(cluster=CLUSTER, groups=(Group(GROUP, 2, terminate_hook=True),))
    idle = {"aws": ["--schedule-speed", "0"]}
    state = tmp_path_factory.mktemp("sandbox")
    with Sandbox.start(scenario, state_dir=state, options=idle) as running:
        create_template(running)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in running.environment().items():
                patch.setenv(name, value)
            drop_clients()
            yield running
            drop_clients()


def create_template(sandbox: Sandbox) -> None:
    """Create a launch template as Leeway creates it for the cluster."""
    tags = tag_list(cluster_tags(CLUSTER))
    client("ec2", sandbox.aws_url).create_launch_template(
        LaunchTemplateName=f"leeway-{CLUSTER}-0123456789abcdef",
        LaunchTemplateData={
            "ImageId": IMAGE,
            "IamInstanceProfile": {"Name": "leeway-sandbox-nodes"},
            "TagSpecifications": [{"ResourceType": "network-interface", "Tags": tags}],
        },
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )


def said(answers: tuple[FunctionAnswers, ...], *verdicts: str) -> set[tuple[str, str]]:
    """The statements about which functions got these answers."""
    return {
        (one.function, each.statement)
        for one in answers
        for each in one.answers
        if each.answer in verdicts
    }


def test_each_lost_statement_is_what_its_function_finds_missing(sandbox: Sandbox) -> None:
    healthy = answers_of(STACK, [CLUSTER])
    assert {one.function for one in healthy} == {*FUNCTIONS}
    assert not [one for one in healthy if one.problem or one.cluster_problem]
    assert said(healthy, "denied", "unclear", "unreachable") == set()
    unasked = said(healthy, "nothing to ask about") - said(healthy, "allowed")
    assert {statement for _, statement in unasked} == NOTHING_TO_ASK_ABOUT
    allowed: dict[str, list[str]] = {}
    for function, statement in sorted(said(healthy, "allowed")):
        allowed.setdefault(function, []).append(statement)
    for number, lost in enumerate(zip_longest(*allowed.values())):
        taken = {f: s for f, s in zip(allowed, lost, strict=True) if s is not None}
        with without(sandbox, taken):
            answers = answers_of(STACK, [CLUSTER], [*taken])
        assert said(answers, "denied") == {*taken.items()}, number


@pytest.mark.parametrize(
    "statement",
    [
        "UseResources",
        "LaunchFromTemplatesOfLeeway",
        "NameTemplatesThatEc2DoesNotFind",
        "TagOnlyAtCreation",
        "GiveNodesTheirRole",
    ],
)
def test_the_answer_of_a_launch_names_the_statement_that_ec2_checked(
    sandbox: Sandbox, statement: str
) -> None:
    with without(sandbox, {"provision-nodes": statement}):
        answers = answers_of(STACK, [CLUSTER], ["provision-nodes"])
    assert said(answers, "denied") == {("provision-nodes", statement)}


def test_probes_leave_nothing_behind(sandbox: Sandbox) -> None:
    def state() -> Any:
        assert sandbox.deployed
        (table,) = sandbox.deployed.tables
        aws = {one: client(one, sandbox.aws_url) for one in ("dynamodb", "ec2", "sqs")}
        items = aws["dynamodb"].scan(TableName=table.name)["Items"]
        (queue,) = aws["sqs"].list_queues(QueueNamePrefix="leeway-provision.fifo")["QueueUrls"]
        return (
            {one["pk"]["S"] for one in items if not one["pk"]["S"].startswith("ENDPOINT#")},
            len(aws["ec2"].describe_launch_templates()["LaunchTemplates"]),
            len(aws["ec2"].describe_instances()["Reservations"]),
            aws["sqs"].get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"][
                "ApproximateNumberOfMessages"
            ],
            [e for e in sandbox.journal() if e["kind"] in ("put-events", "fleet", "pod-deletion")],
        )

    before = state()
    assert said(answers_of(STACK, [CLUSTER]), "denied") == set()
    assert state() == before
