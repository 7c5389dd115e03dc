"""Pods that are interchangeable, as one group with their names: many replicas cost one decision."""

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
    """Waiting pods that only their names tell apart.

    `spec` holds what they still prefer as if it were required; `asked` is as they were written, but
    for the preferences that were given up.
    """

    declared: PodSpec
    spec: PodSpec
    rules: Rules
    pods: tuple[str, ...]


@dataclass(frozen=True)
class PodBatch:
    """Pods to be packed alike, in units that stay together: one pod, or those that have to share a
    node.

    `parts` are the groups of a unit's pods, with the number of each. `zone` is where all of them
    go (a position; None: anywhere). `joined`: what its pods have to be near is in the unit itself.
    """

    parts: tuple[tuple[PodGroup, int], ...]
    units: Units
    zone: int | None = None
    joined: bool = False

    @classmethod
    def of(cls, group: PodGroup, pods: Sequence[str], zone: int | None = None) -> "PodBatch":
        """Make a lot of pods that each go by themselves."""
        return cls(((group, 1),), tuple((pod,) for pod in pods), zone)

    def having(self, units: Units) -> "PodBatch":
        """The same with some of the units."""
        return replace(self, units=units)

    @cached_property
    def shape(self) -> object:
        """Equal for lots whose units ask for the same and may go to the same nodes, zones aside."""
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
        """How many pods one unit adds to each counter."""
        found: dict[int, int] = {}
        for group, pods in self.parts:
            for counter in group.rules.counted:
                found[counter] = found.get(counter, 0) + pods
        return found

    @cached_property
    def caps(self) -> dict[int, int]:
        """The most that each counter may have on its node."""
        found: dict[int, int] = {}
        for group, _ in self.parts:
            for cap in group.rules.caps_on_node:
                found[cap.counter] = min(cap.most, found.get(cap.counter, cap.most))
        return found


@dataclass(frozen=True)
class Unplaced:
    """Pods of a group that have no place, and why. `zone`: where they have been counted already.
    `hopeless`: no node that is there or that may be launched is for them."""

    group: PodGroup
    pods: tuple[str, ...]
    reason: Reason
    zone: int | None = None
    infeasible: bool = False


def group_pods(pods: Sequence[Pod], counters: Counters) -> list[PodGroup]:
    """Group pods in the order of their coming; their terms become known to the counters."""
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
    """Group pods again whose preferences were given up."""
    pods = [Pod(name, spec) for spec, names in relaxed for name in names]
    return group_pods(pods, counters)
