"""Registered functions, and the resolution of function names and ARNs."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Self

from aiohttp import web
from aws_durable_execution_sdk_python_testing.child_dispatcher import parse_function_target
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from leeway_sandbox.access_entries import access_key


class ServiceError(Exception):
    """An error answer: HTTP status, error code and message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    @classmethod
    def invalid(cls, message: str) -> Self:
        """Return the error of an invalid parameter."""
        return cls(400, "InvalidParameterValueException", message)

    @classmethod
    def missing(cls, message: str) -> Self:
        """Return the error of a missing resource."""
        return cls(404, "ResourceNotFoundException", message)

    def response(self) -> web.Response:
        """Return the answer in the rest-json protocol.

        It has the message with both spellings, because the errors of Lambda use both.
        """
        message = str(self)
        body = {"Type": "User", "Message": message, "message": message}
        return web.Response(
            status=self.status,
            body=json.dumps(body),
            content_type="application/json",
            headers={"x-amzn-ErrorType": self.code},
        )


LATEST = "$LATEST"
# There is one version of the code; every alias points to it.
PUBLISHED = "1"


class FunctionDefinition(BaseModel):
    """One function. Times in seconds, memory in MiB; ``code`` is prepended to ``sys.path``."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    arn: str = Field(pattern=r"^arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:[a-zA-Z0-9_-]+$")
    handler: str
    code: tuple[str, ...] = Field(min_length=1)
    environment: dict[str, str] = {}
    timeout: int = Field(default=3, ge=1, le=900)
    memory: int = Field(default=128, ge=128, le=10240)
    durable: bool = False
    execution_timeout: int = Field(default=86400, ge=1, le=31622400)
    retries: int = Field(default=2, ge=0, le=2)
    on_failure: str | None = None
    dead_letter: str | None = None
    aliases: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    logs_to: str = ""
    recursive_loop: Literal["Allow", "Terminate"] = "Terminate"

    @model_validator(mode="after")
    def _durable_functions_have_no_destinations(self) -> Self:
        # "Invoking durable Lambda functions" in Lambda's guide: dead-letter queues only.
        if self.durable and self.on_failure:
            message = f"{self.name}: a durable function supports no destinations"
            raise ValueError(message)
        return self

    @property
    def region(self) -> str:
        return self.arn.split(":")[3]

    @property
    def account(self) -> str:
        return self.arn.split(":")[4]

    @property
    def log_group(self) -> str:
        """The log group: that of its configuration, or the one that Lambda names by default."""
        return self.logs_to or f"/aws/lambda/{self.name}"

    @property
    def version(self) -> str:
        """The version that runs: with an alias, the published one."""
        return PUBLISHED if self.aliases else LATEST

    @property
    def access_key(self) -> str:
        """The access key id of the role of the function."""
        return self.environment.get("AWS_ACCESS_KEY_ID") or access_key(self.name)


class EventSource(BaseModel):
    """An event source mapping: a queue whose messages a function gets.

    ``function`` is an ARN, with or without a qualifier; ``concurrency`` is the maximum of
    invocations at a time.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )

    name: str
    function: str
    queue: str = Field(pattern=r"^arn:aws[a-z-]*:sqs:[a-z0-9-]+:\d{12}:[a-zA-Z0-9_.-]+$")
    batch_size: int = Field(default=10, ge=1, le=10)
    partial_failures: bool = False
    concurrency: int | None = Field(default=None, ge=2, le=1000)


@dataclass(frozen=True)
class Target:
    """A function with the qualifier of the caller."""

    function: FunctionDefinition
    qualifier: str | None

    @property
    def version(self) -> str:
        return LATEST if self.qualifier in (None, LATEST) else PUBLISHED

    @property
    def arn(self) -> str:
        return f"{self.function.arn}:{self.qualifier}" if self.qualifier else self.function.arn


class Functions:
    """The registered functions."""

    def __init__(self) -> None:
        self._functions: dict[str, FunctionDefinition] = {}

    def __iter__(self) -> Iterator[FunctionDefinition]:
        return iter(self._functions.values())

    def replace(self, functions: Iterable[FunctionDefinition]) -> None:
        """Replace all functions."""
        self._functions = {function.name: function for function in functions}

    def resolve(self, identifier: str, qualifier: str | None = None) -> Target:
        """Resolve a name, a partial ARN or a full ARN, with or without a qualifier.

        Raises:
            ServiceError: the identifier is malformed, or function or qualifier do not exist.
        """
        try:
            named = parse_function_target(identifier)
        except ValueError:
            raise ServiceError.invalid(f"Invalid function name or ARN: {identifier}") from None
        if named.qualifier and qualifier and named.qualifier != qualifier:
            raise ServiceError.invalid(
                "The qualifier in the function name does not match the specified qualifier."
            )
        wanted = named.qualifier or qualifier
        function = self._functions.get(named.name)
        if function is None or wanted not in (None, LATEST, PUBLISHED, *function.aliases):
            shown = function.arn if function else named.name
            raise ServiceError.missing(
                f"Function not found: {shown}{f':{wanted}' if wanted else ''}"
            )
        return Target(function, wanted)
