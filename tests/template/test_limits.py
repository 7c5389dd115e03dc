"""The quotas of AWS for a stack with many clusters, in any partition."""

import json
import re
from typing import Any

import pytest
from leeway_sandbox.intrinsics import Resolver

from tests.template.granted import resources
from tests.template.translation import TEMPLATE, translated

POLICIES = 10_240
"""Characters of all inline policies of a role, without whitespace. Source: IAM user guide, "IAM and
AWS STS quotas"."""

ENVIRONMENT = 4_096
"""Bytes of a function's variables, names and values. Source: Lambda developer guide, "Lambda
quotas"."""

MANY = {
    "sixty names of thirty": [f"production-eu-west-1-shop-{n:04}" for n in range(60)],
    "forty names of fifty": [
        f"platform-production-europe-frankfurt-checkout-{n:04}" for n in range(40)
    ],
}
"""The numbers of clusters in docs/deploy.md."""

ROLES = [name for name, r in resources().items() if r["Type"] == "AWS::IAM::Role"]
FUNCTIONS = [name for name, r in resources().items() if r["Type"] == "AWS::Lambda::Function"]
REGION = "ap-southeast-2"


def resolved(clusters: list[str]) -> Resolver:
    """Return the resolved template for a stack with a long name in a region with a long name."""
    parameters = {"ClusterNames": ",".join(clusters)}
    stack, account = "leeway-of-the-platform-team", "123456789012"
    return Resolver(translated(), parameters, stack=stack, region=REGION, account=account)


@pytest.mark.parametrize("case", MANY)
def test_the_policies_of_a_role_fit_the_quota_with_many_clusters(case: str) -> None:
    resolver = resolved(MANY[case])
    for role in ROLES:
        policies = resolver.properties(role)["Policies"]
        documents = json.dumps([p["PolicyDocument"] for p in policies])
        assert len(re.sub(r"\s", "", documents)) <= POLICIES, role


@pytest.mark.parametrize("case", MANY)
def test_the_environment_of_a_function_fits_the_quota_with_many_clusters(case: str) -> None:
    resolver = resolved(MANY[case])
    for function in FUNCTIONS:
        variables = resolver.properties(function)["Environment"]["Variables"]
        size = sum(len(name) + len(value) for name, value in variables.items())
        assert size <= ENVIRONMENT, function


def test_the_docs_have_these_numbers() -> None:
    page = (TEMPLATE.parent / "docs" / "deploy.md").read_text()
    assert "sixty clusters with names of 30 characters, or forty with names of 50" in page
    assert [{len(name) for name in names} for names in MANY.values()] == [{30}, {50}]
    assert [len(names) for names in MANY.values()] == [60, 40]


def test_no_arn_names_a_partition() -> None:
    parameters = translated()["Parameters"]
    patterns = {str(parameter.get("AllowedPattern")) for parameter in parameters.values()}
    arns = [text for text in texts(translated()) if "arn:" in text and text not in patterns]
    assert len(arns) > 10
    assert [arn for arn in arns if not arn.startswith("arn:${AWS::Partition}:")] == []


def test_no_code_of_functions_and_command_line_names_a_partition() -> None:
    root = TEMPLATE.parent
    sources = [
        p for f in ("layers/leeway/leeway", "functions", "cli") for p in root.glob(f"{f}/**/*.py")
    ]
    assert len(sources) > 100
    assert [str(path) for path in sources if "arn:aws" in path.read_text()] == []


def texts(node: Any) -> list[str]:
    """Return all strings of a document."""
    if isinstance(node, str):
        return [node]
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [text for one in inner for text in texts(one)]
