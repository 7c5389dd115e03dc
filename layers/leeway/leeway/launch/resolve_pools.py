"""Reads from AWS what the nodes of pools need: subnets, security groups, AMIs and profiles."""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from leeway.bootstrap.node import ClusterDetails
from leeway.launch.fleet_errors import SUBNET_WITHOUT_ADDRESSES
from leeway.launch.images import (
    Image,
    ImageVariant,
    image_by_parameter,
    image_by_terms,
    parameters_of,
)
from leeway.launch.node_settings import NodeSettings, NotLaunchable, Setting, user_tags
from leeway.launch.templates import NodeResources, TemplateImage
from leeway.manifests.base import SecurityGroupTerm, SubnetTerm
from leeway.manifests.node_class import AmiTerm
from leeway.parallel import in_parallel
from leeway.reasons import Reason


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
    """The cluster that nodes join: its connection details, and its version, such as 1.34."""

    details: ClusterDetails
    version: str


class NodeClusters(Protocol):
    """Clusters of EKS, as nodes need them."""

    def node_cluster(self, name: str) -> NodeCluster:
        """Read a cluster.

        Raises:
            CloudRefused: there is no such cluster, or nodes cannot join it yet.
        """
        ...


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet of a VPC. `free` is its number of free IPv4 addresses."""

    id: str
    zone: str
    free: int


class Networks(Protocol):
    """Subnets and security groups of EC2."""

    def subnets(self, terms: Sequence[SubnetTerm]) -> Sequence[Subnet]:
        """List the subnets that match at least one of the terms."""
        ...

    def security_groups(self, terms: Sequence[SecurityGroupTerm]) -> Sequence[str]:
        """List the ids of the security groups that match at least one of the terms."""
        ...


class InstanceProfiles(Protocol):
    """Instance profiles of IAM."""

    def profiles_of(self, role: str) -> Sequence[str]:
        """List the names of the instance profiles that have a role; none if there is no role."""
        ...


class Images(Protocol):
    """AMIs, and the SSM parameters that name them."""

    def parameters(self, names: Collection[str]) -> Mapping[str, str]:
        """Read parameters; those that do not exist are left out."""
        ...

    def images(self, terms: Sequence[AmiTerm]) -> Sequence[Image]:
        """List the available AMIs that match at least one of the terms."""
        ...


@dataclass(frozen=True, slots=True)
class NodeSources:
    """The ports that are read for nodes."""

    networks: Networks
    images: Images
    profiles: InstanceProfiles
    clusters: NodeClusters


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
            NotLaunchable: no manifest has terms.
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        terms = subnet_terms(settings)
        return self._once(
            ("subnets", terms.place), lambda: self._sources.networks.subnets(terms.value)
        )

    def security_groups(self, settings: NodeSettings) -> tuple[str, ...]:
        """Return the ids of the security groups of a pool, sorted.

        Raises:
            NotLaunchable: none is selected.
            CloudUnavailable, CloudRefused: AWS cannot be read.
        """
        terms = security_group_terms(settings)
        found = self._once(
            ("groups", terms.place), lambda: self._sources.networks.security_groups(terms.value)
        )
        return choose_security_groups(terms.place, found)

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
            self._profile(settings),
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
        warnings = (*subnets.left_out, *(one.reason for one in missing))
        return ResolvedPool(settings, self._cluster.details, resources, subnets, images, warnings)

    def _read_ahead(self, settings: NodeSettings, variants: Collection[ImageVariant]) -> None:
        """Make the reads that need no other read's answer at the same time: pods wait for them.
        Errors are those of the first read that fails, in the order in which `resolve` uses them."""
        reads: list[Callable[[], object]] = [
            lambda: self.security_groups(settings),
            lambda: self._profile(settings),
            lambda: self.images(settings, variants),
        ]
        in_parallel(lambda read: read(), reads, len(reads))

    def _profile(self, settings: NodeSettings) -> str:
        if settings.profile is not None:
            return settings.profile.value
        role = node_role(settings)
        found = self._once(
            ("profile", role.value), lambda: self._sources.profiles.profiles_of(role.value)
        )
        return choose_profile(role, found)

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
        terms = settings.images
        found = self._once(("images", terms.place), lambda: ports.images(terms.value))

        def chosen(variant: ImageVariant) -> TemplateImage:
            image = image_by_terms(settings, variant, found)
            return TemplateImage(image.id, image.root_device)

        return chosen

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
"""The instance profile that EKS creates for a managed node group."""


def choose_profile(role: Setting[str], profiles: Collection[str]) -> str:
    """Choose among the instance profiles that have a role: the one with the role's name, or else
    the first by name. EKS deletes the profile of a managed node group with the group, so that one
    is never chosen.

    Raises:
        NotLaunchable: there are none.
    """
    kept = [name for name in profiles if not _OF_NODE_GROUP.fullmatch(name)]
    if not kept:
        raise NotLaunchable(
            f"no instance profile of your own has the role {role.value} of {role.place} (EKS "
            "deletes those of managed node groups with the group): create one, and add the role to "
            "it with `aws iam add-role-to-instance-profile`"
        )
    return role.value if role.value in kept else min(kept)
