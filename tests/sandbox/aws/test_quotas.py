"""Service Quotas has the vCPU quotas of EC2."""

import pytest
from botocore.exceptions import ClientError

from tests.sandbox.aws.started import Sandbox


def test_quotas_come_in_pages(aws: Sandbox) -> None:
    quotas = aws.client("service-quotas")
    pages = quotas.get_paginator("list_service_quotas").paginate(
        ServiceCode="ec2", PaginationConfig={"PageSize": 3}
    )
    found = [[one["QuotaCode"] for one in page["Quotas"]] for page in pages]
    assert [len(page) for page in found] == [3, 1]
    assert "L-34B43A08" in found[0]
    assert len({code for page in found for code in page}) == 4


def test_other_services_have_none(aws: Sandbox) -> None:
    with pytest.raises(ClientError, match="NoSuchResourceException"):
        aws.client("service-quotas").list_service_quotas(ServiceCode="lambda")
