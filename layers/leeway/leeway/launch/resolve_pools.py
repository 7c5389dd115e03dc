"""Reads from AWS what the nodes of pools need: subnets, security groups, AMIs and profiles."""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from leeway.launch.images import (
    ImageVariant,
    image_by_parameter,
    image_by_terms,
    parameters_of,
)
from leeway.launch.networks import (
    SubnetChoice,
    choose_profile,
    choose_security_groups,
    choose_subnets,
    node_role,
    security_group_terms,
    subnet_terms,
)
from leeway.launch.node_settings import NodeSettings
from leeway.launch.observed import Subnet
from leeway.launch.ports import Images, InstanceProfiles, Networks, NodeCluster, NodeClusters
from leeway.launch.prepare import ResolvedPool
from leeway.launch.problems import NotLaunchable
from leeway.launch.tags import user_tags
from leeway.launch.templates import NodeResources, TemplateImage
from leeway.parallel import in_parallel
from leeway.reasons import Reason


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
        missing: list[Reason] = []
        for variant in sorted(variants):
            try:
                images[variant] = image_of(variant)
            except NotLaunchable as problem:
                missing.append(problem.reason)
        if missing and not images:
            raise NotLaunchable(missing[0])
        warnings = (*subnets.left_out, *missing)
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
