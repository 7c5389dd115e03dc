"""The Protocols of the table's manifests."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

POOL_KINDS = ("nodepool.karpenter.sh", "provisioner.karpenter.sh")
"""The kinds of manifests of pools."""


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest in the table: `body` is its JSON.

    `resource` is the kind in the form `cluster.leeway.sh`. `version` grows with every write, even
    if the manifest was deleted in between. `written_by` is the version of Leeway that wrote it.
    `deleted_at` is when a pool was deleted, None if it was not: it has no body then.
    """

    resource: str
    namespace: str
    name: str
    body: str
    version: int
    written_by: str
    written_at: datetime
    deleted_at: datetime | None = None

    @property
    def title(self) -> str:
        """The name in the form that kubectl prints: `cluster.leeway.sh/prod`."""
        return f"{self.resource}/{self.name}"


class StoredManifests(Protocol):
    """Reads of the table's manifests."""

    def of(
        self, cluster: str, resource: str = "", deleted: bool = False
    ) -> tuple[StoredManifest, ...]:
        """Read the current manifests of a cluster, all or those of one kind. With `deleted`, also
        return the pools that were deleted in the last 30 days."""
        ...
