"""Groups of interchangeable pods: many replicas cost one decision."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from leeway.reasons import Reason
from leeway.selection.packing.preferences import with_preferences_required
from leeway.selection.packing.topology import Counters, Rules
from leeway.selection.pods import Pod, PodSpec

type Units = tuple[tuple[str, ...], ...]
"""The names of the pods of each unit."""


@dataclass(frozen=True)
class PodGroup:
    """Pending pods that differ only in their names.

    `spec` has the remaining preferences as requirements. `declared` is the pod as it was read,
    without the preferences that were relaxed.
    """

    declared: PodSpec
    spec: PodSpec
    rules: Rules
    pods: tuple[str, ...]


@dataclass(frozen=True)
class PodBatch:
    """Equal units that are packed together. A unit is one pod, or several pods that must share a
    node.

    `parts` are the groups of a unit's pods with their numbers. `zone` is the zone of all units (a
    position; None: any zone). `joined`: the unit itself contains the pods that its affinity
    requires.
    """

    parts: tuple[tuple[PodGroup, int], ...]
    units: Units
    zone: int | None = None
    joined: bool = False

    @classmethod
    def of(cls, group: PodGroup, pods: Sequence[str], zone: int | None = None) -> "PodBatch":
        """Return a batch in which each pod is a unit."""
        return cls(((group, 1),), tuple((pod,) for pod in pods), zone)

    def having(self, units: Units) -> "PodBatch":
        """Return the batch with these units only."""
        return replace(self, units=units)

    @cached_property
    def shape(self) -> object:
        """Equal for batches whose units have equal requests and the same candidate nodes, apart
        from zones."""
        return tuple(
            (g.spec.terms, g.spec.tolerations, g.spec.ports, g.spec.requests, pods)
            for g, pods in self.parts
        )

    @property
    def priority(self) -> int:
        """The highest priority of its pods."""
        return max(group.spec.priority for group, _ in self.parts)

    @cached_property
    def counted(self) -> dict[int, int]:
        """The number of pods that one unit adds to each counter."""
        found: dict[int, int] = {}
        for group, pods in self.parts:
            for counter in group.rules.counted:
                found[counter] = found.get(counter, 0) + pods
        return found

    @cached_property
    def caps(self) -> dict[int, int]:
        """The maximum of each counter on its node."""
        found: dict[int, int] = {}
        for group, _ in self.parts:
            for cap in group.rules.caps_on_node:
                found[cap.counter] = min(cap.most, found.get(cap.counter, cap.most))
        return found


@dataclass(frozen=True)
class Unplaced:
    """Pods of a group without a node, and the reason. `zone`: the zone in which they are counted
    already. `infeasible`: no existing node and no offering fits them."""

    group: PodGroup
    pods: tuple[str, ...]
    reason: Reason
    zone: int | None = None
    infeasible: bool = False


def group_pods(pods: Sequence[Pod], counters: Counters) -> list[PodGroup]:
    """Group pods in the order in which they are given, and register their terms with the
    counters."""
    distinct = {id(pod.spec): pod.spec for pod in pods}
    strict = {key: with_preferences_required(spec) for key, spec in distinct.items()}
    counters.register(strict.values())
    keys = {key: (counters.selecting(strict[key]), spec.shape) for key, spec in distinct.items()}
    names: dict[object, list[str]] = {}
    first: dict[object, int] = {}
    for pod in pods:
        key = keys[id(pod.spec)]
        names.setdefault(key, []).append(pod.name)
        first.setdefault(key, id(pod.spec))
    return [
        PodGroup(distinct[i], strict[i], counters.rules(strict[i]), tuple(names[key]))
        for key, i in first.items()
    ]


def group_relaxed(
    relaxed: Iterable[tuple[PodSpec, tuple[str, ...]]], counters: Counters
) -> list[PodGroup]:
    """Group pods again after their preferences were relaxed."""
    pods = [Pod(name, spec) for spec, names in relaxed for name in names]
    return group_pods(pods, counters)
