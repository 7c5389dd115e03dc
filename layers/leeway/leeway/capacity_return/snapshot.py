"""The state of a cluster from which it is decided what is given back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.capacity_return.rules import ReturnRules
from leeway.policy.worth import USUAL, Worth
from leeway.reasons import Reason
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.pools import NodePool


@dataclass(frozen=True, slots=True)
class MovablePod:
    """A pod that keeps its node from being empty, and needs another place if the node goes.

    `protected_until` is until when an annotation forbids to disrupt it. `blocked_by` are the
    PodDisruptionBudgets that allow no disruption of it now. `bare`: no controller creates it again.
    """

    pod: Pod
    protected_until: datetime | None = None
    blocked_by: tuple[str, ...] = ()
    bare: bool = False


@dataclass(frozen=True, slots=True)
class OwnNode:
    """A node that Leeway launched.

    - `node`: the node with all its pods, as selection sees it.
    - `price`: USD per hour of its offering now, None if it is not known.
    - `quiet_since`: when the last of its pods came or went, or the node became Ready.
    - `protected`: an annotation of the node forbids to disrupt it.
    - `busy`: a pod terminates on it, the scheduler preempts others there for a pod, or it is empty
      and was launched for pods that still wait.
    - `going`: it is being retired, or its instance is interrupted. `gone`: it was given back empty,
      and EC2 ends its instance; only its Node is left.
    - `drift`: why it differs from what would be launched now; empty if it does not.
    """

    node: ExistingNode
    instance: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    created_at: datetime
    quiet_since: datetime
    pods: tuple[MovablePod, ...] = ()
    ready: bool = True
    protected: bool = False
    going: bool = False
    gone: bool = False
    busy: bool = False
    drift: tuple[Reason, ...] = ()

    @property
    def name(self) -> str:
        """The name of its Node."""
        return self.node.name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at the time `now` (aware, UTC).

    - `others`: the nodes that are not Leeway's own, and instances that have not joined yet.
    - `waiting`: pods without a node, and those that scheduled headroom will create soon: nodes with
      room for them are needed.
    - `pools`, `catalog`, `unavailable`, `daemons`: what could be launched instead.
    - `rules`: the rules of each pool by its name; of a pool without rules nothing is given back.
    - `most`: how many nodes the disruption budget of the cluster allows now.
    """

    now: datetime
    own: tuple[OwnNode, ...]
    pools: Sequence[NodePool]
    catalog: Catalog
    rules: Mapping[str, ReturnRules]
    others: tuple[ExistingNode, ...] = ()
    waiting: tuple[Pod, ...] = ()
    unavailable: frozenset[Unavailable] = frozenset()
    daemons: tuple[PodSpec, ...] = ()
    worth: Worth = USUAL
    most: int | None = None

    def quiet(self, nodes: Iterable[OwnNode]) -> timedelta:
        """Return for how long no pod has come to any of these nodes or left it."""
        return self.now - max(one.quiet_since for one in nodes)
