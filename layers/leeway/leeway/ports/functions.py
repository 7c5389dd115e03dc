"""The Lambda functions and schedules that Leeway starts, as Protocols.

Every method may raise CloudUnavailable or CloudRefused.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol


class Schedules(Protocol):
    """One-time schedules that send an event to receive_notice."""

    def put(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        """Send `event` at the time `at`. Replaces a schedule of the same name.

        `name` has at most 64 letters, digits, `-`, `_` or `.`.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a schedule. A schedule that does not exist is not an error."""
        ...


class RetireNode(Protocol):
    """The function retire_node."""

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        """Start the execution of this attempt, asynchronously. A repeated start does nothing."""
        ...


class CleanUp(Protocol):
    """The function reconcile, for one instance that is terminated."""

    def start(self, instance: str, cluster: str) -> None:
        """Start the clean-up after an instance, asynchronously. A repeated start is safe."""
        ...


class AdmitNode(Protocol):
    """The function admit_node."""

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        """Start the execution of this attempt, asynchronously. A repeated start does nothing."""
        ...
