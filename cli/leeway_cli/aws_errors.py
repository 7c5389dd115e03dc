"""Turns errors of AWS into errors of a command: one line that says what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from leeway.reasons import Reason

from leeway_cli.errors import CannotBeDoneError, as_clause
from leeway_cli.reasons import (
    AWS_ACCESS_DENIED,
    AWS_CALL_FAILED,
    AWS_CREDENTIALS_MISSING,
    AWS_CREDENTIALS_REJECTED,
    AWS_PROFILE_NOT_FOUND,
    AWS_REGION_MISSING,
    AWS_RESOURCE_NOT_FOUND,
    AWS_SIGN_IN_REQUIRED,
    AWS_THROTTLED,
    AWS_UNREACHABLE,
)

_ACTION = re.compile(r"not authorized to perform: ([\w-]+:\w+)(?: on resource: (\S+))?")
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_REJECTED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
    }
)


@contextmanager
def aws_errors(target: str) -> Iterator[None]:
    """Turn errors of AWS into errors of the command; `target` names the resource, as in `table x`.

    Raises:
        CannotBeDoneError: AWS refused a request or did not answer.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from leeway.ports.aws import CloudRefused, CloudUnavailable

    try:
        yield
    except (CloudRefused, CloudUnavailable) as error:
        cause = error.__cause__ or error
        raise CannotBeDoneError(_reason_of(cause, target)) from error
    except (BotoCoreError, ClientError) as error:
        raise CannotBeDoneError(_reason_of(error, target)) from error


def _reason_of(error: BaseException, target: str) -> Reason:
    from botocore import exceptions as boto

    problem = as_clause(error)
    match error:
        case boto.ClientError():
            return _reason_of_answer(error, target)
        case boto.NoCredentialsError() | boto.PartialCredentialsError():
            return AWS_CREDENTIALS_MISSING()
        case boto.ProfileNotFound():
            return AWS_PROFILE_NOT_FOUND(error=problem)
        case boto.SSOError() | boto.TokenRetrievalError():
            return AWS_SIGN_IN_REQUIRED(error=problem)
        case boto.NoRegionError():
            return AWS_REGION_MISSING()
        case boto.HTTPClientError() | boto.ConnectionError():
            return AWS_UNREACHABLE(target=target, error=problem)
        case _:
            return AWS_CALL_FAILED(target=target, error=problem)


def _reason_of_answer(error: BaseException, target: str) -> Reason:
    from botocore.exceptions import ClientError

    assert isinstance(error, ClientError)  # noqa: S101 - narrows what the caller matched
    code = str(error.response.get("Error", {}).get("Code", ""))
    message = str(error.response.get("Error", {}).get("Message", ""))
    if code in _DENIED:
        found = _ACTION.search(message)
        action = found.group(1) if found else error.operation_name
        resource = found.group(2).rstrip(".") if found and found.group(2) else target
        return AWS_ACCESS_DENIED(action=action, target=resource)
    if code in _REJECTED:
        return AWS_CREDENTIALS_REJECTED(error_code=code, error=as_clause(message))
    if code in _THROTTLED:
        return AWS_THROTTLED(action=error.operation_name, target=target)
    if code == "ResourceNotFoundException":
        return AWS_RESOURCE_NOT_FOUND(target=target)
    return AWS_CALL_FAILED(target=target, error=as_clause(error))
