"""Launch intents in memory."""

from dataclasses import dataclass, field

from leeway.launch.intent import LaunchIntent
from leeway.table import RecordChanged


@dataclass
class LaunchIntentsInMemory:
    """The LaunchIntents Protocol."""

    stored: dict[str, LaunchIntent] = field(default_factory=dict)

    def of_cluster(self, cluster: str) -> list[LaunchIntent]:
        found = [one for one in self.stored.values() if one.cluster == cluster]
        return sorted(found, key=lambda one: (one.created_at, one.id))

    def write(self, intent: LaunchIntent) -> None:
        known = self.stored.get(intent.id)
        if (known.version if known else 0) != intent.version - 1:
            raise RecordChanged(intent.id)
        self.stored[intent.id] = intent
