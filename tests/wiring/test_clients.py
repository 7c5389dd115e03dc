"""The clients of AWS: what they parse of its answers, and how long they wait for one."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from leeway.aws.ec2 import Ec2Sweep, observed_of
from leeway.wiring import clients
from leeway_cli.doctor.read.aws import use_of

from tests.cli.conftest import drop_clients
from tests.sandbox.aws.started import Sandbox, started


@pytest.fixture(scope="module")
def aws() -> Iterator[Sandbox]:
    with started() as (_, url):
        sandbox = Sandbox(url)
        yield sandbox
        sandbox.close()


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Clients that are built in this test, with its environment."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "none")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    drop_clients()
    yield monkeypatch
    drop_clients()


def test_an_instance_is_parsed_without_what_is_not_read(
    aws: Sandbox, configured: pytest.MonkeyPatch
) -> None:
    """A client of boto3's own gets everything. What Leeway reads of an instance is the same."""
    own = aws.client("ec2")
    image = own.describe_images()["Images"][0]["ImageId"]
    tags = [{"Key": "eks:cluster-name", "Value": "prod"}]
    run = own.run_instances(
        ImageId=image,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    name = run["Instances"][0]["InstanceId"]
    own.get_waiter("instance_running").wait(InstanceIds=[name], WaiterConfig={"Delay": 1})
    configured.setenv("AWS_ENDPOINT_URL", aws.url)
    answers = [one.describe_instances(InstanceIds=[name]) for one in (own, clients.client("ec2"))]
    whole, short = (answer["Reservations"][0]["Instances"][0] for answer in answers)
    assert {"NetworkInterfaces", "BlockDeviceMappings"} <= whole.keys()
    assert not {"NetworkInterfaces", "BlockDeviceMappings"} & short.keys()
    assert observed_of(short) == observed_of(whole)
    assert short["LaunchTime"].utcoffset() == timedelta(0)
    assert datetime.now(UTC) - short["LaunchTime"] < timedelta(minutes=5)


@pytest.mark.usefixtures("configured")
def test_the_vcpus_of_an_instance_are_parsed() -> None:
    """`leeway doctor` counts them against the quotas. The sandbox does not answer them."""
    client = clients.client("ec2")
    client.meta.events.register("before-send.ec2.DescribeInstances", _answered)
    (reservation,) = client.describe_instances()["Reservations"]
    (instance,) = reservation["Instances"]
    assert use_of(instance).vcpus == 16
    assert "MetadataOptions" not in instance


def _answered(request: Any, **_: object) -> AWSResponse:
    body = b"""<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
        <reservationSet><item><instancesSet><item>
            <instanceId>i-0123456789abcdef0</instanceId>
            <instanceType>m5.4xlarge</instanceType>
            <cpuOptions><coreCount>8</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>
            <metadataOptions><state>applied</state></metadataOptions>
        </item></instancesSet></item></reservationSet>
    </DescribeInstancesResponse>"""
    answer = AWSResponse(request.url, 200, {}, None)
    answer._content = body
    return answer


@pytest.mark.parametrize(
    "written", ["2026-11-20T09:00:00.000Z", "2026-11-20T09:00:00+00:00", 1795165200, 1795165200.0]
)
def test_times_are_parsed_in_each_form_of_aws(written: object) -> None:
    core = clients.session.__wrapped__()._session
    parsers = core.get_component("response_parser_factory")
    parsed = parsers.create_parser("json")._timestamp_parser(written)
    assert parsed == datetime(2026, 11, 20, 9, tzinfo=UTC)


def test_a_list_that_takes_longer_than_the_default_timeout_takes_one_call(
    aws: Sandbox, configured: pytest.MonkeyPatch
) -> None:
    """The list of all instances has a longer timeout than a call for one instance."""
    key = "AKIASWEEPS0000000001"
    configured.setenv("AWS_ENDPOINT_URL", aws.url)
    configured.setenv("AWS_ACCESS_KEY_ID", key)
    slow: dict[str, object] = {"service": "ec2", "action": "DescribeInstances"}
    slow |= {"latency": clients.READ_TIMEOUT + 1}
    aws.control("PUT", "faults", {"faults": [slow]})
    sweep = Ec2Sweep(partial(clients.client, "ec2", read_timeout=clients.LIST_READ_TIMEOUT))
    assert sweep.instances(["other"]) == []
    calls = aws.control("GET", "status")["calls_by_access_key"]
    assert calls[key]["ec2:DescribeInstances"] == 1
