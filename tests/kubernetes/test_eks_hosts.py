"""A cluster's token is sent to EKS API servers of the region only."""

import pytest
from leeway.kubernetes.eks import dns_suffix, endpoint_problem

ID = "FF1DE699AA64BDA14ED2F1570FB48502"


@pytest.mark.parametrize(
    ("url", "region"),
    [
        (f"https://{ID}.gr7.us-east-1.eks.amazonaws.com", "us-east-1"),
        (f"https://{ID}.yl4.ap-southeast-4.eks.amazonaws.com/", "ap-southeast-4"),
        (f"https://{ID}.sk1.us-gov-west-1.eks.amazonaws.com:443", "us-gov-west-1"),
        (f"https://{ID}.sk1.eks-cluster.us-east-1.api.aws", "us-east-1"),
        (f"https://{ID}.yl4.cn-north-1.eks.amazonaws.com.cn", "cn-north-1"),
        (f"https://{ID}.yl4.eks-cluster.cn-north-1.api.amazonwebservices.com.cn", "cn-north-1"),
        (f"https://{ID}.a7.us-iso-east-1.eks.c2s.ic.gov", "us-iso-east-1"),
        (f"https://{ID}.a7.us-isob-east-1.eks.sc2s.sgov.gov", "us-isob-east-1"),
        (f"https://{ID}.a7.eusc-de-east-1.eks.amazonaws.eu", "eusc-de-east-1"),
    ],
)
def test_an_api_server_of_the_region_is_trusted(url: str, region: str) -> None:
    assert endpoint_problem(url, region) == ""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (f"http://{ID}.gr7.us-east-1.eks.amazonaws.com", "is not https"),
        (f"https://{ID}.gr7.eu-west-1.eks.amazonaws.com", "not an EKS API server of us-east-1"),
        (f"https://{ID}.gr7.us-east-1.eks.amazonaws.com.evil.example", "not an EKS API server"),
        (f"https://{ID}.gr7.us-east-1.eks.amazonaws.com.cn", "not an EKS API server"),
        (f"https://{ID}.gr7.us-east-1.eks.amazonaws.com:8443", "EKS API servers have port 443"),
        (f"https://{ID}.gr7.us-east-1.eks.amazonaws.com@evil.example", "contains credentials"),
        (f"https://{ID}.gr7.us-east-1.eks.amazonaws.com:443@evil.example", "contains credentials"),
        ("https://abcde12345.execute-api.us-east-1.api.aws", "not an EKS API server"),
        (f"https://{ID}.execute-api.us-east-1.api.aws", "not an EKS API server"),
        (f"https://{ID}.s3.us-east-1.api.aws", "not an EKS API server"),
        ("https://eks.us-east-1.amazonaws.com", "not an EKS API server"),
        ("https://evil.example", "not an EKS API server"),
        (
            "https://evil.example#" + f"{ID}.gr7.us-east-1.eks.amazonaws.com",
            "not an EKS API server",
        ),
        ("https://127.0.0.1:6443", "EKS API servers have port 443"),
        ("https://169.254.169.254", "not an EKS API server"),
        ("https://[::1", "is not an address"),
        ("", "is not https"),
    ],
)
def test_any_other_address_is_refused_with_a_reason(url: str, why: str) -> None:
    assert why in endpoint_problem(url, "us-east-1")


def test_the_host_of_a_configured_endpoint_is_trusted_by_https_only() -> None:
    assert endpoint_problem("https://127.0.0.1:6443", "us-east-1", extra_host="127.0.0.1") == ""
    assert "not https" in endpoint_problem(
        "http://127.0.0.1:6443", "us-east-1", extra_host="127.0.0.1"
    )
    assert endpoint_problem("https://127.0.0.2", "us-east-1", extra_host="127.0.0.1")
    assert endpoint_problem("https://evil.example", "us-east-1", extra_host="")


def test_each_partition_has_its_suffix() -> None:
    assert dns_suffix("us-isof-south-1") == "csp.hci.ic.gov"
    assert dns_suffix("cn-northwest-1") == "amazonaws.com.cn"
    assert dns_suffix("us-gov-east-1") == "amazonaws.com"
