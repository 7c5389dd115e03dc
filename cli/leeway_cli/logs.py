"""`leeway logs`: what the functions have decided, in one order of time, from CloudWatch Logs.

Each function has a log group. One search of CloudWatch Logs for each group returns the lines that
may be asked for, and this command selects among them.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from leeway_cli.errors import (
    AccountError,
    BadInputError,
    CannotBeDoneError,
    aws_errors,
    one_line,
)
from leeway_cli.options import parse_duration
from leeway_cli.output import Format, FormatOption, print_json, write_stderr, write_stdout
from leeway_cli.stack import DEFAULT_STACK

FUNCTIONS = (
    "receive-notice",
    "retire-node",
    "admit-node",
    "reconcile",
    "keep-headroom",
    "watch-pods",
    "provision-nodes",
    "refresh-catalog",
)
"""The functions, as the names of their log groups end."""

REFRESH_EVERY = 2.0
"""Seconds between two reads with --follow."""

LATE = timedelta(seconds=30)
"""How long after its time a line may appear in CloudWatch Logs."""

SKEW = timedelta(minutes=5)
"""By how much the clock of this machine may be ahead. AWS refuses requests with a larger error."""


class Level(StrEnum):
    """The levels of lines, from the lowest."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def at_least(self) -> tuple[str, ...]:
        """The levels from this one on, as the functions write them."""
        levels = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
        return levels[levels.index(self.name) :]


def logs(
    function: Annotated[
        str,
        typer.Argument(metavar="[FUNCTION]", help="Show only this function, such as retire-node."),
    ] = "",
    since: Annotated[
        str, typer.Option(metavar="DURATION", help="Show lines that are at most this old.")
    ] = "1h",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")
    ] = False,
    level: Annotated[Level, typer.Option(help="Set the lowest level.")] = Level.INFO,
    instance: Annotated[
        str, typer.Option(metavar="ID", help="Show lines that name this instance.")
    ] = "",
    pod: Annotated[
        str, typer.Option(metavar="NAMESPACE/NAME", help="Show lines that name this pod.")
    ] = "",
    pool: Annotated[
        str, typer.Option(metavar="NAME", help="Show lines that name this node pool.")
    ] = "",
    cluster: Annotated[
        str,
        typer.Option(metavar="NAME", envvar="LEEWAY_CLUSTER", help="Show lines of this cluster."),
    ] = "",
    stack: Annotated[
        str, typer.Option(help="Set the CloudFormation stack of Leeway.")
    ] = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what the functions decided and why, all functions in one order of time.

    Lambda's own lines about an invocation that failed are shown as errors.
    """
    if follow and output is Format.JSON:
        raise BadInputError("--output: expected table with --follow.")
    about = About(
        _checked("--instance", instance, r"i-[0-9a-f]{8,17}", "an instance ID such as i-0b662ef9"),
        _checked("--pod", pod, r"[a-z0-9.-]+/[a-z0-9.-]+", "NAMESPACE/NAME"),
        _checked("--pool", pool, r"[a-z0-9.-]+", "the name of a node pool"),
        _checked("--cluster", cluster, r"[0-9A-Za-z][\w-]*", "the name of a cluster"),
    )
    _checked("--stack", stack, r"[A-Za-z][A-Za-z0-9-]*", "the name of a stack")
    age = parse_duration("--since", since)
    if not age:
        raise BadInputError("--since: expected a duration such as 15m or 1h, got 0.")
    wanted = (_function(function, stack),) if function else FUNCTIONS
    search = LogSearch(stack, wanted, about, level, datetime.now(UTC) - age)
    lines = search.new_lines()
    search.warn_of_missing()
    if output is Format.JSON:
        print_json({"lines": [line.to_dict() for line in lines]})
        return
    with suppress(KeyboardInterrupt):
        while True:
            for line in lines:
                write_stdout(line.as_text())
            sys.stdout.flush()  # a pipe or a file keeps some kilobytes back otherwise
            if not follow:
                return
            time.sleep(REFRESH_EVERY)
            lines = search.new_lines_or_warning()


def _checked(option: str, given: str, pattern: str, expected: str) -> str:
    """Return a value that may stand in a filter pattern; empty if the option is not given."""
    if given and not re.fullmatch(pattern, given, re.ASCII):
        raise BadInputError(f"{option}: expected {expected}, got {given!r}.")
    return given


def _function(given: str, stack: str) -> str:
    name = given.removeprefix("/aws/lambda/").removeprefix(f"{stack}-").replace("_", "-")
    if name not in FUNCTIONS:
        raise BadInputError(f"FUNCTION: expected one of {', '.join(FUNCTIONS)}, got {given!r}.")
    return name


@dataclass(frozen=True, slots=True)
class About:
    """What the lines have to name; an empty field selects every line."""

    instance: str = ""
    pod: str = ""
    pool: str = ""
    cluster: str = ""

    def pattern(self, level: Level) -> str:
        """Return the filter pattern of CloudWatch Logs. It may select more lines than are asked
        for: terms and conditions about fields cannot be combined.

        Source: CloudWatch Logs user guide, "Filter pattern syntax".
        """
        if self.instance or self.pod:
            terms = (self.instance, self.pod, self.pool, self.cluster)
            return " ".join(f'"{one}"' for one in terms if one)
        conditions = []
        if self.cluster:
            conditions.append(f'($.cluster = "{self.cluster}")')
        if self.pool:
            conditions.append(f'(($.pool = "{self.pool}") || ($.message = "*ool {self.pool}*"))')
        if conditions:
            levels = " || ".join(f'($.level = "{one}")' for one in level.at_least)
            return "{ " + " && ".join([*conditions, f"({levels})"]) + " }"
        if level in (Level.DEBUG, Level.INFO):
            return " ".join(f'-"{one}"' for one in ("_aws", *_OF_EACH_INVOCATION))
        return " ".join(f'?"{one}"' for one in (*level.at_least, *_FAILED))

    def matches(self, text: str, fields: Mapping[str, Any]) -> bool:
        """Whether a line names all of it. Names are compared whole."""
        return (
            all(_names(text, one) for one in (self.instance, self.pod) if one)
            and self.cluster in ("", fields.get("cluster"))
            and (not self.pool or self.pool == fields.get("pool") or self._names_pool(text))
        )

    def _names_pool(self, text: str) -> bool:
        return _names(text, f"pool {self.pool}") or _names(text, f"Pool {self.pool}")


def _names(text: str, name: str) -> bool:
    # A name may end a sentence: the full stop is no part of it.
    return re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None


_OF_EACH_INVOCATION = ("START RequestId", "END RequestId", "REPORT RequestId", "INIT_START")
_FAILED = ("Task timed out", "Runtime exited")
"""Lambda's own lines: those of each invocation, and those of one that it ended."""

_SECRET = re.compile(
    r"(k8s-aws-v1\.|Bearer\s+|(?:X-Amz-(?:Signature|Security-Token|Credential)=))[\w%+/=.~-]+"
)
_HIDDEN = r"\1***"
_NOT_SHOWN = ("cluster", "code", "level", "location", "message", "service", "timestamp", "xray")
_SUBJECTS = ("instance", "pool", "subject", "manifest", "part", "node")


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """A line of a function. `code` is its reason code; `subject` is what it is about, after the
    cluster. `fields` has the other fields of the line."""

    time: datetime
    function: str
    level: str = field(compare=False)
    code: str = field(compare=False)
    cluster: str = field(compare=False)
    subject: str = field(compare=False)
    message: str = field(compare=False)
    fields: Mapping[str, Any] = field(compare=False)

    def as_text(self) -> str:
        """Render the line for people."""
        about = "/".join(one for one in (self.cluster, self.subject) if one)
        head = f"{self.time:%Y-%m-%d %H:%M:%SZ}  {self.function:<15}  {self.level:<7}"
        return f"{head}  {self.code or '-'}  {about or '-'}: {one_line(self.message)}"

    def to_dict(self) -> dict[str, Any]:
        """Render the line for programs."""
        return {
            "time": self.time.isoformat(timespec="milliseconds"),
            "function": self.function,
            "level": self.level,
            "code": self.code or None,
            "cluster": self.cluster or None,
            "subject": self.subject or None,
            "message": self.message,
            "fields": dict(self.fields),
        }


def parse_line(function: str, timestamp: int, text: str, about: About, level: Level) -> Line | None:
    """Read the text of a log event; None for a line that is not asked for. `timestamp` is in
    milliseconds. Tokens and signatures, which an error may quote, are hidden."""
    shown = _SECRET.sub(_HIDDEN, text).strip()
    fields = _fields(shown)
    if "_aws" in fields or shown.startswith(_OF_EACH_INVOCATION):
        return None
    named = str(fields.get("level") or _level_of(shown))
    if named not in level.at_least or not about.matches(shown, fields):
        return None
    subject = next((str(fields[one]) for one in _SUBJECTS if fields.get(one)), "")
    return Line(
        datetime.fromtimestamp(timestamp / 1000, UTC),
        function,
        named,
        str(fields.get("code", "")),
        str(fields.get("cluster", "")),
        subject,
        # The first line of a traceback names the error.
        str(fields["message"]) if fields else shown.partition("\n")[0],
        {key: value for key, value in fields.items() if key not in _NOT_SHOWN},
    )


def _fields(text: str) -> dict[str, Any]:
    if text.startswith("{"):
        with suppress(ValueError):
            found = json.loads(text)
            if isinstance(found, dict) and ("message" in found or "_aws" in found):
                return found
    return {}


def _level_of(text: str) -> str:
    """Return the level of a line that a function has not logged itself."""
    if any(one in text for one in (*_FAILED, "[ERROR]")):
        return "ERROR"
    return "WARNING" if "[WARNING]" in text else "INFO"


class LogSearch:
    """Searches the log groups of a stack for lines since a time."""

    def __init__(
        self,
        stack: str,
        functions: tuple[str, ...],
        about: About,
        level: Level,
        since: datetime,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._stack, self._about, self._level, self._now = stack, about, level, now
        self._start = dict.fromkeys(functions, since)
        self._seen: dict[str, dict[str, datetime]] = {one: {} for one in functions}
        self._read: list[Line] = []
        self._missing: list[str] = []

    def new_lines(self) -> list[Line]:
        """Return the lines since the last call, in the order of time.

        Raises:
            CannotBeDoneError: AWS refuses a search, or no log group exists. The lines that were
                read before are not lost: `unreturned` has them, and so has the next call.
        """
        self._missing = []
        for one in self._start:
            self._search(one)
        if len(self._missing) == len(self._start):
            from leeway.wiring.clients import session

            raise CannotBeDoneError(
                f"Region {session().region_name} has no log group {self._missing[0]}. Check "
                "AWS_REGION and --stack; `sam deploy` creates the log groups of a stack."
            )
        return self.unreturned()

    def unreturned(self) -> list[Line]:
        """Return the lines that were read and not returned yet, in the order of time."""
        lines, self._read = sorted(self._read), []
        return lines

    def warn_of_missing(self) -> None:
        """Say which log groups do not exist."""
        if self._missing:
            names = ", ".join(self._missing)
            write_stderr(f"warning: these log groups do not exist: {names}")

    def new_lines_or_warning(self) -> list[Line]:
        """Return new lines; an error that may pass is a warning."""
        try:
            return self.new_lines()
        except AccountError:
            raise
        except CannotBeDoneError as error:
            write_stderr(f"warning: {error}")
            return self.unreturned()

    def _search(self, function: str) -> None:
        seen = self._seen[function]
        # A function without lines moves on too, or each search reads more than the one before.
        start = max(self._start[function], self._now() - SKEW - LATE)
        for event in self._events(function):
            at = datetime.fromtimestamp(event["timestamp"] / 1000, UTC)
            start = max(start, at - LATE)
            if event["eventId"] in seen:
                continue
            seen[event["eventId"]] = at
            line = parse_line(
                function, event["timestamp"], event["message"], self._about, self._level
            )
            if line is not None:
                self._read.append(line)
        self._start[function] = start
        self._seen[function] = {key: at for key, at in seen.items() if at >= start}

    def _events(self, function: str) -> Iterator[dict[str, Any]]:
        from botocore.exceptions import ClientError
        from leeway.wiring.clients import client

        group = f"/aws/lambda/{self._stack}-{function}"
        asked = {
            "logGroupName": group,
            "startTime": int(self._start[function].timestamp() * 1000),
            "filterPattern": self._about.pattern(self._level),
        }
        with aws_errors(f"log group {group}"):
            try:
                for page in client("logs").get_paginator("filter_log_events").paginate(**asked):
                    yield from page["events"]
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") != "ResourceNotFoundException":
                    raise
                self._missing.append(group)
