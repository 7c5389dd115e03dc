"""The subnets, security groups and instance profile of a pool's nodes."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from leeway.launch import reasons
from leeway.launch.node_settings import NodeSettings, Setting
from leeway.launch.observed import Subnet
from leeway.launch.problems import NotLaunchable
from leeway.manifests.fields import SecurityGroupTerm, SubnetTerm
from leeway.reasons import Reason


@dataclass(frozen=True, slots=True)
class SubnetChoice:
    """The subnet to use in each zone, and the subnets that are left out, with reasons."""

    by_zone: Mapping[str, str]
    left_out: tuple[Reason, ...] = ()


def subnet_terms(settings: NodeSettings) -> Setting[tuple[SubnetTerm, ...]]:
    """Return the terms that select subnets.

    Raises:
        NotLaunchable: no manifest has terms.
    """
    if settings.subnets is None:
        raise NotLaunchable(
            reasons.SUBNETS_NOT_SELECTED(pool=settings.pool, node_class=settings.node_class)
        )
    return settings.subnets


def security_group_terms(settings: NodeSettings) -> Setting[tuple[SecurityGroupTerm, ...]]:
    """Return the terms that select security groups.

    Raises:
        NotLaunchable: no manifest has terms.
    """
    if settings.security_groups is None:
        raise NotLaunchable(
            reasons.SECURITY_GROUPS_NOT_SELECTED(pool=settings.pool, node_class=settings.node_class)
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
        raise NotLaunchable(reasons.SUBNETS_NOT_FOUND(place=place))
    left_out, chosen = [], dict[str, str]()
    for one in sorted(subnets, key=lambda subnet: (-subnet.free, subnet.id)):
        if one.free <= 0 or one.id in exhausted:
            left_out.append(
                reasons.SUBNET_WITHOUT_ADDRESSES(subnet=one.id, zone=one.zone, place=place)
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
        raise NotLaunchable(reasons.SECURITY_GROUPS_NOT_FOUND(place=place))
    return found


def node_role(settings: NodeSettings) -> Setting[str]:
    """Return the role of a pool whose node class names no instance profile.

    Raises:
        NotLaunchable: no manifest has a role.
    """
    if settings.role is None:
        raise NotLaunchable(
            reasons.NODE_ROLE_NOT_SET(pool=settings.pool, node_class=settings.node_class)
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
        raise NotLaunchable(reasons.NODE_ROLE_WITHOUT_PROFILE(role=role.value, place=role.place))
    return role.value if role.value in kept else min(kept)
