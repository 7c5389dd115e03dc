"""Reads from AWS what the nodes of pools need: subnets, security groups, AMIs and profiles."""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from typing import Protocol

from leeway.bootstrap.node import ClusterDetails
from leeway.launch.belonging import (
    Network,
    SecurityGroup,
    Subnet,
    check_role,
    check_security_groups,
    check_subnets,
    clusters_of,
)
from leeway.launch.fleet_errors import SUBNET_WITHOUT_ADDRESSES
from leeway.launch.images import (
    Image,
    ImageVariant,
    image_by_parameter,
    image_by_terms,
    parameters_of,
    unusable_images,
)
from leeway.launch.intent import LaunchIntent
from leeway.launch.node_settings import NodeSettings, NotLaunchable, Setting, user_tags
from leeway.launch.reservations import (
    CapacityReservations,
    SelectedReservations,
    launched_since,
    reservation_terms,
    select_reservations,
    usable_reservations,
)
from leeway.launch.templates import NodeResources, TemplateImage
from leeway.manifests.base import CapacityReservationTerm, SecurityGroupTerm, SubnetTerm
from leeway.manifests.node_class import AmiTerm
from leeway.parallel import in_parallel
from leeway.ports.aws import CloudUnavailable
from leeway.reasons import Reason
from leeway.selection.labels import NODE_CLASS
from leeway.selection.offers.reservations import Reservation


@dataclass(frozen=True, slots=True)
class SubnetChoice:
    """The subnet to use in each zone, and the subnets that are left out, with reasons."""

    by_zone: Mapping[str, str]
    left_out: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolvedPool:
    """A pool's settings with the resources of AWS that they select. `images` lacks the variants
    that have no AMI; `warnings` name them, and the subnets that are left out."""

    settings: NodeSettings
    details: ClusterDetails
    resources: NodeResources
    subnets: SubnetChoice
    images: Mapping[ImageVariant, TemplateImage]
    warnings: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeCluster:
    """The cluster that nodes join: its connection details, its version, such as 1.34, its ARN and
    its network."""

    details: ClusterDetails
    version: str
    arn: str = ""
    network: Network = field(default_factory=Network)


class NodeClusters(Protocol):
    """Clusters of EKS, as nodes need them."""

    def node_cluster(self, name: str) -> NodeCluster:
        """Read a cluster.

        Raises:
            CloudRefused: there is no such cluster, or nodes cannot join it yet.
        """
        ...

    def joined_with(self, role: str, name: str) -> Collection[str]:
        """Return which clusters nodes with a role, by its ARN, can join by an access entry: of this
        cluster and those that the deployment manages."""
        ...


class Networks(Protocol):
    """Subnets and security groups of EC2."""

    def subnets(self, terms: Sequence[SubnetTerm]) -> Sequence[Subnet]:
        """List the subnets that match at least one of the terms."""
        ...

    def security_groups(self, terms: Sequence[SecurityGroupTerm]) -> Sequence[SecurityGroup]:
        """List the security groups that match at least one of the terms."""
        ...


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    """An instance profile, and the ARN of its role; empty if it has none. A list of profiles has no
    tags."""

    name: str
    role: str
    path: str = "/"
    tags: Mapping[str, str] = field(default_factory=dict, compare=False)


class NoWayToIam(CloudUnavailable):
    """IAM cannot be reached from the network of the function."""


class InstanceProfiles(Protocol):
    """Instance profiles of IAM."""

    def profiles_of(self, role: str) -> Sequence[InstanceProfile]:
        """List the instance profiles that have a role; none if there is no role."""
        ...

    def profile(self, name: str) -> InstanceProfile | None:
        """Read an instance profile; None if it does not exist.

        Raises:
            NoWayToIam: IAM cannot be reached.
        """
        ...

    def tags_of(self, role: str) -> Mapping[str, str]:
        """Read the tags of a role by its name; none if it does not exist, or if IAM cannot be
        reached."""
        ...


class Images(Protocol):
    """AMIs, and the SSM parameters that name them."""

    def parameters(self, names: Collection[str]) -> Mapping[str, str]:
        """Read parameters; those that do not exist are left out."""
        ...

    def images(self, terms: Sequence[AmiTerm]) -> Sequence[Image]:
        """List the AMIs that match at least one of the terms: by an id in any state, by other terms
        only available ones."""
        ...


@dataclass(frozen=True, slots=True)
class NodeSources:
    """The ports that are read for nodes."""

    networks: Networks
    images: Images
    profiles: InstanceProfiles
    clusters: NodeClusters
    reservations: CapacityReservations


class PoolResolver:
    """Resolves pools for one run. Each resource is read once."""

    def __init__(self, sources: NodeSources, cluster: str) -> None:
        self._sources = sources
        self._name = cluster
        self._read: dict[Hashable, object] = {}

    @cached_property
    def _cluster(self) -> NodeCluster:
        return self._sources.clusters.node_cluster(self._name)

    def subnets(self, settings: NodeSettings, exhausted: Collection[str]) -> SubnetChoice:
        """Choose the subnets of a pool, without those that EC2 has just found full.

        Raises:
            NotLaunchable: no subnet is selected.
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        return choose_subnets(
            subnet_terms(settings).place, self.selected_subnets(settings), exhausted
        )

    def selected_subnets(self, settings: NodeSettings) -> Sequence[Subnet]:
        """List all subnets that a pool selects, also those without free addresses.

        Raises:
            NotLaunchable: no manifest has terms, or one does not belong to the cluster.
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        terms = subnet_terms(settings)

        def read() -> Sequence[Subnet]:
            return self._once(
                ("subnets", terms.place), lambda: self._sources.networks.subnets(terms.value)
            )

        # Pods wait: the cluster, which is read once, at the same time.
        reads: list[Callable[[], object]] = [read, lambda: self._cluster]
        in_parallel(lambda one: one(), reads, len(reads))
        check_subnets(self._name, self._cluster.network, terms.place, read())
        return read()

    def selected_reservations(self, settings: NodeSettings) -> SelectedReservations:
        """Select the capacity reservations of a pool; none are read for one without terms.

        Raises:
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        terms = settings.reservations
        if terms is None:
            return SelectedReservations()
        found = self._once(
            ("reservations", terms.place),
            lambda: self._sources.reservations.matching(terms.value),
        )
        return select_reservations(self._name, terms, found)

    def reservations(
        self, settings: NodeSettings, intents: Iterable[LaunchIntent], now: datetime
    ) -> tuple[tuple[Reservation, ...], tuple[Reason, ...]]:
        """Return the reservations that nodes of a pool may be launched into now, and why others are
        not used. `intents` are the launches of the last minutes. Nothing is read for a pool that
        launches no reserved capacity.

        Raises:
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        if reservation_terms(settings) is None:
            return (), ()
        read_at = self._once(("reservations read", settings.node_class), lambda: now)
        found = self.selected_reservations(settings)
        taken = launched_since(intents, read_at)
        family = settings.template.pool.node_class.family
        usable = usable_reservations(found.of_cluster, taken, now, family)
        return usable, found.not_used

    def active_reservations(self, ids: Iterable[str]) -> frozenset[str]:
        """Return those of some capacity reservations, by their ids, that have not ended.

        Raises:
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        terms = [CapacityReservationTerm(id=one) for one in sorted(ids)]
        return frozenset(one.id for one in self._sources.reservations.matching(terms))

    def security_groups(self, settings: NodeSettings) -> tuple[str, ...]:
        """Return the ids of the security groups of a pool, sorted.

        Raises:
            NotLaunchable: none is selected, or one does not belong to the cluster.
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        terms = security_group_terms(settings)
        found = self._once(
            ("groups", terms.place), lambda: self._sources.networks.security_groups(terms.value)
        )
        check_security_groups(self._name, self._cluster.network, terms.place, found)
        return choose_security_groups(terms.place, [one.id for one in found])

    def resolve(
        self,
        settings: NodeSettings,
        variants: Collection[ImageVariant],
        exhausted: Collection[str] = (),
    ) -> ResolvedPool:
        """Resolve a pool for machines that need these variants of an AMI.

        Raises:
            NotLaunchable: a setting is missing or selects nothing; of AMIs, if no variant has one.
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        subnets = self.subnets(settings, exhausted)
        self._read_ahead(settings, variants)
        resources = NodeResources(
            self.security_groups(settings),
            self.instance_profile(settings),
            user_tags(settings),
        )
        image_of = self.images(settings, variants)
        images: dict[ImageVariant, TemplateImage] = {}
        missing: list[NotLaunchable] = []
        for variant in sorted(variants):
            try:
                images[variant] = image_of(variant)
            except NotLaunchable as problem:
                missing.append(problem)
        if missing and not images:
            raise missing[0]
        problems = [*missing, *map(NotLaunchable, self._unusable_images(settings))]
        reasons = dict.fromkeys(one.reason for one in problems)
        warnings = (*subnets.left_out, *reasons)
        return ResolvedPool(settings, self._cluster.details, resources, subnets, images, warnings)

    def _read_ahead(self, settings: NodeSettings, variants: Collection[ImageVariant]) -> None:
        """Make the reads that need no other read's answer at the same time: pods wait for them.
        Errors are those of the first read that fails, in the order in which `resolve` uses them."""
        reads: list[Callable[[], object]] = [
            partial(self.security_groups, settings),
            partial(self.instance_profile, settings),
            partial(self.images, settings, variants),
        ]
        in_parallel(lambda read: read(), reads, len(reads))

    def instance_profile(self, settings: NodeSettings) -> str:
        """Return the name of the instance profile of a pool.

        Raises:
            NotLaunchable: there is none, or its role does not belong to the cluster.
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        if settings.profile is not None:
            place, found = settings.profile.place, self._named_profile(settings.profile)
        else:
            role = node_role(settings)
            place = role.place
            own, karpenters = _by_maker(self._profiles_of(role))
            found = choose_profile(role, own or self._of_class(settings, karpenters))
        self._once(("role", place, found.role), partial(self._check_role, place, found.role))
        return found.name

    def instance_profiles(self, settings: NodeSettings) -> tuple[str, ...]:
        """Return the names of all instance profiles that nodes of a pool may have, with that of
        `instance_profile` first. Raises what that raises."""
        chosen = self.instance_profile(settings)
        if settings.profile is not None:
            return (chosen,)
        own, karpenters = _by_maker(self._profiles_of(node_role(settings)))
        others = [one.name for one in (*own, *self._of_class(settings, karpenters))]
        return tuple(dict.fromkeys([chosen, *others]))

    def _profiles_of(self, role: Setting[str]) -> Sequence[InstanceProfile]:
        found = self._once(
            ("profiles", role.value), lambda: self._sources.profiles.profiles_of(role.value)
        )
        return [one for one in found if not _OF_NODE_GROUP.fullmatch(one.name)]

    def _of_class(
        self, settings: NodeSettings, karpenters: Iterable[InstanceProfile]
    ) -> list[InstanceProfile]:
        """Return those of Karpenter's profiles that it has made for the node class of a pool: it
        deletes the others with their classes."""
        profiles = self._sources.profiles
        read = (
            self._once(("profile", one.name), partial(profiles.profile, one.name))
            for one in karpenters
        )
        return [
            one
            for one in read
            if one is not None
            and one.tags.get(NODE_CLASS, settings.node_class) == settings.node_class
            and (NODE_CLASS in one.tags or not one.path.startswith(_OF_KARPENTER))
            and self._name in (clusters_of(one.tags) or {self._name})
        ]

    def _named_profile(self, profile: Setting[str]) -> InstanceProfile:
        """Read an instance profile. Where IAM cannot be reached, its role is the one of the same
        name: nobody who writes manifests can give a profile another role."""
        name = profile.value
        try:
            found = self._once(("profile", name), lambda: self._sources.profiles.profile(name))
        except NoWayToIam:
            _, partition, _, _, account, _ = self._cluster.arn.split(":", 5)
            return InstanceProfile(name, f"arn:{partition}:iam::{account}:role/{name}")
        if found is None or not found.role:
            raise NotLaunchable(f"IAM has no instance profile {name} with a role: {profile.place}")
        return found

    def _check_role(self, place: str, role: str) -> bool:
        joins = self._sources.clusters.joined_with(role, self._name)
        alone = {*joins} == {self._name}
        tags = {} if alone else self._sources.profiles.tags_of(role.rpartition("/")[2])
        check_role(self._name, place, role, joins, tags)
        return True

    def images(
        self, settings: NodeSettings, variants: Collection[ImageVariant]
    ) -> Callable[[ImageVariant], TemplateImage]:
        """Read the AMIs; the result chooses that of a variant, and raises NotLaunchable if it has
        none.

        Raises:
            NotLaunchable: the node class selects no AMI.
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        parameters = parameters_of(settings, self._cluster.version, variants)
        ports = self._sources.images
        if parameters:
            names = sorted(parameters.values())
            values = self._once(("parameters", *names), lambda: ports.parameters(names))
            return lambda variant: TemplateImage(
                image_by_parameter(settings, variant, parameters[variant], values)
            )
        found = self._selected_images(settings)

        def chosen(variant: ImageVariant) -> TemplateImage:
            image = image_by_terms(settings, variant, found)
            return TemplateImage(image.id, image.root_device)

        return chosen

    def _selected_images(self, settings: NodeSettings) -> Sequence[Image]:
        terms = settings.images
        return self._once(("images", terms.place), lambda: self._sources.images.images(terms.value))

    def _unusable_images(self, settings: NodeSettings) -> Iterable[str]:
        if not any(one.id for one in settings.images.value):
            return ()
        return unusable_images(settings, self._selected_images(settings))

    def _once[T](self, key: Hashable, read: Callable[[], T]) -> T:
        if key not in self._read:
            self._read[key] = read()
        found: T = self._read[key]  # type: ignore[assignment]
        return found


def subnet_terms(settings: NodeSettings) -> Setting[tuple[SubnetTerm, ...]]:
    """Return the terms that select subnets.

    Raises:
        NotLaunchable: no manifest has terms.
    """
    if settings.subnets is None:
        raise NotLaunchable(
            f"pool {settings.pool} has no subnets: set spec.subnetSelectorTerms in EC2NodeClass "
            f"{settings.node_class}, or spec.defaults.subnetSelectorTerms in the Cluster manifest"
        )
    return settings.subnets


def security_group_terms(settings: NodeSettings) -> Setting[tuple[SecurityGroupTerm, ...]]:
    """Return the terms that select security groups.

    Raises:
        NotLaunchable: no manifest has terms.
    """
    if settings.security_groups is None:
        raise NotLaunchable(
            f"pool {settings.pool} has no security groups: set spec.securityGroupSelectorTerms in "
            f"EC2NodeClass {settings.node_class}, or spec.defaults.securityGroupSelectorTerms in "
            "the Cluster manifest"
        )
    return settings.security_groups


def choose_subnets(
    place: str, subnets: Collection[Subnet], exhausted: Collection[str] = ()
) -> SubnetChoice:
    """Choose one subnet for each zone: the one with the most free addresses. EC2 accepts an
    instance type once for a zone in one fleet. `exhausted` are ids of subnets in which EC2 has
    just found too few addresses.

    Raises:
        NotLaunchable: there are no subnets.
    """
    if not subnets:
        raise NotLaunchable(f"no subnet matches {place}: correct the terms, or tag the subnets")
    left_out, chosen = [], dict[str, str]()
    for one in sorted(subnets, key=lambda subnet: (-subnet.free, subnet.id)):
        if one.free <= 0 or one.id in exhausted:
            left_out.append(
                SUBNET_WITHOUT_ADDRESSES(subnets=f"{one.id} in {one.zone}", place=f" to {place}")
            )
        else:
            chosen.setdefault(one.zone, one.id)
    return SubnetChoice(dict(sorted(chosen.items())), tuple(left_out))


def choose_security_groups(place: str, groups: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the security groups, sorted.

    Raises:
        NotLaunchable: there are none.
    """
    found = tuple(sorted(set(groups)))
    if not found:
        raise NotLaunchable(
            f"no security group matches {place}: correct the terms, or tag the security groups"
        )
    return found


def node_role(settings: NodeSettings) -> Setting[str]:
    """Return the role of a pool whose node class names no instance profile.

    Raises:
        NotLaunchable: no manifest has a role.
    """
    if settings.role is None:
        raise NotLaunchable(
            f"pool {settings.pool} has no node role: set spec.role or spec.instanceProfile in "
            f"EC2NodeClass {settings.node_class}, or spec.defaults.nodeRole in the Cluster manifest"
        )
    return settings.role


_OF_NODE_GROUP = re.compile(r"eks-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The instance profile that EKS creates for a managed node group, and deletes with it."""

_OF_KARPENTER = "/karpenter/"
_BY_KARPENTER = re.compile(r".+_[0-9]{15,20}")
"""The path and the names of the instance profiles that Karpenter creates for a node class, and
deletes with it. Older ones have the path `/`. Source: Karpenter's AWS provider,
`InstanceProfileName` and the controllers nodeclass and nodeclass.garbagecollection."""


def _by_maker(
    profiles: Iterable[InstanceProfile],
) -> tuple[list[InstanceProfile], list[InstanceProfile]]:
    """Return the profiles that somebody else has made, and those that look like Karpenter's."""
    found: tuple[list[InstanceProfile], list[InstanceProfile]] = ([], [])
    for one in profiles:
        looks = one.path.startswith(_OF_KARPENTER) or _BY_KARPENTER.fullmatch(one.name)
        found[bool(looks)].append(one)
    return found


def choose_profile(role: Setting[str], profiles: Collection[InstanceProfile]) -> InstanceProfile:
    """Choose among the instance profiles that have a role: the one with the role's name, or else
    the first by name.

    Raises:
        NotLaunchable: there are none.
    """
    kept = {one.name: one for one in profiles}
    if not kept:
        raise NotLaunchable(
            f"no instance profile of your own has the role {role.value} of {role.place} (EKS "
            "deletes those of managed node groups with the group, and Karpenter those of other "
            "node classes with the class): create one, and add the role to it with `aws iam "
            "add-role-to-instance-profile`"
        )
    return kept[role.value if role.value in kept else min(kept)]
