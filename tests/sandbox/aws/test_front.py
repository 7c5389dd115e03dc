"""The server: faults, throttling, counts, EKS links, prices, unsupported calls."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from leeway_sandbox.aws.calls import Call
from leeway_sandbox.aws.throttling import Bucket, Throttle, limits

from tests.sandbox.aws.started import Sandbox


def _code(call: Callable[..., Any], **arguments: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as error:
        call(**arguments)
    response = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


@pytest.mark.parametrize(
    ("service", "action", "error", "call"),
    [
        ("ec2", "DescribeInstances", "RequestLimitExceeded", "describe_instances"),
        ("autoscaling", "Describe*", "Throttling", "describe_auto_scaling_groups"),
        ("dynamodb", "*", "ProvisionedThroughputExceededException", "list_tables"),
        ("eks", "ListClusters", "ServerException", "list_clusters"),
        ("sqs", "*", "ThrottlingException", "list_queues"),
        ("sts", "*", "ServiceUnavailable", "get_caller_identity"),
    ],
)
def test_a_fault_answers_in_the_protocol_of_the_service_up_to_its_count(
    aws: Sandbox, service: str, action: str, error: str, call: str
) -> None:
    fault = {"service": service, "action": action, "error": error, "status": 503, "count": 2}
    aws.control("PUT", "faults", {"faults": [fault]})
    client = aws.client(service)
    assert _code(getattr(client, call)) == (error, 503)
    assert _code(getattr(client, call)) == (error, 503)
    getattr(client, call)()
    assert aws.control("GET", "faults")["faults"][0]["count"] == 0


@pytest.mark.parametrize(
    ("service", "call", "error"),
    [
        ("ec2", "describe_instances", ("AuthFailure", 401)),
        ("autoscaling", "describe_auto_scaling_groups", ("SignatureDoesNotMatch", 403)),
        ("dynamodb", "list_tables", ("InvalidSignatureException", 400)),
        ("eks", "list_clusters", ("InvalidSignatureException", 403)),
    ],
)
def test_a_call_that_is_signed_for_another_region_is_refused(
    aws: Sandbox, service: str, call: str, error: tuple[str, int]
) -> None:
    """As users of AWS report it, for example in aws/aws-sdk-js issues 4002 and 4545."""
    other = aws.client(service, "eu-west-1")
    assert _code(getattr(other, call)) == error


def test_a_fault_after_the_action_loses_only_its_answer(aws: Sandbox) -> None:
    fault = {
        "service": "sqs",
        "action": "CreateQueue",
        "error": "InternalError",
        "status": 500,
        "when": "after",
    }
    aws.control("PUT", "faults", {"faults": [fault]})
    assert _code(aws.client("sqs").create_queue, QueueName="there")[1] == 500
    aws.control("PUT", "faults", {"faults": []})
    assert aws.client("sqs").get_queue_url(QueueName="there")


def test_a_malformed_fault_is_refused_and_changes_nothing(aws: Sandbox) -> None:
    fault = {"service": "ec2", "error": "RequestLimitExceeded"}
    aws.control("PUT", "faults", {"faults": [fault]})
    assert aws.answer("PUT", "faults", {"faults": [{"rate": 2}]}).status_code == 400
    assert aws.control("GET", "faults")["faults"][0]["service"] == "ec2"
    aws.control("PUT", "faults", {"faults": []})


@pytest.mark.parametrize(
    ("action", "parameters", "size", "refill"),
    [
        ("DescribeInstances", ["InstanceId.1"], 100, 20),
        ("DescribeInstances", [], 50, 10),
        ("DescribeInstanceTypes", [], 100, 20),
        ("RunInstances", [], 5, 2),
        ("TerminateInstances", ["InstanceId.1"], 100, 5),
        ("CreateLaunchTemplate", [], 50, 5),
    ],
)
def test_each_action_has_the_bucket_that_ec2_documents(
    action: str, parameters: list[str], size: float, refill: float
) -> None:
    form = {parameter: ["i-0123456789abcdef0"] for parameter in parameters}
    call = Call("ec2", action, "us-east-1", "AKIAIOSFODNN7EXAMPLE", form)
    assert limits(call)[1:] == (size, refill)


def test_a_bucket_refills_at_its_rate_and_never_beyond_its_size() -> None:
    bucket = Bucket(size=3, rate=2, tokens=3, filled_at=0)
    assert [bucket.take(0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(0.5), bucket.take(0.5)] == [True, False]
    assert [bucket.take(60) for _ in range(4)] == [True, True, True, False]


def test_launching_more_instances_than_the_bucket_of_instances_holds_is_refused() -> None:
    throttle = Throttle()
    throttle.switch(enabled=True, share=1)

    def launch(number: int) -> tuple[str, str, int] | None:
        form = {"MaxCount": [str(number)]}
        return throttle.refuses(Call("ec2", "RunInstances", "us-east-1", "AKIA", form))

    assert launch(900) is None
    assert launch(200) == ("RequestLimitExceeded", "Request limit exceeded.", 503)
    assert launch(100) is None


def test_other_clients_leave_a_share_of_the_buckets(aws: Sandbox) -> None:
    aws.control("PUT", "throttle", {"enabled": True, "share": 0.4})
    before = aws.control("GET", "status")["throttled"].get("ec2:StartInstances", 0)
    start = aws.client("ec2").start_instances
    codes = [_code(start, InstanceIds=["i-0123456789abcdef0"])[1] for _ in range(4)]
    refused = aws.control("GET", "status")["throttled"]["ec2:StartInstances"] - before
    aws.control("PUT", "throttle", {"enabled": False})
    assert codes.count(503) == refused > 0
    assert codes[:2] == [400, 400], "of five, two are left"


def test_calls_are_counted_by_action_and_by_caller(aws: Sandbox) -> None:
    before = aws.control("GET", "status")["calls"].get("sts:GetCallerIdentity", 0)
    aws.client("sts").get_caller_identity()
    status = aws.control("GET", "status")
    assert status["calls"]["sts:GetCallerIdentity"] == before + 1
    own = status["calls_by_access_key"]["AKIAIOSFODNN7EXAMPLE"]
    assert own["sts:GetCallerIdentity"] == before + 1


def test_a_link_whose_authority_cannot_be_read_is_refused(aws: Sandbox) -> None:
    link = {"endpoint": "https://127.0.0.1:6443", "ca_file": "nowhere.crt"}
    answer = aws.answer("PUT", "links", {"eks": {"demo": link}})
    assert answer.status_code == 400
    assert "nowhere.crt" in answer.json()["error"]


def test_an_unsupported_call_is_answered_with_not_implemented(aws: Sandbox) -> None:
    code, status = _code(
        aws.client("autoscaling").describe_load_balancer_target_groups,
        AutoScalingGroupName="nobody",
    )
    assert (code, status) == ("ValidationError", 400)
    code, status = _code(
        aws.client("ec2").describe_instance_topology,
    )
    assert (code, status) == ("NotImplemented", 501)


def _products(aws: Sandbox, **attributes: str) -> list[dict[str, Any]]:
    wanted = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in attributes.items()
    ]
    pages = aws.client("pricing").get_paginator("get_products")
    listed = pages.paginate(ServiceCode="AmazonEC2", Filters=wanted)
    return [json.loads(entry) for page in listed for entry in page["PriceList"]]


def _spot(aws: Sandbox, **wanted: Any) -> dict[tuple[str, str], float]:
    pages = aws.client("ec2").get_paginator("describe_spot_price_history")
    return {
        (entry["AvailabilityZone"], entry["ProductDescription"]): float(entry["SpotPrice"])
        for page in pages.paginate(**wanted)
        for entry in page["SpotPriceHistory"]
    }


LINUX = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
}


def test_without_filters_windows_and_unused_reservations_are_listed_too(aws: Sandbox) -> None:
    attributes = [
        product["product"]["attributes"] for product in _products(aws, instanceType="m5.large")
    ]
    assert {one["operatingSystem"] for one in attributes} == {"Linux", "Windows"}
    assert {one["capacitystatus"] for one in attributes} == {"Used", "UnusedCapacityReservation"}
    spot = _spot(aws, InstanceTypes=["m5.large"], AvailabilityZone="us-east-1a")
    assert spot["us-east-1a", "Windows"] > spot["us-east-1a", "Linux/UNIX"]
    assert not _products(aws, instanceType="m5.large", tenancy="Dedicated")


def test_an_unknown_control_api_is_not_found(aws: Sandbox) -> None:
    assert aws.answer("GET", "nothing").status_code == 404
