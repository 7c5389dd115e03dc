"""Subnets and security groups in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from leeway.launch.resolve_pools import Subnet
from leeway.manifests.base import SecurityGroupTerm, SubnetTerm


@dataclass
class NetworksInMemory:
    """The Networks Protocol: tags by the subnet's id, and name and tags by the group's id."""

    known: dict[str, Subnet] = field(default_factory=dict)
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def subnets(self, terms: Sequence[SubnetTerm]) -> list[Subnet]:
        return [
            subnet
            for name, subnet in sorted(self.known.items())
            if any(one.id == name or self._tagged(name, one.tags) for one in terms)
        ]

    def security_groups(self, terms: Sequence[SecurityGroupTerm]) -> list[str]:
        return sorted(
            group
            for group, name in self.names.items()
            if any(
                one.id == group or one.name == name or self._tagged(group, one.tags)
                for one in terms
            )
        )

    def _tagged(self, name: str, wanted: Mapping[str, str]) -> bool:
        tags = self.tags.get(name, {})
        return bool(wanted) and all(
            key in tags and value in ("*", tags[key]) for key, value in wanted.items()
        )
