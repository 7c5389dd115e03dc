"""Reads all facts: the stack, the account and the clusters, few calls each, at the same time.

A part that fails becomes an `Unread`, and the others go on.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from leeway import __version__
from leeway.aws.eks import EksClusters
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.eks import eks_connection
from leeway.kubernetes.kubeconfig import BadKubeconfig, kubeconfig_connection
from leeway.manifests.base import Manifest
from leeway.wiring.clients import client, clock, session

from leeway_cli.adopt.plan import RBAC, read_objects
from leeway_cli.adopt.reachability import FunctionsNetwork, functions_network
from leeway_cli.adopt.settings.access import AccessEntry, Eks, EksCluster, Mode
from leeway_cli.adopt.settings.groups import AutoScaling, ScalingGroup
from leeway_cli.adopt.settings.leeway_stack import CloudFormation, LeewayStack
from leeway_cli.adopt.settings.objects import ClusterObject, KubernetesObjects, is_limited
from leeway_cli.adopt.settings.spot_role import spot_role_exists
from leeway_cli.doctor.facts import (
    ClusterFacts,
    ConfigurationFacts,
    Facts,
    FunctionAnswers,
    GroupFacts,
    InstanceUse,
    MissingRight,
    PoolFacts,
    Read,
    Unread,
    known,
)
from leeway_cli.doctor.finding import Severity
from leeway_cli.doctor.names import FUNCTIONS, function_name
from leeway_cli.doctor.read import aws, cluster, kubernetes, probes
from leeway_cli.doctor.rights import rights_in_namespaces, rights_of
from leeway_cli.errors import AccountError, CommandError, as_clause, aws_errors, kubernetes_errors
from leeway_cli.stack import Stack, other_server, same_server

AT_ONCE = 16


class Pending[T]:
    """A part that is being read."""

    def __init__(self, future: "Future[Read[T]]") -> None:
        self._future = future

    def get(self) -> Read[T]:
        """Wait for the part.

        Raises:
            CommandError: nothing can be read, because there are no valid credentials or no region.
        """
        return self._future.result()


class Parts(AbstractContextManager["Parts"]):
    """Starts the readers of parts in threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start[T](self, part: str, severity: Severity, read: Callable[[], T]) -> Pending[T]:
        """Begin to read a part. `part` names it in a sentence; `severity` is that of the worst
        finding that it could hide."""
        return Pending(self._pool.submit(_read, part, severity, read))

    def start_with[T, N](
        self, needed: Read[N], part: str, severity: Severity, read: Callable[[N], T]
    ) -> Pending[T]:
        """Begin to read a part that needs another one. It cannot be read if the other was not."""
        if isinstance(needed, Unread):
            done: Future[Read[T]] = Future()
            done.set_result(Unread(part, needed.problem, severity))
            return Pending(done)
        return self.start(part, severity, lambda: read(needed))


def _read[T](part: str, severity: Severity, read: Callable[[], T]) -> Read[T]:
    try:
        with aws_errors(part), kubernetes_errors():
            return read()
    except CommandError as error:
        if isinstance(error, AccountError):
            raise
        return Unread(part, str(error), severity)
    except Exception as error:  # noqa: BLE001 - the other parts are worth reading
        return Unread(part, _unexpected(error), severity)


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {as_clause(error)}. Set LEEWAY_DEBUG=1 to see the traceback."


@dataclass(frozen=True, slots=True)
class Sources:
    """The readers. `connect` connects to the API server of a cluster; `wanted` are the objects that
    it needs."""

    stacks: CloudFormation
    clusters: Eks
    groups: AutoScaling
    network: Callable[[LeewayStack], FunctionsNetwork]
    connect: Callable[[str], Connection]
    wanted: tuple[ClusterObject, ...]


def sources(kubeconfig: Path | None, context: str | None) -> Sources:
    """Return the readers of AWS, and of clusters by this kubeconfig.

    Raises:
        BadInputError: the objects that a cluster needs cannot be read.
    """
    return Sources(
        stacks=CloudFormation(partial(client, "cloudformation")),
        clusters=Eks(partial(client, "eks")),
        groups=AutoScaling(partial(client, "autoscaling"), partial(client, "ec2")),
        network=partial(functions_network, ec2=partial(client, "ec2")),
        connect=lambda name: _connect(name, kubeconfig, context),
        wanted=read_objects(RBAC),
    )


def _connect(cluster: str, kubeconfig: Path | None, context: str | None) -> Connection:
    """Connect to the API server of a cluster: by the kubeconfig if its context is of this cluster,
    or else with an EKS token of the AWS identity.

    Raises:
        BadKubeconfig: the kubeconfig or the context that a user named is invalid.
        CannotBeDoneError: they are of another cluster.
    """
    endpoint = EksClusters(partial(client, "eks")).endpoint(cluster)
    named = kubeconfig is not None or context is not None
    try:
        connection = kubeconfig_connection(kubeconfig, context)
    except BadKubeconfig:
        if named:
            raise
        return eks_connection(endpoint, session())
    if same_server(connection.server, endpoint.url):
        return connection
    server = connection.server
    connection.close()
    if named:
        raise other_server(cluster, server, endpoint.url)
    return eks_connection(endpoint, session())


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
        self._policies = parts.start_with(
            connection,
            "the kinds of the API server",
            FAILS,
            lambda one: KubernetesObjects(one).has_policies(),
        )
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
            policies=self._policies.get(),
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
        objects = KubernetesObjects(connection)
        read = (objects.read(one) for one in self._sources.wanted)
        return tuple(one for one in read if one is not None)

    def _read_rights(self, connection: Connection) -> tuple[MissingRight, ...]:
        limited = known(self._policies.get()) is False
        wanted = (one for one in self._sources.wanted if not (limited and is_limited(one)))
        objects = [one.body for one in wanted]
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


def read_facts(name: str, asked: str, sources: Sources) -> Facts:
    """Read the facts about a stack, and about the cluster that was asked for or, without one, all
    clusters of the stack.

    Raises:
        CommandError: nothing can be read, because there are no valid credentials or no region.
    """
    with Parts() as parts:
        instances = parts.start("the instances of the account", FAILS, aws.instances)
        pending = _of_stack(parts, name)
        found = parts.start(f"stack {name}", FAILS, lambda: sources.stacks.stack(name)).get()
        deployed = known(found)
        names = (asked,) if asked else deployed.clusters if deployed else ()
        region = str(session().region_name)
        catalog = parts.start_with(
            found, "the catalog", FAILS, lambda one: aws.catalog(one.table, region)
        )
        network = parts.start_with(
            found, "the network of the functions", FAILS, lambda one: sources.network(one)
        )
        answers = parts.start_with(
            found, "the answers of the functions", FAILS, partial(_answers, names, pending)
        )
        known_instances = instances.get()
        reading = [
            ClusterReading(parts, one, sources, found, known_instances)
            for one in dict.fromkeys(names)
        ]
        for step in (ClusterReading.read_more, ClusterReading.read_roles):
            for one in reading:
                step(one)
        return Facts(
            region=region,
            version=__version__,
            stack=found,
            instances=known_instances,
            catalog=catalog.get(),
            network=network.get(),
            wanted_objects=sources.wanted,
            clusters=tuple(one.facts() for one in reading),
            answers=answers.get(),
            **{part: one.get() for part, one in pending.items()},
            # Last: every answer of AWS has a date.
            ahead=clock().offset.ahead,
            now=clock().now(),
        )


def _answers(
    clusters: Sequence[str], pending: Mapping[str, Pending[Any]], stack: LeewayStack
) -> tuple[FunctionAnswers, ...]:
    """Ask the functions that run, if they are of this version: others know other probes."""
    functions = known(pending["functions"].get())
    if functions is None or stack.version != __version__:
        return ()
    run = {one.name for one in functions if one.state == "Active" and one.reserved != 0}
    fit = [one for one in FUNCTIONS if function_name(stack.name, one) in run]
    return probes.answers_of(stack.name, [one for one in clusters if one in stack.clusters], fit)


def _of_stack(parts: Parts, name: str) -> Mapping[str, Pending[Any]]:
    """Start to read what needs only the name of the stack."""
    found: Mapping[str, tuple[str, Severity, Callable[[], Any]]] = {
        "functions": ("the functions of the stack", FAILS, partial(aws.functions_of, name)),
        "aliases": ("the aliases of the functions", FAILS, partial(aws.aliases_of, name)),
        "consumers": ("the event source mappings", FAILS, partial(aws.consumers_of, name)),
        "concurrency": ("the concurrency of the account", FAILS, aws.concurrency),
        "rules": ("the rules of EventBridge", FAILS, aws.rules),
        "schedules": ("the schedules", FAILS, partial(aws.schedules_of, name)),
        "queues": ("the queues of failures", WARNS, partial(aws.failure_queues_of, name)),
        "alarms": ("the alarms", WARNS, partial(aws.alarms_of, name)),
        "quotas": ("the quotas of EC2", FAILS, aws.ec2_quotas),
        "spot_role": ("EC2's role for Spot", WARNS, lambda: spot_role_exists(client("iam"))),
    }
    return {key: parts.start(*given) for key, given in found.items()}
