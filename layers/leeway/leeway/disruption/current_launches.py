"""Reads what the nodes of pools would be launched with now, for drift. A warm function keeps it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.disruption import reasons
from leeway.disruption.drift import CurrentLaunch
from leeway.instances.facts import InstanceFacts
from leeway.launch.images import ImageVariant, variant_of
from leeway.launch.intent import LaunchIntent
from leeway.launch.node_settings import NodeSettings, NotLaunchable, settings_hashes, settings_of
from leeway.launch.resolve_pools import NodeSources, PoolResolver
from leeway.launch.templates import TemplateImage
from leeway.manifests.base import Manifest
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.reasons import Reason, clause
from leeway.selection.offers.catalog import Catalog
from leeway.selection.offers.reservations import Reservation

READ_AGAIN_AFTER = timedelta(minutes=10)
"""How long what was read from AWS counts, also if it could not be read."""

type Variants = Mapping[str, frozenset[ImageVariant]]
type Reservations = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class LaunchesRead:
    """What each pool would launch with, by its name, and what cannot be read: each problem once, as
    long as it lasts. `lasting` has all problems that last."""

    of_pool: Mapping[str, CurrentLaunch]
    problems: tuple[Reason, ...] = ()
    lasting: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was read at a time. `problems` are by the pool and the part that could not be read."""

    at: datetime
    settings: Sequence[NodeSettings]
    variants: Variants
    used: Reservations
    of_pool: Mapping[str, CurrentLaunch]
    problems: Mapping[tuple[str, str], Reason]

    def counts(
        self,
        settings: Sequence[NodeSettings],
        variants: Variants,
        used: Reservations,
        now: datetime,
    ) -> bool:
        recent = timedelta(0) <= now - self.at < READ_AGAIN_AFTER
        return recent and (self.settings, self.variants, self.used) == (settings, variants, used)


class CurrentLaunches:
    """What clusters would launch now. It is read from AWS again when it is old, or when a manifest,
    the kinds of machines or the reservations of nodes change: one call of EKS for a cluster, and
    for each node class one of SSM or DescribeImages, one DescribeSubnets and one
    DescribeSecurityGroups."""

    def __init__(self, sources: NodeSources) -> None:
        self._sources = sources
        self._kept: dict[str, _Kept] = {}
        self._told: dict[str, frozenset[tuple[str, str]]] = {}

    def read(
        self,
        cluster: str,
        manifests: Sequence[Manifest],
        catalog: Catalog,
        own: Mapping[str, InstanceFacts],
        now: datetime,
    ) -> LaunchesRead:
        """Return what the pools of these instances would launch now. Raises nothing: what AWS does
        not tell is not known."""
        variants = _variants(own.values(), catalog)
        used = _reservations(own.values())
        settings = tuple(one for one in settings_of(manifests) if one.pool in variants)
        kept = self._kept.get(cluster)
        if kept is None or not kept.counts(settings, variants, used, now):
            reading = _Reading(PoolResolver(self._sources, cluster))
            of_pool = {
                one.pool: reading.launch(one, variants[one.pool], used.get(one.pool, frozenset()))
                for one in settings
            }
            kept = _Kept(now, settings, variants, used, of_pool, reading.problems)
            self._kept[cluster] = kept
        told = self._told.get(cluster, frozenset())
        self._told[cluster] = frozenset(kept.problems)
        new = tuple(reason for key, reason in kept.problems.items() if key not in told)
        return LaunchesRead(kept.of_pool, new, tuple(kept.problems.values()))

    def reservations(
        self,
        cluster: str,
        manifests: Sequence[Manifest],
        intents: Iterable[LaunchIntent],
        now: datetime,
    ) -> Mapping[str, tuple[Reservation, ...]]:
        """Return what each pool may launch into, by its name, read now: what is free changes with
        each launch. Nothing is read for pools without terms; what AWS does not tell is left out."""
        resolver, found = PoolResolver(self._sources, cluster), {}
        launched = tuple(intents)
        for one in settings_of(manifests):
            with suppress(CloudRefused, CloudUnavailable):
                usable, _ = resolver.reservations(one, launched, now)
                if usable:
                    found[one.pool] = usable
        return found


def _reservations(instances: Collection[InstanceFacts]) -> Reservations:
    """The capacity reservations that the nodes of each pool run in, by their ids."""
    found: dict[str, frozenset[str]] = {}
    for one in instances:
        if one.reservation is not None:
            name = one.owner.name
            found[name] = found.get(name, frozenset()) | {one.reservation.id}
    return found


def _variants(instances: Collection[InstanceFacts], catalog: Catalog) -> Variants:
    found: dict[str, frozenset[ImageVariant]] = {}
    for one in instances:
        machine = catalog.machine(one.instance_type)
        some = frozenset() if machine is None else frozenset({variant_of(machine)})
        found[one.owner.name] = found.get(one.owner.name, frozenset()) | some
    return found


class _Reading:
    """One reading of a cluster's pools. When AWS does not answer once, it is not asked again."""

    def __init__(self, resolver: PoolResolver) -> None:
        self._resolver = resolver
        self._silent: CloudUnavailable | None = None
        self.problems: dict[tuple[str, str], Reason] = {}

    def launch(
        self, one: NodeSettings, variants: Collection[ImageVariant], used: frozenset[str]
    ) -> CurrentLaunch:
        """Read one pool, whose nodes run in the reservations `used`."""
        resolver = self._resolver
        subnets = self._known(one, "subnets", lambda: resolver.selected_subnets(one))
        groups = self._known(one, "security groups", lambda: resolver.security_groups(one))
        return CurrentLaunch(
            hashes=settings_hashes(one),
            images=self._images(one, variants),
            subnets=None if subnets is None else frozenset(each.id for each in subnets),
            security_groups=None if groups is None else frozenset(groups),
            unselected=self._unselected(one, used),
        )

    def _unselected(self, one: NodeSettings, used: frozenset[str]) -> frozenset[str]:
        """Those of some reservations that are active and that a pool does not select. One that has
        just ended is no drift: its instances are on-demand from now on."""
        if not used:
            return frozenset()
        resolver = self._resolver
        selected = self._known(one, "reservations", lambda: resolver.selected_reservations(one).ids)
        if selected is None or not (others := used - selected):
            return frozenset()
        active = self._known(one, "reservations", lambda: resolver.active_reservations(others))
        return active or frozenset()

    def _images(
        self, one: NodeSettings, variants: Collection[ImageVariant]
    ) -> Mapping[ImageVariant, str]:
        if not variants:
            return {}
        image_of = self._known(one, "AMIs", lambda: self._resolver.images(one, variants))
        if image_of is None:
            return {}
        chosen = ((each, self._chosen(one, each, image_of)) for each in sorted(variants))
        return {variant: image for variant, image in chosen if image is not None}

    def _chosen(
        self,
        one: NodeSettings,
        variant: ImageVariant,
        image_of: Callable[[ImageVariant], TemplateImage],
    ) -> str | None:
        image = self._known(one, "AMIs", lambda: image_of(variant))
        return None if image is None else image.id

    def _known[T](self, one: NodeSettings, what: str, read: Callable[[], T]) -> T | None:
        try:
            if self._silent is not None:
                raise self._silent
            return read()
        except NotLaunchable as problem:
            error = clause(problem.reason)
        except CloudUnavailable as problem:
            self._silent = problem
            error = clause(problem)
        except CloudRefused as problem:
            error = clause(problem)
        reason = reasons.DRIFT_NOT_KNOWN(pool=one.pool, what=what, error=error)
        self.problems.setdefault((one.pool, what), reason)
        return None
