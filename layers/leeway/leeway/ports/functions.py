"""ports.functions"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol


class Schedules(Protocol):
    """Events that are received again later, once."""

    def put(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        """Have an event received again at this time; a schedule of this name is set anew."""
        ...

    def remove(self, name: str) -> None:
        """Have it received no more; that there is no such schedule is no error."""
        ...


class RetireNode(Protocol):
    """The function `retire_node`."""

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        """Start this attempt's execution; one that has been started already stays the one."""
        ...


class CleanUp(Protocol):
    """The function `reconcile`, for one instance that is gone."""

    def start(self, instance: str, cluster: str) -> None:
        """Have cleaned up what the instance leaves; doing it twice does no harm."""
        ...


class AdmitNode(Protocol):
    """The function `admit_node`."""

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        """Start this attempt's execution; one that has been started already stays the one."""
        ...
