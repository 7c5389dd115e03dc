"""What AWS's errors mean to somebody at a terminal: one line, with what to do about it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cli.errors import CannotBeDoneError

_ACTION = re.compile(r"not authorized to perform: ([\w-]+:\w+)(?: on resource: (\S+))?")
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_STRANGERS = frozenset(
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
def aws_trouble(where: str) -> Iterator[None]:
    """Tell what goes wrong with AWS in words; `where` names what was asked, as in `table x`.

    Raises:
        CannotBeDoneError: AWS, or the way to it, said no.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from leeway.ports.aws import CloudRefused, CloudUnavailable

    try:
        yield
    except (CloudRefused, CloudUnavailable) as error:
        cause = error.__cause__ or error
        raise CannotBeDoneError(_told(cause, where)) from error
    except (BotoCoreError, ClientError) as error:
        raise CannotBeDoneError(_told(error, where)) from error


def _told(error: BaseException, where: str) -> str:
    from botocore import exceptions as boto

    match error:
        case boto.ClientError():
            return _answered(error, where)
        case boto.NoCredentialsError() | boto.PartialCredentialsError():
            return "no AWS credentials: set AWS_PROFILE, or sign in by `aws configure`"
        case boto.ProfileNotFound():
            return f"AWS_PROFILE: {error}"
        case boto.SSOError() | boto.TokenRetrievalError():
            return f"AWS: {error}; sign in by `aws sso login`"
        case boto.NoRegionError():
            return "no AWS region: set AWS_REGION"
        case boto.HTTPClientError() | boto.ConnectionError():
            return f"AWS is not reached for {where}: {error}"
        case _:
            return f"{where}: {error}"


def _answered(error: BaseException, where: str) -> str:
    from botocore.exceptions import ClientError

    assert isinstance(error, ClientError)  # noqa: S101 - narrows what the caller matched
    code = str(error.response.get("Error", {}).get("Code", ""))
    message = str(error.response.get("Error", {}).get("Message", ""))
    if code in _DENIED:
        found = _ACTION.search(message)
        action = found.group(1) if found else f"the action {error.operation_name}"
        resource = f" on {found.group(2)}" if found and found.group(2) else f" for {where}"
        return f"no right to {action}{resource}: have it granted to whoever you are signed in as"
    if code in _STRANGERS:
        return f"AWS does not take the credentials ({code}): {message}"
    if code in _THROTTLED:
        return f"AWS throttles {error.operation_name} of {where}; try again in a minute"
    if code == "ResourceNotFoundException":
        return f"{where} is not there: check the region and --stack"
    return f"{where}: {error}"
