"""Translates boto3's errors into CloudUnavailable and CloudRefused."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from leeway.ports.aws import CloudRefused, CloudUnavailable

# Error codes after which the same call may succeed. Source: botocore's standard retry mode,
# EC2 API reference "Error codes", EC2 Auto Scaling API reference "Common errors".
_TRANSIENT = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "IdempotentCallInProgress",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottledException",
        "RequestTimeout",
        "RequestTimeoutException",
        "RequestThrottled",
        "ResourceConflictException",
        "ResourceContention",
        "ScalingActivityInProgress",
        "ServiceException",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "TransactionInProgressException",
        "Unavailable",
    }
)


def code_of(error: ClientError) -> str:
    """Return the service's error code."""
    return str(error.response.get("Error", {}).get("Code", ""))


def message_of(error: ClientError) -> str:
    """Return the action, the error code and the service's message:
    `PutItem: ThrottlingException: Rate exceeded`."""
    message = error.response.get("Error", {}).get("Message", "")
    return ": ".join(filter(None, (error.operation_name, code_of(error), message)))


@contextmanager
def aws_errors() -> Iterator[None]:
    """Raise errors that a retry may fix as CloudUnavailable, all others as CloudRefused."""
    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code_of(error) in _TRANSIENT or status == 429 or status >= 500:
            raise CloudUnavailable(message_of(error)) from error
        raise CloudRefused(message_of(error)) from error
    except BotoCoreError as error:
        raise CloudUnavailable(f"{type(error).__name__}: {error}") from error
