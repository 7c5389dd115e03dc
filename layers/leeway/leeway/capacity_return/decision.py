"""The decision which nodes are given back, and why the others are kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from leeway.capacity_return.rules import Cause
from leeway.reasons import Reason


@dataclass(frozen=True, slots=True)
class NodeReturn:
    """Nodes that are given back together.

    - `nodes`: their names. Several nodes are given back together only for one that replaces them.
    - `replaced`: their pods need a new node, which is requested before the first of them goes.
    - `saving`: USD per hour. `moves`: how many pods move.
    """

    nodes: tuple[str, ...]
    cause: Cause
    reason: Reason
    saving: float = 0.0
    moves: int = 0
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class ReturnDecision:
    """What is given back now; `kept` has the reason for each other node of Leeway's own.

    `waiting` would be given back now if a budget allowed it. `due_at` is when the next empty node
    has been quiet for long enough, None if there is none.
    """

    returns: tuple[NodeReturn, ...] = ()
    waiting: tuple[NodeReturn, ...] = ()
    due_at: datetime | None = None
    kept: Mapping[str, Reason] = field(default_factory=dict)
