"""Processes of provision_nodes in this one that are killed at an AWS call that changes something.

A process is the wiring of the deployed function, built anew, with the function's environment and
credentials. A killed process sends nothing any more. To kill it costs no cold start, so that a test
can do it at every such call.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from unittest.mock import patch

from leeway.kubernetes.eks import eks_connection
from leeway.wiring.clients import session
from leeway.wiring.provision_nodes import provision_nodes
from leeway_sandbox.access_entries import access_key
from leeway_sandbox.sandbox import Sandbox

from tests.end_to_end.provisioning import FUNCTION, message

SECONDS = 58.0
"""The time that Lambda has left for an invocation."""

READS = ("Describe", "Get", "List", "Query")
"""How the names of calls begin that change nothing."""


class Killed(BaseException):
    """The process was killed: no handler of errors runs."""


class Killer:
    """Counts AWS calls that change something, and kills after the one with this number, or after
    the first one with this name, when AWS has done it and its answer has not been read; with
    neither, never. Of calls side by side, the first answer counts."""

    def __init__(self, number: int = 0, name: str = "") -> None:
        self._number = number
        self._name = name
        self._lock = Lock()
        self._calls: list[str] = []
        self.killed_at = ""

    @property
    def calls(self) -> tuple[str, ...]:
        """The calls until now, as in "ec2:CreateFleet"."""
        return tuple(self._calls)

    @property
    def changed(self) -> bool:
        """Whether a call has changed anything at AWS."""
        return any(map(_changes, self._calls))

    def watch(self, events: Any) -> None:
        """Follow the calls of a botocore session, whose event system this is."""
        events.register("before-send", self._before_send)
        events.register("response-received", self._received)

    def _before_send(self, event_name: str, **_: Any) -> None:
        with self._lock:
            self._live()
            self._calls.append(_name_of(event_name))

    def _received(self, event_name: str, **_: Any) -> None:
        with self._lock:
            self._live()
            if self._name and _name_of(event_name) == self._name:
                self.killed_at = self._name
                raise Killed
            # Not "==": calls that run side by side are all counted before the first answer.
            made = sum(map(_changes, self._calls))
            if _changes(_name_of(event_name)) and 0 < self._number <= made:
                self.killed_at = _name_of(event_name)
                raise Killed

    def _live(self) -> None:
        if self.killed_at:
            raise Killed


def _changes(name: str) -> bool:
    """Whether a call changes anything but the visibility of messages."""
    service, _, call = name.partition(":")
    return service != "sqs" and not call.startswith(READS)


def _name_of(event_name: str) -> str:
    """The name of a call, as in "ec2:CreateFleet", by an event of botocore."""
    return ":".join(event_name.split(".")[1:])


def run_killed(sandbox: Sandbox, killer: Killer) -> list[str]:
    """Run provision_nodes once in a new process; return the ids of messages that SQS would deliver
    again.

    Raises:
        Killed: the process was killed.
    """
    event = {"Records": [message(why="a run that is killed")]}
    with _process(sandbox):
        killer.watch(session().events)
        connected: list[Any] = []
        with patch("leeway.wiring.clusters.eks_connection", _noting(connected)):
            try:
                return list(provision_nodes().receive(event, SECONDS))
            finally:
                for connection in connected:
                    connection.close()


def _noting(connected: list[Any]) -> Callable[..., Any]:
    """Return the function that connects to a cluster, and notes each connection."""

    def noting(*given: Any) -> Any:
        connected.append(eks_connection(*given))
        return connected[-1]

    return noting


@contextmanager
def _process(sandbox: Sandbox) -> Iterator[None]:
    assert sandbox.deployed is not None
    (function,) = [one for one in sandbox.deployed.functions if one.name == FUNCTION]
    credentials = {"AWS_ACCESS_KEY_ID": access_key(FUNCTION)}
    environment = {**sandbox.environment(), **function.environment, **credentials}
    with patch.dict(os.environ, environment):
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    """Drop all that the wiring keeps for a warm function."""
    for name, module in list(sys.modules.items()):
        if name.startswith("leeway.wiring"):
            for built in vars(module).values():
                if clear := getattr(built, "cache_clear", None):
                    clear()
