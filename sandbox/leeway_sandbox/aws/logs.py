"""CloudWatch Logs. moto keeps groups, streams and events; the lines of the functions come into it
when somebody asks for logs, so that they cost nothing before.

The import of this module loads moto's models of other services. So it is imported at the first call
of CloudWatch Logs.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import moto.logs.models as moto_logs
from moto.logs.exceptions import InvalidParameterException
from moto.logs.models import LogsBackend, logs_backends
from moto.logs.responses import LogsResponse

from leeway_sandbox.aws.authorization import Authorization
from leeway_sandbox.aws.calls import Call
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.log_patterns import BadPatternError, selecting
from leeway_sandbox.control import Controls
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.stack import Stack

log = logging.getLogger(__name__)

_PAGE_BYTES = 1024 * 1024
_PAGE_EVENTS = 10_000

type Event = Mapping[str, Any]
type Place = tuple[str, str, str]
"""A log group, a stream, and the access key of the role that writes."""


class Group(moto_logs.LogGroup):
    """A log group that FilterLogEvents searches as AWS does."""

    def filter_log_events(
        self,
        log_group_name: str,
        log_stream_names: list[str],
        start_time: int,
        end_time: int,
        limit: int | None,
        next_token: str | None,
        filter_pattern: str,
        interleaved: bool,
    ) -> tuple[list[dict[str, Any]], str | None, list[dict[str, Any]]]:
        """Return a page of events in the order of time. A search with a pattern begins with an
        empty page, because AWS may answer with a page that is empty before the last one."""
        try:
            selects = selecting(filter_pattern or "")
        except BadPatternError as error:
            raise InvalidParameterException(msg=str(error)) from error
        if start_time and end_time and start_time > end_time:
            raise InvalidParameterException(msg="End time should not be before start time")
        if filter_pattern and not next_token:
            return [], _token(0, -1), []
        after = _position(next_token) if next_token else (0, -1)
        found = sorted(
            ((event.timestamp, event.event_id), event, stream.log_stream_name)
            for stream in self.streams.values()
            if not log_stream_names or stream.log_stream_name in log_stream_names
            for event in stream.events
            if (start_time or 0) <= event.timestamp <= (end_time or event.timestamp)
            and (event.timestamp, event.event_id) > after
            and selects(event.message)
        )
        page: list[dict[str, Any]] = []
        size, last = 0, after
        for position, event, stream in found:
            size += len(event.message)
            if page and (size > _PAGE_BYTES or len(page) == (limit or _PAGE_EVENTS)):
                return page, _token(*last), []
            page.append({**event.to_filter_dict(), "logStreamName": stream})
            last = position
        return page, None, []


moto_logs.LogGroup = Group  # type: ignore[misc]


def _token(timestamp: int, event: int) -> str:
    return f"{timestamp}/{event}"


def _position(token: str) -> tuple[int, int]:
    timestamp, _, event = token.partition("/")
    try:
        return int(timestamp), int(event)
    except ValueError:
        raise InvalidParameterException(msg="The specified nextToken is invalid.") from None


class Logs(LogsResponse):
    """moto's CloudWatch Logs without Logs Insights, whose language moto does not evaluate."""

    def start_query(self) -> str:
        """Refuse a query."""
        raise NotImplementedError("queries of Logs Insights")


def create_groups(stack: Stack, region: str) -> None:
    """Create the log groups of a stack."""
    for group in stack.log_groups.values():
        retention = {"RetentionInDays": group.properties.get("RetentionInDays")}
        logs_backends[ACCOUNT][region].create_log_group(group.name, {}, **retention)


class FunctionLogs:
    """Moves the lines of the functions from the Lambda service to their log groups.

    A role needs the rights that Lambda needs to write a log; without them its lines are lost, as on
    AWS. `headers` have the control token.
    """

    def __init__(self, cloud: Cloud, authorization: Authorization, headers: Mapping[str, str]):
        self._cloud, self._authorization, self._headers = cloud, authorization, headers
        self._next = 0
        self._moving = asyncio.Lock()

    async def move(self, lambda_url: str) -> None:
        """Write the lines since the last call."""
        async with self._moving:
            events = await asyncio.to_thread(self._read, lambda_url)
            with self._cloud.lock:
                self._write(events)

    def _read(self, lambda_url: str) -> list[Event]:
        service = Controls({"lambda": lambda_url}, self._headers)
        try:
            found = service.call("lambda", "GET", f"logs?since={self._next}")
        except SandboxError as error:
            log.warning("The lines of the functions were not read: %s", error)
            return []
        self._next = found["next"]
        events: list[Event] = found["events"]
        return events

    def _write(self, events: Iterable[Event]) -> None:
        backend = logs_backends[ACCOUNT][self._cloud.region]
        by_place: dict[Place, list[dict[str, Any]]] = defaultdict(list)
        for one in events:
            line = {"timestamp": one["timestamp"], "message": one["message"]}
            by_place[one["group"], one["stream"], one["caller"]].append(line)
        for place, lines in by_place.items():
            group, stream, _ = place
            if problem := self._problem(backend, place):
                self._cloud.journal.add("logs-refused", group=group, problem=problem)
                continue
            backend.ensure_log_group(group)
            backend.ensure_log_stream(group, stream)
            lines.sort(key=lambda line: line["timestamp"])
            backend.put_log_events(group, stream, lines)

    def _problem(self, backend: LogsBackend, place: Place) -> str:
        """Return why a role may not write to its stream; empty if it may."""
        group, stream, caller = place
        needed = [] if group in backend.groups else ["CreateLogGroup"]
        if not needed and stream not in backend.groups[group].streams:
            needed.append("CreateLogStream")
        body = json.dumps({"logGroupName": group, "logStreamName": stream}).encode()
        for action in [*needed, "PutLogEvents"]:
            call = Call("logs", action, self._cloud.region, caller, {})
            if error := self._authorization.error_of(call, body):
                return error[1]
        return ""
