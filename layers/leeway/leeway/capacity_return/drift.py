"""How a node differs from what its pool launches now, by its labels, taints and offering."""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta

from leeway.capacity_return import reasons
from leeway.reasons import Reason
from leeway.selection.labels import JOINED, NODEPOOL
from leeway.selection.pods import ExistingNode
from leeway.selection.pools import NodePool

DRIFTS_AFTER = timedelta(hours=1)
"""The age from which a node counts as drifted. If a controller changes a label of each new node, no
node is replaced more often than that."""


def drift_of(
    node: ExistingNode, offering: Mapping[str, str], pool: NodePool, startup: Collection[str] = ()
) -> tuple[Reason, ...]:
    """Return how a node drifted from its pool; nothing if it did not.

    `offering` are the labels that EC2 confirms for its instance: they replace those of the Node,
    which its kubelet may write. `startup` are keys of taints that a node loses as it starts. Labels
    and taints that the pool does not have may be a controller's or a person's, so they are no
    drift. Source: Karpenter documentation, "Drift".
    """
    labels = {**node.labels, **offering}
    return (*_labels(labels, pool), *_taints(node, pool, startup))


def _labels(labels: Mapping[str, str], pool: NodePool) -> Iterator[Reason]:
    for key, requirement in sorted(pool.requirements.items()):
        value = labels.get(key)
        # A pool that allows several values of a label sets it only if a pod requires it.
        missing = value is None and key in pool.labels
        differs = value is not None and not requirement.admits(value)
        if key not in {NODEPOOL, *JOINED} and (missing or differs):
            has = "no value" if value is None else value
            yield reasons.LABEL_DRIFTED(key=key, wanted=requirement, has=has)


def _taints(node: ExistingNode, pool: NodePool, startup: Collection[str]) -> Iterator[Reason]:
    for taint in pool.taints:
        if taint.key not in startup and taint not in node.taints:
            yield reasons.TAINT_DRIFTED(taint=taint)
