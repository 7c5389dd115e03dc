"""One-time schedules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass
class SchedulesInMemory:
    """The Schedules Protocol."""

    due: dict[str, tuple[datetime, Mapping[str, Any]]] = field(default_factory=dict)

    def put(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        self.due[name] = (at, event)

    def remove(self, name: str) -> None:
        self.due.pop(name, None)
