"""The counts of a chain of requests, as botocore sends them on."""

from urllib.parse import quote

import pytest
from leeway_sandbox.lambda_service.definitions import FunctionDefinition, ServiceError
from leeway_sandbox.lambda_service.invocation import MOST_INVOCATIONS, lineage_field, lineage_of

from .conftest import definition

ONE, TWO = (FunctionDefinition(**definition(name, "plain.echo")) for name in ("one", "two"))


def test_a_chain_of_two_functions_ends_at_the_17th_invocation_of_one() -> None:
    header = "Root=1-00000000-0;Sampled=0"
    for _ in range(MOST_INVOCATIONS):
        for function in (ONE, TWO):
            header = f"Root=1;{quote(lineage_field(lineage_of([header], function)))}"
    with pytest.raises(ServiceError, match="recursive loop"):
        lineage_of([header], ONE)


@pytest.mark.parametrize("header", ["", "Lineage=", "Lineage=x", "Root=1;Lineage=a:|:2"])
def test_a_header_without_counts_begins_a_chain(header: str) -> None:
    assert 1 in lineage_of([header], ONE).values()
