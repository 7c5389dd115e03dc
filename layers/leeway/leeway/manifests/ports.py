"""manifests.ports"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredManifest:
    """A manifest as the table has it: `body` is its JSON.

    `resource` is the kind as in `cluster.leeway.sh`. `version` grows with every write, also when
    the manifest was deleted in between. `written_by` is the version of Leeway that wrote it last.
    """

    resource: str
    namespace: str
    name: str
    body: str
    version: int
    written_by: str
    written_at: datetime

    @property
    def title(self) -> str:
        """How kubectl names it: `cluster.leeway.sh/prod`."""
        return f"{self.resource}/{self.name}"


class StoredManifests(Protocol):
    """The table's manifests."""

    def of(self, cluster: str, resource: str = "") -> tuple[StoredManifest, ...]:
        """Read a cluster's manifests, all or those of a kind, as they are now."""
        ...


class ManifestWriting(Protocol):
    """Changes to the table's manifests."""

    def write(self, cluster: str, manifest: StoredManifest, replaces: int) -> None:
        """Write a manifest in place of the version that was read; 0 says that there was none.

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...

    def delete(self, cluster: str, manifest: StoredManifest) -> None:
        """Delete this very version of a manifest.

        Raises:
            RecordChanged: the stored version is another one, or it is gone.
        """
        ...
