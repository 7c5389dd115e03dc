"""Lambda describes functions, aliases, event source mappings and the account."""

import pytest
from botocore.exceptions import ClientError

from .conftest import ARN, Service


def test_a_function_is_active_and_has_no_reserved_concurrency(service: Service) -> None:
    found = service.client.get_function_configuration(FunctionName="echo")
    assert (found["FunctionArn"], found["State"]) == (f"{ARN}echo", "Active")
    reserved = service.client.get_function_concurrency(FunctionName="echo")
    assert "ReservedConcurrentExecutions" not in reserved


def test_a_function_whose_reserved_concurrency_is_zero_is_throttled(service: Service) -> None:
    service.client.put_function_concurrency(FunctionName="echo", ReservedConcurrentExecutions=0)
    reserved = service.client.get_function_concurrency(FunctionName="echo")
    assert reserved["ReservedConcurrentExecutions"] == 0
    with pytest.raises(ClientError, match="TooManyRequestsException"):
        service.client.invoke(FunctionName="echo", Payload=b"{}")
    service.client.delete_function_concurrency(FunctionName="echo")
    assert "FunctionError" not in service.client.invoke(FunctionName="echo", Payload=b"{}")


def test_an_alias_points_to_the_published_version(service: Service) -> None:
    found = service.client.get_alias(FunctionName="echo", Name="live")
    assert (found["AliasArn"], found["FunctionVersion"]) == (f"{ARN}echo:live", "1")


def test_what_does_not_exist_is_not_found(service: Service) -> None:
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        service.client.get_function_configuration(FunctionName="nothing")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        service.client.get_alias(FunctionName="echo", Name="nothing")


def test_the_account_has_the_default_concurrency(service: Service) -> None:
    limit = service.client.get_account_settings()["AccountLimit"]
    assert limit["UnreservedConcurrentExecutions"] == limit["ConcurrentExecutions"] == 1000
    assert service.client.list_event_source_mappings()["EventSourceMappings"] == []
