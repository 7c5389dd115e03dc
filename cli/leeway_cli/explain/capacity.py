"""Reads what provision_nodes gives back: from a live cluster, or from files."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic

from leeway.clock import SystemClock
from leeway.disruption.current_launches import CurrentLaunches
from leeway.disruption.drift import CurrentLaunch
from leeway.disruption.explain import ForeignNode, GroupSize
from leeway.disruption.snapshot import Snapshot, own_instances, snapshot_of
from leeway.durations import render_duration
from leeway.instances.facts import InstanceFacts
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway.manifests.base import Manifest
from leeway.manifests.cluster import Cluster, cluster_policy
from leeway.manifests.pools import pools_of
from leeway.policy.rules import ClusterPolicy
from leeway.policy.worth import Worth
from leeway.provisioning.cluster_read import ClusterRead
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.kept_objects import KINDS, KeptObjects
from leeway.provisioning.node_details import NodeDetails
from leeway.selection.solver.problem import Proceed
from leeway.wiring.launch_nodes import node_sources

from leeway_cli.errors import kubernetes_errors
from leeway_cli.explain.cluster_reads import cluster_read, find_manifests, stored_launches
from leeway_cli.explain.owners import facts_by_labels, group_sizes, owners_by_ec2, owners_by_labels
from leeway_cli.explain.records import StoredRecords, read_records
from leeway_cli.output import write_stderr
from leeway_cli.selection.catalogs import Offers, find_offers
from leeway_cli.selection.kubernetes_files import KubernetesFiles
from leeway_cli.stack import has_account

FOLLOWED_SECONDS = 10.0
"""How long later steps are simulated."""

STALE_AFTER = timedelta(hours=24)
"""The age of a catalog that is reported: refresh_catalog renews it every six hours."""

_NO_INSTANCE = "node/"
"""The prefix of the key of a node that names no instance."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a command reads: its options."""

    files: Sequence[Path]
    nodes: Sequence[Path]
    cluster: str
    kubeconfig: Path | None
    context: str | None
    sandbox: bool
    region: str | None
    stack: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """The snapshot of a cluster, the nodes of other owners, and the sizes of their groups."""

    snapshot: Snapshot
    foreign: tuple[ForeignNode, ...]
    sizes: Mapping[str, GroupSize]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return (*(one.name for one in self.snapshot.own), *(one.name for one in self.foreign))


def time_limit(seconds: float = FOLLOWED_SECONDS) -> Proceed:
    """Return a function that is true for this many seconds from now on."""
    until = monotonic() + seconds
    return lambda: monotonic() < until


def read_capacity(source: Source) -> Capacity:
    """Read the manifests, the cluster, its instances and the prices. Warnings go to stderr.

    Raises:
        BadInputError: an option or a file is invalid.
        CannotBeDoneError: the API server or AWS did not answer, or refused: the missing right is
            named.
    """
    manifests = find_manifests(tuple(source.files), source.cluster, source.stack)
    pools = [pool.name for pool in pools_of(manifests)]
    if not pools:
        write_stderr("warning: there is no NodePool: Leeway launches nothing and keeps all nodes.")
    policy = _policy(manifests)
    offers = find_offers(source.region, source.stack, sandbox=source.sandbox)
    stored = stored_launches(source.cluster, source.stack)
    state = _state_of_files(source.nodes) if source.nodes else _live_state(source)
    for unreadable in state.unreadable:
        write_stderr(f"warning: {unreadable.reason.code}: {unreadable.reason}")
    warn_of_catalog(offers, state.read_at)
    read = cluster_read(source.cluster, manifests, offers.catalog, state, stored)
    records = read_records(source.cluster, source.stack, policy, state)
    if source.nodes or not has_account():
        write_stderr("warning: EC2 is not read: nodes with the label of a pool count as Leeway's.")
        return _capacity(read, owners_by_labels(state, pools), {}, offers, records, policy.worth)
    facts = owners_by_ec2(state)
    launches = _launches(read, facts)
    sizes = group_sizes(facts.values())
    return _capacity(read, facts, sizes, offers, records, policy.worth, launches)


def _launches(read: ClusterRead, facts: Mapping[str, InstanceFacts]) -> Mapping[str, CurrentLaunch]:
    """Read from AWS what the pools would launch now; warn of what cannot be read."""
    now, own = read.state.read_at, own_instances(facts)
    launches = CurrentLaunches(node_sources())
    found = launches.read(read.cluster, read.manifests, read.catalog, own, now)
    for problem in found.problems:
        write_stderr(f"warning: {problem.code}: {problem}")
    return found.of_pool


def _live_state(source: Source) -> ClusterState:
    with (
        kubernetes_errors(),
        closing(kubeconfig_connection(source.kubeconfig, source.context)) as connection,
    ):
        return KubernetesClusterStates(lambda _: connection, SystemClock()).read(source.cluster)


def _state_of_files(paths: Sequence[Path]) -> ClusterState:
    """Read the state of a cluster from the output of kubectl."""
    objects = KeptObjects()
    for document in KubernetesFiles(paths).documents:
        kind = str(document.get("kind"))
        if kind in KINDS:
            objects.put(kind, document)
    return objects.state(SystemClock().now())


def _capacity(
    read: ClusterRead,
    facts: Mapping[str, InstanceFacts],
    sizes: Mapping[str, GroupSize],
    offers: Offers,
    stored: StoredRecords,
    worth: Worth,
    launches: Mapping[str, CurrentLaunch] | None = None,
) -> Capacity:
    details, now = read.state.details, read.state.read_at
    quiet = {name: _quiet_since(one, now) for name, one in details.items()}

    def snapshot(read: ClusterRead, instances: Mapping[str, InstanceFacts]) -> Snapshot:
        return snapshot_of(
            read,
            instances,
            quiet,
            stored.retiring,
            offers.unavailable,
            stored.most,
            worth,
            launches,
            deleted=stored.deleted,
        )

    made = snapshot(read, own_instances(facts))
    own = {one.name for one in made.own}
    joined, known = _with_all_nodes(read.state, facts)
    everything = replace(read, state=replace(read.state, joined=joined))
    owners = {joined[key]: one.owner for key, one in known.items() if key in joined}
    # Only Leeway labels its nodes as initialized: others are in use as soon as they are Ready.
    foreign = tuple(
        ForeignNode(replace(one, ready=details[one.name].ready), owners[one.name])
        for one in snapshot(everything, known).own
        if one.name not in own
    )
    return Capacity(made, foreign, sizes)


def _with_all_nodes(
    state: ClusterState, facts: Mapping[str, InstanceFacts]
) -> tuple[Mapping[str, str], Mapping[str, InstanceFacts]]:
    """Return the joined instances and their facts, with those of nodes that name no instance."""
    named = set(state.joined.values())
    without = {f"{_NO_INSTANCE}{one.name}": one for one in state.nodes if one.name not in named}
    unknown = {key: facts_by_labels("", node, ()) for key, node in without.items()}
    joined = {**state.joined, **{key: node.name for key, node in without.items()}}
    return joined, {**facts, **unknown}


def _quiet_since(node: NodeDetails, now: datetime) -> datetime:
    """Return since when no pod came to a node. A command does not know which pods have left."""
    times = [node.ready_since or node.created_at, *(one.created_at or now for one in node.pods)]
    return min(max(times), now)


def _policy(manifests: Sequence[Manifest]) -> ClusterPolicy:
    """Return the policy of the Cluster manifest, and warn if Leeway does nothing by it."""
    written = (one for one in manifests if isinstance(one, Cluster))
    policy = next((cluster_policy(one) for one in written), ClusterPolicy())
    if policy.paused:
        write_stderr("warning: the cluster is paused: nothing is given back until leeway resume.")
    if policy.dry_run:
        write_stderr("warning: the cluster has dryRun: nothing is given back.")
    return policy


def warn_of_catalog(offers: Offers, now: datetime) -> None:
    """Warn if a catalog is empty or old."""
    if not offers.catalog.names:
        write_stderr("warning: the catalog has no instance type, so no price is known.")
    if offers.read_at is not None and now - offers.read_at > STALE_AFTER:
        age = render_duration(timedelta(hours=(now - offers.read_at) // timedelta(hours=1)))
        write_stderr(
            f"warning: the catalog is {age} old, and prices may differ: see refresh_catalog."
        )
