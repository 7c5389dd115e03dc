"""The storm in numbers: what a headline, a tile or a total says."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from cli.report.story import NodeStory, Outcome, PodTrace, Story


@dataclass(frozen=True)
class Spread:
    """The middle and the worst of some durations, in seconds."""

    middle: float
    worst: float


@dataclass(frozen=True)
class Figures:
    """Counts and durations (seconds) of a story; a duration nobody measured is None."""

    nodes: int
    drained: int
    replaced: int
    pods: int
    moved: int
    ended: int
    cut: int
    lost: int
    refusals: int
    duplicates: int
    strangers: int
    to_cordon: Spread | None
    to_ready: Spread | None
    to_spare: float | None


def figures(story: Story) -> Figures:
    """Count what a story tells."""
    outcomes = [pod.verdict.outcome for pod in story.moving]
    spare = [
        node.trace.takes_at - node.drained_at
        for node in story.nodes
        if node.drained_at is not None and drained_in_time(node)
    ]
    return Figures(
        nodes=len(story.nodes),
        drained=sum(1 for node in story.nodes if drained_in_time(node)),
        replaced=sum(1 for node in story.nodes if ready_at(node) is not None),
        pods=len(outcomes),
        moved=outcomes.count(Outcome.MOVED),
        ended=outcomes.count(Outcome.ENDED),
        cut=outcomes.count(Outcome.CUT),
        lost=outcomes.count(Outcome.DIED) + outcomes.count(Outcome.UNPLACED),
        refusals=sum(pod.trace.refusals for pod in story.moving),
        duplicates=sum(max(0, len(node.trace.notices) - 1) for node in story.nodes),
        strangers=len(story.strangers),
        to_cordon=_spread(to_cordon(node) for node in story.nodes),
        to_ready=_spread(to_ready(node) for node in story.nodes),
        to_spare=min(spare, default=None),
    )


def drained_in_time(node: NodeStory) -> bool:
    """Whether every pod that had to leave had ended before the instance went."""
    left = [pod for pod in node.moving if pod.verdict.outcome is Outcome.DIED]
    return bool(node.trace.cordons) and not left


def to_cordon(node: NodeStory) -> float | None:
    """Seconds from the first delivery of the notice to the cordon."""
    if not node.trace.cordons or node.trace.noticed_at is None:
        return None
    return node.trace.cordons[0] - node.trace.noticed_at


def ready_at(node: NodeStory) -> float | None:
    """When the replacement was Ready."""
    return node.trace.replacement.ready_at if node.trace.replacement else None


def to_ready(node: NodeStory) -> float | None:
    """Seconds from the first delivery of the notice until the replacement was Ready."""
    ready = ready_at(node)
    if ready is None or node.trace.noticed_at is None:
        return None
    return ready - node.trace.noticed_at


def missing_for(pod: PodTrace) -> float | None:
    """Seconds between a pod's end and its successor's start; 0 where they overlapped."""
    if pod.successor is None or pod.successor.running_at is None or pod.ended_at is None:
        return None
    return max(0.0, pod.successor.running_at - pod.ended_at)


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(median(known), max(known)) if known else None
