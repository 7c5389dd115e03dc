"""The headroom that the manifests of a cluster define."""

from dataclasses import dataclass

from leeway.headroom.plan import Buffer, Chunks, ScaledTarget
from leeway.policy.rules import ClusterPolicy


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the manifests of one cluster come to; `unread` are those that nobody understands, whose
    objects stay as they are."""

    policy: ClusterPolicy
    buffers: tuple[Buffer, ...]
    chunks: tuple[Chunks, ...]
    targets: tuple[ScaledTarget, ...]
    unread: frozenset[str]

    @property
    def nothing(self) -> bool:
        """Whether nobody wants anything."""
        return not (self.buffers or self.chunks or self.targets)
