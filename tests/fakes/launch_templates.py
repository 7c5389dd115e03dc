"""Launch templates in memory."""

from collections.abc import Collection
from dataclasses import dataclass, field

from leeway.launch.templates import LaunchTemplate


@dataclass
class LaunchTemplatesInMemory:
    """The LaunchTemplates Protocol."""

    existing: dict[str, LaunchTemplate] = field(default_factory=dict)

    def ensure(self, templates: Collection[LaunchTemplate]) -> None:
        for one in templates:
            self.existing.setdefault(one.name, one)
