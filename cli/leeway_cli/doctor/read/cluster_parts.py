"""Reads the parts of one cluster. Some parts need others, so there are three rounds."""

from collections.abc import Sequence

from leeway.kubernetes.connection import Connection
from leeway.manifests.base import Manifest

from leeway_cli.cluster_setup.desired import LeewayStack
from leeway_cli.cluster_setup.ports import EksCluster, ScalingGroup
from leeway_cli.cluster_setup.settings import AccessEntry, ClusterObject, Mode
from leeway_cli.doctor.facts import (
    ClusterFacts,
    ConfigurationFacts,
    GroupFacts,
    InstanceUse,
    MissingRight,
    PoolFacts,
    Read,
    Unread,
    known,
)
from leeway_cli.doctor.finding import Severity
from leeway_cli.doctor.read import cluster, kubernetes
from leeway_cli.doctor.read.parts import Parts
from leeway_cli.doctor.read.sources import Sources
from leeway_cli.doctor.rights import rights_in_namespaces, rights_of
from leeway_cli.stack import Stack

FAILS, WARNS = Severity.FAILS, Severity.WARNS

type _Manifests = tuple[ConfigurationFacts, tuple[Manifest, ...]]


class ClusterReading:
    """The parts of one cluster, some of which are being read."""

    def __init__(
        self,
        parts: Parts,
        name: str,
        sources: Sources,
        stack: Read[LeewayStack],
        instances: Read[tuple[InstanceUse, ...]],
    ) -> None:
        self._parts, self._sources = parts, sources
        self._name, self._stack, self._instances = name, stack, instances
        groups = sources.groups
        self._groups = parts.start(
            "the Auto Scaling groups with their hooks", FAILS, lambda: tuple(groups.groups_of(name))
        )
        self._eks = parts.start("the cluster in EKS", FAILS, lambda: sources.clusters.cluster(name))
        self._manifests = parts.start_with(
            stack, "the manifests", FAILS, lambda one: cluster.manifests_of(_table(one), name)
        )
        self._connection = parts.start("the API server", FAILS, lambda: sources.connect(name))

    def read_more(self) -> None:
        """Start to read what needs the parts of the first round."""
        parts, connection = self._parts, self._connection.get()
        self._capacity = parts.start_with(
            self._groups.get(), "the capacity of the groups", FAILS, _capacity
        )
        self._pools = parts.start_with(self._manifests.get(), "the pools", FAILS, self._read_pools)
        self._objects = parts.start_with(
            connection, "the objects of rbac/", FAILS, self._read_objects
        )
        self._rights = parts.start_with(
            connection, "the rights of Leeway's groups", FAILS, self._read_rights
        )
        self._workloads = parts.start_with(
            connection, "the DaemonSets and Deployments", WARNS, kubernetes.workloads
        )

    def read_roles(self) -> None:
        """Start to read what needs the parts of the second round."""
        parts = self._parts
        self._roles = parts.start_with(
            self._pools.get(),
            "the IAM roles of nodes",
            FAILS,
            lambda pools: cluster.roles_named([one.role for one in pools]),
        )
        self._entries = parts.start_with(
            self._eks.get(), "the access entries", FAILS, self._read_entries
        )

    def facts(self) -> ClusterFacts:
        """Wait for all parts, and close the connection."""
        manifests = self._manifests.get()
        found = ClusterFacts(
            name=self._name,
            eks=self._eks.get(),
            entries=self._entries.get(),
            objects=self._objects.get(),
            scaling_groups=self._groups.get(),
            configuration=manifests if isinstance(manifests, Unread) else manifests[0],
            groups=self._capacity.get(),
            pools=self._pools.get(),
            roles=self._roles.get(),
            workloads=self._workloads.get(),
            rights=self._rights.get(),
        )
        if (connection := known(self._connection.get())) is not None:
            connection.close()
        return found

    def _read_pools(self, manifests: _Manifests) -> tuple[PoolFacts, ...]:
        stack = known(self._stack)
        if stack is None:
            return ()
        launched = {one.pool for one in known(self._instances) or () if one.cluster == self._name}
        return cluster.pools_of(_table(stack), self._name, manifests[1], launched)

    def _read_objects(self, connection: Connection) -> tuple[ClusterObject, ...]:
        objects = self._sources.objects(connection)
        read = (objects.read(one) for one in self._sources.wanted)
        return tuple(one for one in read if one is not None)

    def _read_rights(self, connection: Connection) -> tuple[MissingRight, ...]:
        objects = [one.body for one in self._sources.wanted]
        manifests = known(self._manifests.get())
        bindings = manifests[0].bindings if manifests is not None else ()
        rights = (*rights_of(objects), *rights_in_namespaces(objects, bindings))
        return kubernetes.missing_rights(connection, rights)

    def _read_entries(self, eks: EksCluster) -> tuple[AccessEntry, ...]:
        stack, roles = known(self._stack), known(self._roles.get())
        if eks.mode is Mode.CONFIG_MAP or stack is None:
            return ()
        arns = {*stack.groups, *(one.arn for one in roles or () if one.arn)}
        return tuple(self._sources.clusters.entries(self._name, sorted(arns)))


def _table(stack: LeewayStack) -> Stack:
    return Stack(stack.table, stack.clusters)


def _capacity(groups: Sequence[ScalingGroup]) -> tuple[GroupFacts, ...]:
    managed = {one.name: one.node_group for one in groups}
    return cluster.groups_named(sorted(managed), managed)
