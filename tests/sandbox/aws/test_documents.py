"""Answers that are written without moto's serializer say what moto's serializer says."""

from typing import Any

import pytest
from botocore.parsers import create_parser
from leeway_sandbox.aws.documents import Documents
from leeway_sandbox.aws.prices import PUBLISHED
from moto.core.responses import ActionContext, ActionResult, BaseResponse
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, InstanceTypeBackend

OFFER = {
    "InstanceType": "m5.large",
    "ProductDescription": "Linux/UNIX <&> Windows",
    "SpotPrice": "0.035000",
    "AvailabilityZone": "us-east-1a",
    "Timestamp": PUBLISHED,
}
TYPES = InstanceTypeBackend.instance_types


def answered(operation: str, result: ActionResult) -> Any:
    """What a client reads from the answer."""
    model = get_service_model("ec2")
    found = model.operation_model(operation)
    serializer = get_serializer_class("ec2", "ec2")
    response = BaseResponse(service_name="ec2")
    status, headers, body = result.execute_result(ActionContext(model, found, serializer, response))
    assert (status, headers) == (200, {"Content-Type": "text/xml"})
    raw = {
        "status_code": status,
        "headers": headers,
        "body": body.encode() if isinstance(body, str) else body,
    }
    read = create_parser("ec2").parse(raw, found.output_shape)
    return {name: value for name, value in read.items() if name != "ResponseMetadata"}


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ("DescribeInstanceTypes", {"InstanceTypes": TYPES[::20]}),
        ("DescribeInstanceTypes", {"InstanceTypes": []}),
        (
            "DescribeInstanceTypeOfferings",
            {"InstanceTypeOfferings": INSTANCE_TYPE_OFFERINGS["region"]["us-east-1"][::20]},
        ),
        ("DescribeSpotPriceHistory", {"SpotPriceHistory": [OFFER, OFFER], "NextToken": "2"}),
    ],
)
def test_documents_are_answered_as_by_moto(operation: str, result: dict[str, Any]) -> None:
    expected = answered(operation, ActionResult(result))
    assert answered(operation, Documents(result)) == expected
    assert expected
