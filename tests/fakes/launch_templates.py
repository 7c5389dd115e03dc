"""Launch templates in memory."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

from leeway.launch.node_settings import cluster_tags
from leeway.launch.templates import LaunchTemplate, OwnedTemplate


@dataclass
class LaunchTemplatesInMemory:
    """The LaunchTemplates and OwnedLaunchTemplates Protocols. `existing` has all templates by their
    ids, `own` the ids of those that this object created, by their names."""

    existing: dict[str, LaunchTemplate] = field(default_factory=dict)
    created: dict[str, datetime] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def ensure(self, templates: Collection[LaunchTemplate]) -> Mapping[str, str]:
        gone = self.doubted - self.existing.keys()
        self.doubted.clear()
        self.own = {name: one for name, one in self.own.items() if one not in gone}
        for one in templates:
            if one.name not in self.own:
                self.own[one.name] = self.add(one, datetime.now(UTC))
        return {one.name: self.own[one.name] for one in templates}

    def add(self, template: LaunchTemplate, created: datetime) -> str:
        """Create a template, as anybody may."""
        made = f"lt-{next(self.numbers):017x}"
        self.existing[made] = template
        self.created[made] = created
        return made

    def doubt(self, ids: Collection[str]) -> None:
        self.doubted |= {*ids}

    def owned_by(self, cluster: str) -> list[OwnedTemplate]:
        wanted = cluster_tags(cluster).items()
        return [
            OwnedTemplate(made, one.name, self.created[made])
            for made, one in self.existing.items()
            if wanted <= one.tags.items()
        ]

    def delete_template(self, template: str) -> None:
        self.existing.pop(template, None)
