"""How a node differs from what its pool launches now: labels, taints, AMI, networks, settings.

What is not known, of the instance or of its pool, is no difference. Source: Karpenter
documentation, "Drift".
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from leeway.instances.facts import InstanceFacts
from leeway.launch.images import ImageVariant
from leeway.launch.node_settings import read_tag_value
from leeway.reasons import some
from leeway.selection.labels import JOINED, NODEPOOL
from leeway.selection.pods import ExistingNode, NodePool

DRIFTS_AFTER = timedelta(hours=1)
"""The age from which a node counts as drifted. If a controller changes a label of each new node, no
node is replaced more often than that."""


def drift_of(
    node: ExistingNode, offering: Mapping[str, str], pool: NodePool, startup: Collection[str] = ()
) -> tuple[str, ...]:
    """Return sentences about how a node drifted from its pool; none if it did not.

    `offering` are the labels that EC2 confirms for its instance: they replace those of the Node,
    which its kubelet may write. `startup` are keys of taints that a node loses as it starts. Labels
    and taints that the pool does not have may be a controller's or a person's, so they are no
    drift. Source: Karpenter documentation, "Drift".
    """
    labels = {**node.labels, **offering}
    return (*_labels(labels, pool), *_taints(node, pool, startup))


def _labels(labels: Mapping[str, str], pool: NodePool) -> Iterator[str]:
    for key, requirement in sorted(pool.requirements.items()):
        value = labels.get(key)
        # A pool that allows several values of a label sets it only if a pod requires it.
        missing = value is None and key in pool.labels
        differs = value is not None and not requirement.admits(value)
        if key not in {NODEPOOL, *JOINED} and (missing or differs):
            has = "no value" if value is None else value
            yield f"Its label {key} has {has}, and the pool requires {requirement}."


def _taints(node: ExistingNode, pool: NodePool, startup: Collection[str]) -> Iterator[str]:
    for taint in pool.taints:
        if taint.key not in startup and taint not in node.taints:
            yield f"It lacks the taint {taint} of the pool."


@dataclass(frozen=True, slots=True)
class CurrentLaunch:
    """What nodes of one pool would be launched with now; None and missing: not known.

    - `hashes`: of the settings in the manifests, by the names of their parts.
    - `images`: the AMI for each variant of machine.
    - `subnets`, `security_groups`: the ids of all that the pool selects.
    - `unselected`: the active capacity reservations that its nodes run in and that it does not
      select any more.
    """

    hashes: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[ImageVariant, str] = field(default_factory=dict)
    subnets: frozenset[str] | None = None
    security_groups: frozenset[str] | None = None
    unselected: frozenset[str] = frozenset()


def launch_drift_of(
    facts: InstanceFacts, variant: ImageVariant | None, now: CurrentLaunch
) -> tuple[str, ...]:
    """Return sentences about how an instance drifted; none if it did not. `variant` is that of its
    machine, None if the catalog does not know the machine."""
    return (*_by_description(facts, variant, now), *_by_settings(facts, now))


def _by_description(
    facts: InstanceFacts, variant: ImageVariant | None, now: CurrentLaunch
) -> Iterator[str]:
    """Compare what EC2 itself says of the instance: no tag can change it."""
    wanted = now.images.get(variant) if variant is not None else None
    if wanted and facts.image and facts.image != wanted:
        yield f"It runs {facts.image}, and its pool launches {wanted} now."
    if now.subnets and facts.subnet and facts.subnet not in now.subnets:
        yield f"Its subnet {facts.subnet} is none of those that its pool selects now."
    groups = frozenset(facts.security_groups)
    if now.security_groups and groups and groups != now.security_groups:
        has, wanted = some(sorted(groups)), some(sorted(now.security_groups))
        yield f"It has the security groups {has}, and its pool selects {wanted} now."
    if facts.reservation is not None and facts.reservation.id in now.unselected:
        yield f"Its pool does not select capacity reservation {facts.reservation.id} any more."


def _by_settings(facts: InstanceFacts, now: CurrentLaunch) -> Iterator[str]:
    """Compare the hashes in the tag. A part that only one side has is no difference."""
    launched = read_tag_value(facts.launch_settings)
    for part, wanted in sorted(now.hashes.items()):
        if launched.get(part, wanted) != wanted:
            yield f"The setting {part} of its manifests has changed since it was launched."
