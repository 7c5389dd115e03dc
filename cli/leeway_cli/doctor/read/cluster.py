"""Reads what AWS and the table know of one cluster: manifests, pools, roles."""

from collections.abc import Collection, Iterator, Sequence

from botocore.exceptions import ClientError
from leeway.aws.errors import code_of
from leeway.headroom.reconciler import BUFFER_ROLE, TARGET_ROLE
from leeway.launch.images import ImageVariant
from leeway.launch.node_settings import NodeSettings, NotLaunchable, settings_of
from leeway.launch.reservations import reservation_terms
from leeway.launch.resolve_pools import PoolResolver
from leeway.manifests.base import Manifest
from leeway.manifests.cluster import Cluster, ClusterSpec
from leeway.manifests.headroom import CapacityBuffer
from leeway.manifests.node_pool import NodePool, pools_without_limits
from leeway.manifests.node_pool import pools_of as selected_pools
from leeway.manifests.scaled_object import ScaledObject
from leeway.pool_pauses import POOL
from leeway.wiring.clients import client, table
from leeway.wiring.launch_nodes import node_sources

from leeway_cli.doctor.facts import ConfigurationFacts, PoolFacts, RoleFacts
from leeway_cli.manifests.changes import reading_of
from leeway_cli.stack import Stack

_VARIANTS = (ImageVariant("arm64"), ImageVariant("x86_64"))


def manifests_of(stack: Stack, cluster: str) -> tuple[ConfigurationFacts, tuple[Manifest, ...]]:
    """Read the stored manifests of a cluster, with their problems."""
    problems: list[str] = []
    written: list[Manifest] = []
    for one in stack.manifests().of(cluster):
        reading = reading_of(one)
        problems += map(str, reading.problems)
        written += [each.manifest for each in reading.written]
    policy = next((one.spec for one in written if isinstance(one, Cluster)), None)
    facts = ConfigurationFacts(
        paused=policy is not None and policy.paused,
        dry_run=policy is not None and policy.dry_run,
        takes=policy.takes if policy is not None else (),
        problems=tuple(problems),
        pools=tuple(one.metadata.name for one in written if isinstance(one, NodePool)),
        bindings=tuple(_bindings(written)),
        unlimited=pools_without_limits(written),
        usd_per_hour=_usd_per_hour(policy),
        surges=policy is not None and policy.surge,
        waits_for_targets=policy is not None and policy.wait_for_targets,
        pool_limits=tuple(
            (one.name, one.usd_per_hour)
            for one in selected_pools(written)
            if one.usd_per_hour is not None
        ),
    )
    return facts, tuple(written)


def _usd_per_hour(policy: ClusterSpec | None) -> float | None:
    if policy is None or "usd_per_hour" not in policy.launches.model_fields_set:
        return None
    return policy.launches.usd_per_hour


def _bindings(manifests: Sequence[Manifest]) -> Iterator[tuple[str, str]]:
    """Yield the roles that headroom needs in namespaces of users."""
    for one in manifests:
        namespace = one.metadata.namespace or "default"
        if isinstance(one, ScaledObject):
            yield TARGET_ROLE, namespace
        elif isinstance(one, CapacityBuffer):
            yield BUFFER_ROLE, namespace


def pools_of(
    stack: Stack, cluster: str, manifests: Sequence[Manifest], launched: Collection[str]
) -> tuple[PoolFacts, ...]:
    """Read the records of a cluster's pools, and resolve what their nodes are launched with, as
    provision_nodes does. `launched` are pools that have an instance now."""
    settings = settings_of(manifests)
    if not settings:
        return ()
    records = table(name=stack.table).list(POOL, cluster=cluster)
    stored = {one.pool: one for one in records}
    resolver = PoolResolver(node_sources(), cluster)
    found = []
    for one in settings:
        record = stored.get(one.pool)
        joined = record is not None and record.counted_from is not None
        reserved = resolver.selected_reservations(one)
        found.append(
            PoolFacts(
                name=one.pool,
                role=one.role.value if one.role is not None else _role_of_profile(one),
                unlaunchable=_unlaunchable(resolver, one),
                launched=one.pool in launched or joined,
                paused=str(record.paused) if record is not None and record.paused else None,
                reservations=reserved.of_cluster,
                not_reserved=one.reservations is not None and reservation_terms(one) is None,
                not_used=tuple(reason.message for reason in reserved.not_used),
            )
        )
    return tuple(found)


def _unlaunchable(resolver: PoolResolver, settings: NodeSettings) -> str | None:
    try:
        resolver.resolve(settings, _VARIANTS)
    except NotLaunchable as problem:
        return str(problem.reason)
    return None


def _role_of_profile(settings: NodeSettings) -> str:
    """Return the role of the instance profile that a node class names; empty if IAM has no such
    profile, or none in it."""
    if settings.profile is None:
        return ""
    try:
        found = client("iam").get_instance_profile(InstanceProfileName=settings.profile.value)
    except ClientError as error:
        if code_of(error) == "NoSuchEntity":
            return ""
        raise
    roles = found["InstanceProfile"]["Roles"]
    return str(roles[0]["RoleName"]) if roles else ""


def roles_named(names: Collection[str]) -> tuple[RoleFacts, ...]:
    """Read roles of nodes with their managed policies: two calls for each."""
    return tuple(map(_role, sorted(set(names) - {""})))


def _role(name: str) -> RoleFacts:
    iam = client("iam")
    try:
        arn = iam.get_role(RoleName=name)["Role"]["Arn"]
        pages = iam.get_paginator("list_attached_role_policies").paginate(RoleName=name)
        policies = [one["PolicyName"] for page in pages for one in page["AttachedPolicies"]]
    except ClientError as error:
        if code_of(error) == "NoSuchEntity":
            return RoleFacts(name, exists=False)
        raise
    return RoleFacts(name, arn=arn, policies=frozenset(policies))
