"""What boto3's errors mean to Leeway."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from leeway.ports.aws import CloudRefused, CloudUnavailable

# Error codes by which AWS services say "not now". Source: botocore's standard retry mode,
# EC2 API reference "Error codes", EC2 Auto Scaling API reference "Common errors".
_PASSING = frozenset(
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


@contextmanager
def aws_errors() -> Iterator[None]:
    """Raise AWS's errors as CloudUnavailable (worth another try) or CloudRefused (not)."""
    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code_of(error) in _PASSING or status == 429 or status >= 500:
            raise CloudUnavailable(str(error)) from error
        raise CloudRefused(str(error)) from error
    except BotoCoreError as error:
        raise CloudUnavailable(f"{type(error).__name__}: {error}") from error
