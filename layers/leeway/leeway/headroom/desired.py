"""The headroom that the manifests of a cluster define."""

from dataclasses import dataclass

from leeway.headroom.plan import Buffer, ScaledTarget, TemplateBuffer
from leeway.policy.rules import ClusterPolicy


@dataclass(frozen=True, slots=True)
class DesiredHeadroom:
    """The headroom of one cluster. `unreadable` are the manifests that cannot be read; the objects
    of these are not changed."""

    policy: ClusterPolicy
    buffers: tuple[Buffer, ...]
    template_buffers: tuple[TemplateBuffer, ...]
    targets: tuple[ScaledTarget, ...]
    unreadable: frozenset[str]

    @property
    def is_empty(self) -> bool:
        """Whether the manifests define no headroom."""
        return not (self.buffers or self.template_buffers or self.targets)
