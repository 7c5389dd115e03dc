"""`leeway explain instance`: the state of a launch, and the console output of EC2."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from leeway.admission.record import ADMISSION, Admission, Launch
from leeway.execution.attempt import Phase
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind
from leeway.launch.carry_out import NODE_LAUNCHED
from leeway_cli import main

from tests.aws.stored import table_in
from tests.sandbox.aws.started import Sandbox

type Run = Callable[..., tuple[int, str, str]]
BROKEN = "#!/bin/sh\necho no kubelet here\n"


@pytest.fixture
def run(aws: Sandbox, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run(["explain", "instance", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def launch(aws: Sandbox, kind: str = "m5.large", minutes: int = 6) -> str:
    """An instance of cluster prod whose user data starts no kubelet."""
    tags = [{"Key": "kubernetes.io/cluster/prod", "Value": "owned"}]
    ec2 = aws.client("ec2")
    (image,) = ec2.describe_images(Filters=[{"Name": "name", "Values": [AMI]}])["Images"]
    (launched,) = ec2.run_instances(
        ImageId=image["ImageId"],
        InstanceType=kind,
        MinCount=1,
        MaxCount=1,
        UserData=BROKEN,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"]
    instance = str(launched["InstanceId"])
    at = datetime.now(UTC) - timedelta(minutes=minutes)
    owner = Owner(OwnerKind.LEEWAY, "web")
    facts = InstanceFacts(
        instance=instance,
        cluster="prod",
        private_dns_name="",
        zone="us-east-1a",
        instance_type=kind,
        capacity_type="on-demand",
        owner=owner,
    )
    record = Admission(
        facts=facts,
        attempt=1,
        phase=Phase.RUNNING,
        noticed_at=at,
        deadline=at + timedelta(minutes=15),
        reason=NODE_LAUNCHED(instance=instance, pool="web"),
        launch=Launch(intent="one", pool="web", at=at),
    )
    table_in(aws).put(ADMISSION, record)
    return instance


AMI = "amazon-eks-node-al2023-x86_64-standard-1.34-v20261101"


def test_a_late_instance_is_shown_with_its_pool_and_the_usual_causes(
    run: Run, aws: Sandbox
) -> None:
    code, out, err = run(launch(aws))
    assert (code, err) == (0, "")
    for text in ("for pool web", "has not joined", "access entry of the node role"):
        assert text in out
    assert "the usual causes" not in run(launch(aws, minutes=1))[1]


@pytest.mark.parametrize("kind", ["m5.large", "m4.large"])
def test_the_console_output_is_printed_only_if_it_is_asked_for(
    run: Run, aws: Sandbox, kind: str
) -> None:
    instance, ec2 = launch(aws, kind), aws.client("ec2")
    aws.wait(lambda: "nodeadm" in ec2.get_console_output(InstanceId=instance).get("Output", ""))
    assert "Linux version" not in run(instance)[1]
    out = run(instance, "--console")[1]
    assert "Linux version" in out
    assert "nodeadm" in out
    document = json.loads(run(instance, "--console", "-o", "json")[1])
    assert "nodeadm" in document["console"]
    assert (document["pool"], document["joined"]) == ("web", False)
    assert json.loads(run(instance, "-o", "json")[1])["console"] is None


def test_an_instance_cannot_control_the_terminal(
    run: Run, aws: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "boot\r\n\x1b]0;title\x07 secret\n"
    monkeypatch.setattr("leeway_cli.explain.instance.console_output", lambda _: hostile)
    out = run(launch(aws), "--console")[1]
    assert "\x1b" not in out
    assert "secret" in out


def test_bad_input_and_unknown_instances_are_one_line(run: Run) -> None:
    code, _, err = run("node-1")
    assert (code, err.strip()) == (
        2,
        "leeway: INSTANCE: expected the id of an instance, got 'node-1'.",
    )
    code, _, err = run("i-0123456789abcdef0")
    assert code == 1
    assert "EC2 shows no instance i-0123456789abcdef0 in this region" in err
