"""Launch templates in memory."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from leeway.launch.node_settings import cluster_tags
from leeway.launch.templates import LaunchTemplate, OwnedTemplate


@dataclass
class LaunchTemplatesInMemory:
    """The LaunchTemplates and OwnedLaunchTemplates Protocols."""

    existing: dict[str, LaunchTemplate] = field(default_factory=dict)
    created: dict[str, datetime] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)

    def ensure(self, templates: Collection[LaunchTemplate]) -> None:
        for one in templates:
            if one.name not in self.known and one.name not in self.existing:
                self.existing[one.name] = one
                self.created[one.name] = datetime.now(UTC)
            self.known.add(one.name)

    def forget(self, names: Collection[str]) -> None:
        self.known -= {*names}

    def owned_by(self, cluster: str) -> list[OwnedTemplate]:
        wanted = cluster_tags(cluster).items()
        return [
            OwnedTemplate(name, self.created[name])
            for name, one in self.existing.items()
            if wanted <= one.tags.items()
        ]

    def delete(self, name: str) -> None:
        self.existing.pop(name, None)
        self.forget([name])
