"""What Leeway keeps in its table, as Protocols; `ports` has the errors that they may raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

# Only shapes: a function that uses one port need not import what the others speak of.
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from leeway.drain.summary import DrainState
    from leeway.headroom.kept import Kept, Original
    from leeway.policies import ClusterPolicy
    from leeway.records.arrival import Arrival
    from leeway.records.retirement import InstanceFacts, Retirement
    from leeway.records.turns import ChurnLedger
    from leeway.selection.offers.unavailable import Unavailable


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type in a zone of a region, as spot or on-demand."""

    region: str
    instance_type: str
    zone: str
    capacity_type: str


class RecordChanged(Exception):
    """Somebody else wrote the record since it was read."""


@dataclass(frozen=True, slots=True)
class Known:
    """All that the table holds about one instance: its retirement, its admission, and `facts` of
    the index, which are at most some minutes old. None where it holds none, which says nothing
    about the instance. An admission or facts that nobody can make sense of are as good as none.
    """

    retirement: Retirement | None = None
    facts: InstanceFacts | None = None
    arrival: Arrival | None = None


@dataclass(frozen=True, slots=True)
class Recalled:
    """Something that somebody read, as JSON, and when."""

    body: str
    read_at: datetime


class Claims(Protocol):
    """What one of many does for all, or for now."""

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        """Say that one does it; False where another one has said so until later than now."""
        ...


class Memory(Claims, Protocol):
    """What the table remembers by name, so that many functions need not all ask for it."""

    def recall(self, what: str) -> Recalled | None:
        """Read what is remembered; None where nothing is. It may be a second old."""
        ...

    def remember(self, what: str, recalled: Recalled) -> None:
        """Write down what was read."""
        ...


class Records(Protocol):
    """The table's retirement records."""

    def known(self, instance: str) -> Known:
        """Read everything about an instance, consistently and in one call."""
        ...

    def retirement(self, instance: str) -> Retirement | None:
        """Read the retirement record consistently."""
        ...

    def write(self, record: Retirement) -> None:
        """Write a record whose `version` is one above what was read (1: there was none).

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The records of a cluster's work that is under way, and what is wrong with those that can't be
    made sense of: another version of Leeway may have written them."""

    records: tuple[Retirement | Arrival, ...]
    unread: tuple[str, ...] = ()


class Unfinished(Protocol):
    """The table's records of work that is under way."""

    def unfinished(self, cluster: str) -> UnderWay:
        """Read all records of a cluster that are not finished. They may be a second old."""
        ...

    def known(self, instance: str) -> Known:
        """Read everything about an instance, consistently and in one call."""
        ...


class Index(Protocol):
    """The table's index: instance → cluster, owner and the rest of its facts."""

    def of_cluster(self, cluster: str) -> Mapping[str, InstanceFacts]:
        """Read what is known of a cluster's instances, by id. It may be a second old."""
        ...

    def update(self, written: Iterable[InstanceFacts], removed: Iterable[str]) -> None:
        """Write the facts of some instances, and forget others."""
        ...


class Arrivals(Protocol):
    """The table's records of admissions."""

    def arrival(self, instance: str) -> Arrival | None:
        """Read the record of an instance's admission consistently."""
        ...

    def write(self, record: Arrival) -> None:
        """Write a record whose `version` is one above what was read (1: there was none).

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...


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


class Ledgers(Protocol):
    """What retirements must agree on, kept in the table."""

    def churn(self, cluster: str) -> ChurnLedger:
        """Read consistently which of a cluster's instances went voluntarily of late."""
        ...

    def write(self, ledger: ChurnLedger) -> None:
        """Write a ledger whose `version` is one above what was read.

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...


class UnavailableOfferings(Protocol):
    """Offerings that EC2 has not enough of for the moment."""

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        """Note that an offering is not to be launched until then."""
        ...

    def now(self, region: str, at: datetime) -> frozenset[Unavailable]:
        """Read which offerings of a region are not to be launched at this time."""
        ...


class Surveys(Protocol):
    """The table's surveys, one for each region, as `selection.offers.compressed` packs them."""

    def packed(self, region: str) -> bytes | None:
        """Read a region's survey; None where there has been none."""
        ...

    def write(self, region: str, packed: bytes) -> None:
        """Write a region's survey in place of what there was.

        Raises:
            CloudRefused: it is larger than an item of the table may be.
        """
        ...


class DrainStates(Protocol):
    """Where it is shown how far drains are, for those who watch."""

    def show(self, state: DrainState) -> None:
        """Write how far a drain is, in place of what was written before."""
        ...


class ClusterPolicies(Protocol):
    """What users wrote about their clusters."""

    def policy_of(self, cluster: str) -> ClusterPolicy:
        """Return the cluster's policy, at most a minute old; the defaults where there is none."""
        ...


class HeadroomStates(Protocol):
    """What the table remembers of headroom."""

    def of(self, cluster: str) -> dict[str, Kept]:
        """Read what is remembered of a cluster, by subject."""
        ...

    def write(self, cluster: str, kept: Kept) -> None:
        """Remember how it stands with one buffer or target; what was its original stays."""
        ...

    def remember_original(self, cluster: str, subject: str, original: Original) -> None:
        """Remember the size that a target had, unless that of the same object is remembered."""
        ...

    def forget(self, cluster: str, subject: str) -> None:
        """Forget one that is no longer wanted."""
        ...
