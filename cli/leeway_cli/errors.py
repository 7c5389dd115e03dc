"""Errors of commands: one line on stderr, `leeway: sentence`, and an exit code.

With `-o json` a failing command prints one JSON document on stdout, `{"error": {"message": …}}`,
with a list `details` beside `message` if there is more to say. If the command has a result in spite
of the error, such as the nodes that it drained, its fields stand beside `error` in the same
document.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

_DOUBLED_STOP = re.compile(r"(?<=[^.]\.)\.(?=\s|$)|(?<=\?)\.$")
"""An embedded sentence has its own full stop, or ends with "did you mean …?"."""


class CommandError(Exception):
    """A command failed, and this sentence says why and what to do. `details` are further lines for
    stderr. `result` has the fields of the JSON document that the command prints in spite of the
    error."""

    exit_code: ClassVar[int]

    def __init__(
        self, sentence: str, details: str = "", result: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(one_line(sentence))
        self.details = details
        self.result = result


class BadInputError(CommandError):
    """The input is invalid. The message names the place (a file with its field, or an option) and
    what was expected there."""

    exit_code = 2


class CannotBeDoneError(CommandError):
    """The input is valid, but the command could not do its work."""

    exit_code = 1


class AccountError(CannotBeDoneError):
    """No credentials, invalid ones, or no region: every request to AWS would fail."""


class NotDeployedError(CannotBeDoneError):
    """The region has no stack of Leeway of this name."""


def unreadable(path: Path, error: OSError) -> BadInputError:
    """Return the error for a file that cannot be opened: `FILE: No such file or directory`."""
    return BadInputError(f"{path}: {error.strerror or error}.")


def one_line(sentence: str) -> str:
    """Return a text as one line, in which an embedded sentence does not double the full stop."""
    return _DOUBLED_STOP.sub("", " ".join(sentence.split()))


def as_clause(error: object) -> str:
    """Return a text as one line without its full stop, to embed it in a sentence."""
    return " ".join(str(error).split()).removesuffix(".")


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
        CannotBeDoneError: AWS refused a request or did not answer, or a record is unreadable.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from leeway.ports.aws import CloudRefused, CloudUnavailable
    from leeway.table import UnreadableRecord

    try:
        yield
    except (CloudRefused, CloudUnavailable) as error:
        raise _of_aws(error.__cause__ or error, target) from error
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        raise _of_aws(error, target) from error
    except UnreadableRecord as error:
        raise CannotBeDoneError(
            f"A record of {target} is not readable: {as_clause(error)}. If the stack has a later "
            "version of Leeway, install that version."
        ) from error
    except ValueError as error:
        if not str(error).startswith("Invalid endpoint"):
            raise
        raise AccountError(f"AWS_ENDPOINT_URL is invalid: {as_clause(error)}.") from error


def _of_aws(error: BaseException, target: str) -> CannotBeDoneError:
    from botocore import exceptions as boto

    problem = as_clause(error)
    match error:
        case boto.ClientError():
            return _of_answer(error, target)
        case boto.NoCredentialsError() | boto.PartialCredentialsError():
            return AccountError(
                "No AWS credentials were found. Set AWS_PROFILE, or run `aws configure`."
            )
        case boto.ProfileNotFound():
            return AccountError(f"AWS_PROFILE is invalid: {problem}.")
        case boto.SSOError() | boto.TokenRetrievalError():
            return AccountError(f"AWS requires a new sign-in: {problem}. Run `aws sso login`.")
        case boto.NoRegionError():
            return AccountError("No AWS region is set. Set AWS_REGION.")
        case boto.HTTPClientError() | boto.ConnectionError():
            return CannotBeDoneError(f"AWS did not answer a request for {target}: {problem}.")
        case _:
            return CannotBeDoneError(f"An AWS call failed for {target}: {problem}.")


def _of_answer(error: Any, target: str) -> CannotBeDoneError:
    given = error.response.get("Error", {})
    code, message = str(given.get("Code", "")), str(given.get("Message", ""))
    if code in _DENIED:
        found = _ACTION.search(message)
        action = found.group(1) if found else error.operation_name
        resource = found.group(2).rstrip(".") if found and found.group(2) else target
        return CannotBeDoneError(
            f"The AWS identity of this command may not call {action} on {resource}. Grant it this "
            "action."
        )
    if code in _REJECTED:
        return AccountError(f"AWS rejected the credentials ({code}): {as_clause(message)}.")
    if code in _THROTTLED:
        return CannotBeDoneError(
            f"AWS throttled {error.operation_name} on {target}. Try again in a minute."
        )
    if code == "ResourceNotFoundException":
        return CannotBeDoneError(f"AWS found no {target}. Check the region and the option --stack.")
    return CannotBeDoneError(f"An AWS call failed for {target}: {as_clause(error)}.")


@contextmanager
def kubernetes_errors(*, with_selector: bool = False) -> Iterator[None]:
    """Turn errors of a cluster or a kubeconfig into errors of the command. `with_selector`: the
    command has label selectors, which only the API server checks.

    Raises:
        BadInputError: the kubeconfig, its context or a label selector is invalid.
        CannotBeDoneError: the API server refused a request or did not answer.
    """
    from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable

    from leeway_cli.kubeconfig import BadKubeconfig

    try:
        yield
    except BadKubeconfig as error:
        raise BadInputError(f"{as_clause(error)}.") from error
    except ClusterRefused as error:
        problem = as_clause(error)
        if with_selector and problem.startswith("400"):
            raise BadInputError(
                "--selector, --pod-selector: expected labels that the API server accepts, got "
                f"{problem}."
            ) from error
        raise CannotBeDoneError(f"The API server refused a request: {problem}.") from error
    except ClusterUnavailable as error:
        problem = as_clause(error)
        if problem.startswith("401"):
            raise CannotBeDoneError(
                f"The API server rejected the credentials of the kubeconfig ({problem}). Sign in "
                "again."
            ) from error
        raise CannotBeDoneError(f"The API server did not answer: {problem}.") from error
