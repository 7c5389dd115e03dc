"""The ports of provisioning in memory."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from leeway.headroom.plan import PodTemplate, ScaleTarget
from leeway.instances.facts import ObservedInstance
from leeway.manifests.configuration import Configuration
from leeway.manifests.reading import Written
from leeway.policy.rules import ClusterPolicy
from leeway.ports.kubernetes import ClusterUnavailable, Event
from leeway.provisioning.cluster_state import ClusterState
from leeway.selection.offers.catalog import Catalog


@dataclass
class OneClusterState:
    """The ClusterStates Protocol: one state, or an API server that does not answer."""

    state: ClusterState
    down: bool = False
    reads: int = 0

    def read(self, cluster: str) -> ClusterState:
        self.reads += 1
        if self.down:
            raise ClusterUnavailable("no answer")
        return self.state


class ManifestsInMemory(Configuration):
    """Manifests and a policy that are the same for every cluster. `deleted`: the table says that
    some were deleted."""

    def __init__(self, written: Sequence[Written] = ()) -> None:
        self.written = written
        self.policy = ClusterPolicy()
        self.deleted = False

    def policy_of(self, cluster: str) -> ClusterPolicy:
        return self.policy

    def manifests(self, cluster: str, resources: Collection[str]) -> tuple[Written, ...]:
        return tuple(one for one in self.written if one.kind.resource in resources)

    def has_deleted(self, cluster: str, resources: Collection[str]) -> bool:
        return self.deleted


@dataclass
class PodTemplatesInMemory:
    """The PodTemplates Protocol: templates by `namespace/name`; `down` says that the API server
    does not answer."""

    templates: dict[str, PodTemplate] = field(default_factory=dict)
    down: bool = False

    def template(self, target: ScaleTarget) -> PodTemplate | None:
        if self.down:
            raise ClusterUnavailable("no answer")
        return self.templates.get(f"{target.namespace}/{target.name}")


@dataclass
class OneCatalog:
    """The Catalogs Protocol."""

    catalog: Catalog | None

    def read(self) -> Catalog | None:
        return self.catalog


@dataclass
class PodEventsInMemory:
    """What writes Events about pods; `calls` counts also those for Events that exist."""

    existing: dict[tuple[str, str], Event] = field(default_factory=dict)
    calls: int = 0
    down: bool = False

    def write(self, event: Event) -> None:
        self.calls += 1
        if self.down:
            raise ClusterUnavailable("no answer")
        self.existing.setdefault((event.about.namespace, event.name), event)


@dataclass
class VisibilityInMemory:
    """The MessageVisibility Protocol: when each message is delivered again, in seconds."""

    hidden: dict[str, int] = field(default_factory=dict)

    def hide(self, receipts: Sequence[str], seconds: int) -> None:
        self.hidden |= dict.fromkeys(receipts, seconds)


@dataclass
class GroupInstancesInMemory:
    """The GroupInstances Protocol, and the lifecycle states of instances that Auto Scaling
    lists."""

    launched: list[ObservedInstance] = field(default_factory=list)
    running: dict[str, frozenset[str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)

    def launched_by_groups(self, cluster: str, since: datetime) -> list[ObservedInstance]:
        return [one for one in self.launched if one.facts.cluster == cluster]

    def members(self, group: str) -> frozenset[str]:
        return self.running.get(group, frozenset())

    def lifecycle_states(self, instances: Collection[str]) -> dict[str, str]:
        return {one: state for one, state in self.states.items() if one in instances}
