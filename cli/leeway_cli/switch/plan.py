"""Plans a switch from Karpenter to Leeway or back, from what a cluster, EC2 and the table show now.

`leeway switch` plans, does the first step, and plans again until no step is left. So a command that
was killed goes on with the same command, and the other direction begins wherever it is.

Karpenter ends an instance that has Karpenter's tags and no NodeClaim, and launches one for a
NodeClaim that does not say it is launched. Source: Karpenter, its controllers
nodeclaim.garbagecollection and nodeclaim.lifecycle. So Karpenter's tags and NodeClaims stay as they
are, a NodeClaim is written only while Karpenter does not run, and an instance gets Karpenter's tags
after its NodeClaim.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from leeway.instances.facts import OWNED_PREFIX, OWNER_TAG, POOL_TAG, InstanceFacts, OwnerKind
from leeway.kubernetes.custom_resources import LEASE, NAMESPACES
from leeway.reasons import Reason, counted
from leeway.switched import Buyer, Switch

from leeway_cli.switch.claims import claim_name

KARPENTERS_POOL_TAG = "karpenter.sh/nodepool"
KARPENTERS_CLASS_TAG = "karpenter.k8s.aws/ec2nodeclass"
KARPENTERS_TAGS = frozenset({KARPENTERS_POOL_TAG, KARPENTERS_CLASS_TAG})
"""The tags by which Karpenter lists its instances, with the one of the cluster."""
LAUNCH_TAG = "eks:eks-cluster-name"
"""The tag with the cluster that both write, and that Leeway's rights to end an instance require."""

DISRUPTED = "karpenter.sh/disrupted"
"""The taint with which Karpenter keeps new pods from a node that it drains."""

QUIET_FOR = timedelta(seconds=60)
"""How long after the record names Karpenter a run of provision_nodes may still launch: it reads the
record right before each round."""

USUAL_REPLICAS = 2
"""The size of Karpenter's Deployment by its chart."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Karpenter's Deployment: its size, the pods that still run, what applies it from Git, and the
    setting by which it renews no Lease that Leeway reads; empty texts if there is none."""

    namespace: str
    name: str
    replicas: int
    running: int
    git: str = ""
    hidden: str = ""

    def scale_command(self, replicas: int) -> str:
        """Return the command that sets its size."""
        return (
            f"kubectl --namespace {self.namespace} scale deployment {self.name} --replicas "
            f"{replicas}"
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """A NodeClaim. `instance` is empty until it is launched; `joined` says that its node has.
    `taken` is False if a switch wrote it and Karpenter has not registered it yet: then no Node
    names it, and nobody would delete it."""

    name: str
    pool: str
    instance: str
    joined: bool
    deleting: bool = False
    taken: bool = True


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of the cluster that starts or runs, with all its tags. `profile` is the name of
    its instance profile."""

    facts: InstanceFacts
    tags: Mapping[str, str]
    launched_at: datetime
    profile: str = ""

    @property
    def id(self) -> str:
        """Its id."""
        return self.facts.instance

    @property
    def is_leeways(self) -> bool:
        """Whether its tags name Leeway as the owner."""
        return self.facts.owner.kind is OwnerKind.LEEWAY

    @property
    def pool(self) -> str:
        """The pool that its tags name."""
        return self.tags.get(KARPENTERS_POOL_TAG) or self.tags.get(POOL_TAG, "")


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read of a cluster.

    - `managed`: Leeway's stack manages it; `in_cluster`: its manifests are in its API server;
      `dry_run`: its Cluster manifest has spec.dryRun.
    - `pools`: the node class of each NodePool.
    - `problems`: why Leeway cannot read a NodePool or class; `ignored`: what of them has no effect.
    - `nodes`: the name of the Node of an instance. `disrupted`: nodes that Karpenter drains;
      `retiring`: those that Leeway drains.
    - `recorded`: the instances whose launch is in the table.
    - `unfit`: why Karpenter would not keep the node of an instance as it is.
    - `not_ready`: why nodes cannot be compared with a class.
    - `alive`: that Karpenter's Lease is renewed.
    """

    cluster: str
    now: datetime
    deployments: tuple[Deployment, ...]
    pools: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    nodes: Mapping[str, str] = field(default_factory=dict)
    disrupted: tuple[str, ...] = ()
    retiring: tuple[str, ...] = ()
    instances: tuple[Instance, ...] = ()
    recorded: frozenset[str] = frozenset()
    unfit: Mapping[str, str] = field(default_factory=dict)
    not_ready: Mapping[str, str] = field(default_factory=dict)
    switch: Switch | None = None
    alive: Reason | None = None
    managed: bool = True
    in_cluster: bool = True
    dry_run: bool = False

    @property
    def is_stopped(self) -> bool:
        """Whether Karpenter neither runs nor may still launch."""
        return self.alive is None and all(not (d.replicas or d.running) for d in self.deployments)


class Do(StrEnum):
    """What a step does."""

    NAME_KARPENTER = "name-karpenter"
    SCALE = "scale"
    WAIT = "wait"
    NAME_LEEWAY = "name-leeway"
    RECORD = "record"
    TAG = "tag"
    CLAIM = "claim"
    UNCLAIM = "unclaim"
    UNTAG = "untag"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Step:
    """A step: what it does, to which instances or NodeClaims, and why. `replicas` is the size of
    the Deployment that it sets, `tags` are those that it writes or removes; with `by_git` a person
    has to set the size."""

    do: Do
    title: str
    why: str
    instances: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    replicas: int = 0
    by_git: str = ""
    claims: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Render it for JSON."""
        return {
            "step": self.do.value,
            "title": self.title,
            "reason": self.why,
            "instances": list(self.instances),
            "nodeClaims": list(self.claims),
        }


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """The steps that are left, why none may be done (`refusals`), what Leeway does otherwise, and
    what stays as it is. `found` names each NodePool, class, NodeClaim and node."""

    cluster: str
    to: Buyer
    steps: tuple[Step, ...] = ()
    refusals: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    found: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Render it for JSON."""
        return {
            "cluster": self.cluster,
            "to": self.to.value,
            "steps": [one.as_data() for one in self.steps],
            "refusals": list(self.refusals),
            "otherwise": list(self.otherwise),
            "left": list(self.left),
            "found": list(self.found),
        }


OTHERWISE = (
    "Leeway replaces a node that differs from what its pool launches now, within the budgets.",
    "`kubectl delete` of a NodeClaim or its Node waits for ever: use `leeway terminate NODE`.",
    "docs/coming-from.md#karpenter has all differences.",
)


def plan_switch(seen: Seen, to: Buyer) -> SwitchPlan:
    """Plan the switch of a cluster to this buyer."""
    others = _not_yet(seen) if to is Buyer.LEEWAY else _not_back_yet(seen)
    refusals = (*_refusals(seen), *others)
    steps = _to_leeway(seen) if to is Buyer.LEEWAY else _to_karpenter(seen)
    plan = SwitchPlan(
        seen.cluster, to, () if refusals else (*steps,), refusals, found=(*_found(seen),)
    )
    if to is Buyer.KARPENTER:
        return plan
    return replace(plan, otherwise=(*seen.ignored, *OTHERWISE), left=(*_left(seen),))


def _not_back_yet(seen: Seen) -> Iterator[str]:
    """A node that Leeway drains would stay with Karpenter, cordoned. While the record names
    Karpenter, Leeway gives nothing back, but still answers what EC2 says of its own instances and
    failed checks: the steps leave those nodes to it."""
    if seen.retiring and (seen.switch is None or seen.switch.buyer is Buyer.LEEWAY):
        yield (
            f"Leeway drains {_some_nodes(seen.retiring)}. Run the command again "
            f"when `leeway status --cluster {seen.cluster}` shows none, and `leeway pause "
            f"{seen.cluster}` before, if there are always some."
        )
    claimed = {one.instance for one in seen.claims}
    drained = [
        one
        for one in seen.instances
        if one.is_leeways and one.id not in claimed and one.id in seen.unfit
    ]
    for name, why in _not_ready(seen, {one.pool for one in drained}):
        nodes = _some_nodes(
            [seen.nodes[one.id] for one in drained if seen.pools.get(one.pool) == name]
        )
        yield (
            f"EC2NodeClass {name} is not Ready ({why}), so whether Karpenter keeps {nodes} is not "
            f"known. Correct it, and run the command again when `kubectl describe ec2nodeclass "
            f"{name}` shows it as Ready, or drain the nodes with `leeway terminate`."
        )


def _not_ready(seen: Seen, pools: Set[str]) -> Iterator[tuple[str, str]]:
    """Yield the classes of some pools with which nodes cannot be compared, and why."""
    for name in sorted({seen.pools.get(one, "") for one in pools} & seen.not_ready.keys()):
        yield name, seen.not_ready[name]


def _some_nodes(nodes: Sequence[str]) -> str:
    named = ", ".join(nodes[:3]) + (" …" if len(nodes) > 3 else "")
    return f"{counted(len(nodes), 'node')} ({named})"


def _found(seen: Seen) -> Iterator[str]:
    for pool, node_class in sorted(seen.pools.items()):
        yield f"NodePool {pool}, EC2NodeClass {node_class}"
    for one in seen.claims:
        node = seen.nodes.get(one.instance, "none")
        yield f"NodeClaim {one.name}: instance {one.instance or 'none'}, node {node}"
    claimed = {one.instance for one in seen.claims}
    for instance in seen.instances:
        if instance.is_leeways and instance.id not in claimed:
            node = seen.nodes.get(instance.id, "none")
            yield f"Instance {instance.id} of Leeway: node {node}"


def _refusals(seen: Seen) -> Iterator[str]:
    cluster = seen.cluster
    if not seen.managed:
        yield f"Leeway does not manage cluster {cluster}. Run `leeway adopt {cluster}` first."
    if not seen.deployments:
        yield (
            f"Cluster {cluster} has no Deployment of Karpenter (label app.kubernetes.io/name="
            "karpenter). Name it with --deployment NAMESPACE/NAME, or install Karpenter with 0 "
            "replicas."
        )
    for one in seen.deployments:
        if one.namespace not in NAMESPACES:
            yield (
                f"Deployment {one.namespace}/{one.name} is in another namespace than "
                f"{' and '.join(NAMESPACES)}, so Leeway would not see that Karpenter runs: it "
                "reads Karpenter's Lease only there."
            )
        if one.hidden:
            yield (
                f"Deployment {one.namespace}/{one.name} has {one.hidden}, so Leeway would not see "
                f"that Karpenter runs: it reads only the Lease {LEASE} in "
                f"{' and '.join(NAMESPACES)}. Remove the setting first."
            )
    if len(seen.deployments) > 1:
        names = ", ".join(f"{one.namespace}/{one.name}" for one in seen.deployments)
        yield (
            f"Cluster {cluster} has several Deployments of Karpenter ({names}). Name the one that "
            "launches nodes with --deployment NAMESPACE/NAME."
        )


def _not_yet(seen: Seen) -> Iterator[str]:
    """Yield why Leeway may not take over now."""
    if not seen.in_cluster:
        yield (
            f"The manifests of cluster {seen.cluster} are in Leeway's table, so Leeway would not "
            f"see that Karpenter runs. Run `leeway adopt {seen.cluster} --manifests cluster` first."
        )
    if seen.dry_run:
        yield (
            f"The Cluster manifest of {seen.cluster} has spec.dryRun, so nobody would launch. "
            "Remove it first."
        )
    yield from (f"Leeway cannot launch from it: {one}." for one in seen.problems)
    if not any(one.replicas for one in seen.deployments):
        return  # nobody finishes it
    if seen.alive is None:
        yield (
            f"Karpenter of cluster {seen.cluster} renews no Lease {LEASE}, so Leeway would not see "
            "that it runs. If it starts now, run the command again when its pod is ready; if it "
            "has no leader election, enable it first."
        )
    for name, why in _not_ready(seen, {one.pool for one in seen.claims}):
        yield (
            f"EC2NodeClass {name} is not Ready ({why}): Leeway could launch no node like those "
            "that it has, and on the way back they would be drained. Correct it, and run the "
            f"command again when `kubectl describe ec2nodeclass {name}` shows it as Ready."
        )
    for one in seen.claims:
        if one.deleting:
            yield f"Karpenter ends NodeClaim {one.name} now. Run the command again when it is gone."
        elif not one.joined:
            yield (
                f"The node of NodeClaim {one.name} has not joined. Run the command again when "
                f"`kubectl get nodeclaim {one.name}` shows it as ready."
            )
    yield from (
        f"Karpenter drains node {one} now. Run the command again when it is gone."
        for one in seen.disrupted
    )


def _to_leeway(seen: Seen) -> Iterator[Step]:
    (deployment,), switch = seen.deployments, seen.switch
    size = deployment.replicas
    is_leeways = switch is not None and switch.buyer is Buyer.LEEWAY
    if switch is None or (size and size != switch.replicas):
        yield _name_karpenter(size or USUAL_REPLICAS)
    yield from _stop(seen, deployment)
    if not is_leeways:
        yield Step(
            Do.NAME_LEEWAY,
            "record that Leeway launches nodes",
            "Karpenter has stopped: pods that wait get nodes of Leeway from now on.",
        )
    taken = [*_taken(seen)]
    if new := [one.id for one in taken if one.id not in seen.recorded]:
        yield Step(
            Do.RECORD,
            f"record the launch of {counted(len(new), 'instance')}",
            "Leeway gives a node back only if the table has its launch.",
            tuple(new),
        )
    pools = sorted({one.pool for one in taken})
    for pool in pools:
        tags = {OWNER_TAG: "leeway", POOL_TAG: pool, LAUNCH_TAG: seen.cluster}
        if lacking := [one.id for one in taken if one.pool == pool and not _has(one, tags)]:
            yield Step(
                Do.TAG,
                f"tag {counted(len(lacking), 'instance')} of pool {pool} for Leeway",
                "From now on Leeway answers its interruptions and gives it back; Karpenter's tags "
                "stay.",
                tuple(lacking),
                tuple(tags.items()),
            )

    yield from _taken_back(seen, {one.id for one in taken})


def _taken_back(seen: Seen, taken: set[str]) -> Iterator[Step]:
    """Yield the steps that undo a killed switch to Karpenter. Instances lose Karpenter's tags
    before their NodeClaims, because Karpenter ends tagged instances without one."""
    ours = taken | {one.id for one in seen.instances if one.is_leeways}
    running = {one.id for one in seen.instances}
    loose = [
        one
        for one in seen.claims
        if not one.taken and (one.instance in ours or one.instance not in running)
    ]
    instances = {one.instance for one in loose}
    listed = [
        one.id
        for one in seen.instances
        if one.id in instances and not KARPENTERS_TAGS.isdisjoint(one.tags)
    ]
    if listed:
        yield _untag(listed, "Their NodeClaims, which a killed switch wrote, are deleted next.")
    if loose:
        yield _unclaim(loose, "A killed switch wrote them, and no Node names them.")


def _unclaim(claims: list[Claim], why: str) -> Step:
    return Step(
        Do.UNCLAIM,
        f"delete {counted(len(claims), 'NodeClaim')}",
        why,
        claims=tuple(one.name for one in claims),
    )


def _untag(instances: list[str], why: str) -> Step:
    return Step(
        Do.UNTAG,
        f"remove Karpenter's tags from {counted(len(instances), 'instance')}",
        why,
        tuple(instances),
        tuple((key, "") for key in sorted(KARPENTERS_TAGS)),
    )


def _stop(seen: Seen, deployment: Deployment) -> Iterator[Step]:
    title = f"{deployment.namespace}/{deployment.name}"
    if deployment.replicas:
        yield Step(
            Do.SCALE,
            f"scale Deployment {title} to 0",
            "Karpenter launches and ends nothing while it does not run.",
            replicas=0,
            by_git=deployment.git,
        )
    if not seen.is_stopped:
        yield Step(
            Do.WAIT,
            "wait until Karpenter has stopped",
            f"Deployment {title} has pods, or its Lease was renewed in the last minute.",
        )


def _taken(seen: Seen) -> Iterator[Instance]:
    """Yield the instances with a NodeClaim whose node has joined, by the tag that EKS writes."""
    claimed = {one.instance for one in seen.claims if one.joined}
    for one in seen.instances:
        if one.id in claimed and one.facts.joined and one.pool:
            yield one


def _has(one: Instance, tags: Mapping[str, str]) -> bool:
    return tags.items() <= one.tags.items()


def _left(seen: Seen) -> Iterator[str]:
    taken, running = {one.id for one in _taken(seen)}, {one.id for one in seen.instances}
    for claim in seen.claims:
        if not claim.taken:
            continue
        if claim.instance in taken:
            if claim.deleting:
                yield (
                    f"Karpenter was ending NodeClaim {claim.name}: run `leeway terminate "
                    f"{seen.nodes.get(claim.instance, claim.instance)}` after the switch."
                )
        elif claim.instance in running or not claim.instance:
            yield (
                f"NodeClaim {claim.name} stays Karpenter's: its node has not joined. `leeway "
                f"switch {seen.cluster} --to karpenter` lets Karpenter finish it."
            )
        else:
            yield (
                f"NodeClaim {claim.name} stays: {claim.instance} is no instance that runs and has "
                f"the tags of cluster {seen.cluster}."
            )
    ending = {seen.nodes.get(one.instance) for one in seen.claims if one.deleting}
    for node in seen.disrupted:
        if node not in ending:
            yield (
                f"Node {node} has the taint {DISRUPTED} still: Karpenter was draining it. Finish "
                f"that with `leeway terminate {node}`, or keep the node with `kubectl taint node "
                f"{node} {DISRUPTED}-`."
            )
    claimed = {one.instance for one in seen.claims}
    for one in seen.instances:
        if KARPENTERS_CLASS_TAG in one.tags and one.id not in claimed and not one.is_leeways:
            yield (
                f"Instance {one.id} stays as it is: it has Karpenter's tags and no NodeClaim, and "
                "Karpenter would end it."
            )


def _to_karpenter(seen: Seen) -> Iterator[Step]:
    (deployment,), switch = seen.deployments, seen.switch
    recorded = switch.replicas if switch is not None else 0
    size = deployment.replicas or recorded or USUAL_REPLICAS
    was_leeways = switch is None or switch.buyer is Buyer.LEEWAY
    if was_leeways:
        yield _name_karpenter(size)
    own = [one for one in seen.instances if one.is_leeways]
    claimed = {one.instance for one in seen.claims if one.instance}
    loose = [one for one in own if one.id not in claimed]
    torn = [one for one in seen.claims if not (one.taken or one.instance)]
    if any(one.id not in seen.nodes for one in loose) or was_leeways or _is_recent(seen):
        yield Step(
            Do.WAIT,
            "wait until Leeway's last launches have joined",
            f"A run that began before the record may launch for {QUIET_FOR.seconds} seconds, and "
            "Karpenter does not know nodes that have not joined.",
        )
    if (loose or torn) and not deployment.replicas and not seen.is_stopped:
        yield Step(
            Do.WAIT,
            "wait until Karpenter has stopped",
            "Its Deployment has pods or its Lease was renewed in the last minute, and NodeClaims "
            "are written only while it does not run.",
        )
    # Not before Karpenter runs: their evictions may wait for pods that nobody launches for.
    retiring = [one for one in own if seen.nodes.get(one.id) in seen.retiring]
    fit = [
        one
        for one in loose
        if seen.is_stopped and not seen.unfit.get(one.id) and one not in retiring
    ]
    if fit:
        yield Step(
            Do.CLAIM,
            f"write {counted(len(fit), 'NodeClaim')}",
            "Karpenter keeps these nodes of Leeway as they are.",
            tuple(one.id for one in fit),
        )
    completed = {claim_name(one.pool, one.id) for one in fit}
    if bare := [one for one in torn if seen.is_stopped and one.name not in completed]:
        yield _unclaim(bare, "They have no status, so Karpenter would launch instances for them.")
    kept = [one for one in own if one.id in claimed or one in fit]
    yield from _tags_for_karpenter(seen, kept)
    drained = [one for one in loose if one not in fit]
    if listed := [one.id for one in drained if not KARPENTERS_TAGS.isdisjoint(one.tags)]:
        yield _untag(listed, "Karpenter would end them without a drain: they have no NodeClaims.")
    if not deployment.replicas:
        yield Step(
            Do.SCALE,
            f"scale Deployment {deployment.namespace}/{deployment.name} to {size}",
            "Karpenter finds its NodeClaims as it left them.",
            replicas=size,
            by_git=deployment.git,
        )
    if given := [one for one in kept if one not in retiring]:
        yield Step(
            Do.UNTAG,
            f"remove the tag {OWNER_TAG} from {counted(len(given), 'instance')}",
            "What has a NodeClaim is Karpenter's again.",
            tuple(one.id for one in given),
            ((OWNER_TAG, "leeway"),),
        )
    yield from _ended(seen, [one for one in drained if one not in retiring])
    if retiring:
        named = _some_nodes([seen.nodes[one.id] for one in retiring])
        yield Step(
            Do.WAIT,
            f"wait until Leeway has drained {named}",
            "It began since the record names Karpenter, and only Leeway ends their instances.",
        )


def _ended(seen: Seen, drained: list[Instance]) -> Iterator[Step]:
    """Yield the steps that end the instances that Karpenter does not get."""
    if drained and seen.alive is None:
        yield Step(
            Do.WAIT,
            "wait until Karpenter runs",
            "Its Lease is not renewed yet, and nobody would launch for drained pods.",
        )
    for one in drained:
        why = seen.unfit.get(one.id) or "Karpenter runs, so no NodeClaim may be written"
        node = seen.nodes.get(one.id, one.id)
        yield Step(
            Do.DRAIN,
            f"drain node {node} and end its instance",
            f"Karpenter would not keep it: {why}. It launches for the pods.",
            (one.id,),
        )


def _is_recent(seen: Seen) -> bool:
    """Whether the record has named Karpenter for so short a time that Leeway may still launch."""
    return seen.switch is not None and seen.now - seen.switch.since < QUIET_FOR


def _name_karpenter(replicas: int) -> Step:
    return Step(
        Do.NAME_KARPENTER,
        "record that Karpenter launches nodes",
        "Leeway launches nothing and gives nothing back while the record names Karpenter.",
        replicas=replicas,
    )


def _tags_for_karpenter(seen: Seen, kept: list[Instance]) -> Iterator[Step]:
    """Yield the steps that tag instances as Karpenter does; those of Karpenter have the tags."""
    lacking: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for one in kept:
        tags = {
            KARPENTERS_POOL_TAG: one.pool,
            KARPENTERS_CLASS_TAG: one.tags.get(KARPENTERS_CLASS_TAG)
            or seen.pools.get(one.pool, ""),
            LAUNCH_TAG: seen.cluster,
            f"{OWNED_PREFIX}{seen.cluster}": "owned",
        }
        if not _has(one, tags):
            lacking.setdefault(tuple(tags.items()), []).append(one.id)
    for found, ids in lacking.items():
        yield Step(
            Do.TAG,
            f"tag {counted(len(ids), 'instance')} for Karpenter",
            "Karpenter lists its instances by these tags, and they have NodeClaims now.",
            tuple(ids),
            found,
        )
