"""What Leeway needs of AWS, as Protocols; every method may raise the errors at the top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

# Only shapes: a function that uses one port need not import what the others speak of.
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from leeway.drain.summary import DrainState
    from leeway.headroom.kept import Kept
    from leeway.hooks import HookResult
    from leeway.notices import LifecycleHook
    from leeway.policies import ClusterPolicy
    from leeway.records.arrival import Arrival
    from leeway.records.retirement import InstanceFacts, Retirement
    from leeway.records.surges import SurgeLedger
    from leeway.records.turns import ChurnLedger
    from leeway.replacement import GroupFacts, GroupRules
    from leeway.selection.offers.catalog import Unavailable
    from leeway.selection.offers.machines import Machine
    from leeway.sightings import SeenChange, SeenHook, SeenInstance, SeenInterruption


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type in a zone of a region, as spot or on-demand."""

    region: str
    instance_type: str
    zone: str
    capacity_type: str


class CloudUnavailable(Exception):
    """AWS could not be reached, throttled, or failed inside: worth another try."""


class CloudRefused(Exception):
    """AWS understood and said no: trying the same again will not help."""


class LifecycleActionOver(CloudRefused):
    """The hook no longer waits: it was answered, or its time ran out."""


class GroupGone(CloudRefused):
    """There is no such Auto Scaling group."""


class RecordChanged(Exception):
    """Somebody else wrote the record since it was read."""


@dataclass(frozen=True, slots=True)
class GroupCapacity:
    """How many instances a group wants, may have and must have, the ids of those that are in it and
    not on their way out, and how many it has still to start, at the least."""

    desired: int
    maximum: int
    members: tuple[str, ...]
    minimum: int = 0
    missing: int = 0


class Instances(Protocol):
    """EC2's instances."""

    def describe(self, instance: str) -> InstanceFacts | None:
        """Read an instance; None where EC2 knows none, or its tags name no one cluster."""
        ...

    def tag_as_detached(self, instance: str, group: str) -> None:
        """Note on the instance which group it is about to leave."""
        ...

    def terminate(self, instance: str) -> None:
        """Terminate; an instance that is gone already is no error."""
        ...


class Sweep(Protocol):
    """All at once of what notices tell one by one."""

    def instances(self, clusters: Collection[str]) -> Sequence[SeenInstance]:
        """List the instances whose tags name one of the clusters, completely; those that were
        terminated within the last hour are among them."""
        ...

    def interruptions(self) -> Sequence[SeenInterruption]:
        """List the Spot instances that EC2 is about to take back. Among them are some that it has
        taken back before: those do not run any more."""
        ...

    def changes(self) -> Sequence[SeenChange]:
        """List what EC2 has scheduled for instances, and has neither done nor called off."""
        ...

    def named(self, private_dns_name: str) -> Sequence[SeenInstance]:
        """List the instances of any cluster that have this private DNS name. Names are unique in a
        VPC only."""
        ...

    def states(self, instances: Collection[str]) -> Mapping[str, str]:
        """Read the states of these very instances now; one that EC2 does not know is left out."""
        ...


class WaitingActions(Protocol):
    """Lifecycle actions that wait for an answer."""

    def of_groups(self, groups: Collection[str]) -> Sequence[SeenHook]:
        """List the instances of these groups that wait, once for each hook that may be meant."""
        ...


class InstanceTypes(Protocol):
    """What EC2 knows about types of instances."""

    def accelerators(self, instance_type: str) -> tuple[str, ...]:
        """Return who made a type's accelerators, as EC2 calls them; nothing where it has none."""
        ...


class Groups(Protocol):
    """EC2 Auto Scaling groups."""

    def facts(self, instance: str) -> GroupFacts | None:
        """Read the instance's group as it is now; None where the instance is in no group."""
        ...

    def rules(self, group: str) -> GroupRules:
        """Read what holds for every instance of a group.

        Raises:
            CloudRefused: there is no such group.
        """
        ...

    def capacity(self, group: str) -> GroupCapacity:
        """Read what a group wants and has.

        Raises:
            GroupGone: there is no such group.
        """
        ...

    def set_desired(self, group: str, desired: int) -> None:
        """Set a group's desired capacity, at once, whatever cooldown runs."""
        ...

    def terminate_in_group(self, instance: str, decrement: bool = False) -> None:
        """Terminate by the group's hooks: without a decrement it launches a successor at once."""
        ...

    def detach(self, instance: str, group: str) -> None:
        """Take the instance out without decrementing, so that the group launches a successor."""
        ...

    def heartbeat_timeout(self, hook: LifecycleHook) -> int | None:
        """Read a hook's HeartbeatTimeout in seconds; None where the group has no such hook."""
        ...

    def heartbeat(self, instance: str, hook: LifecycleHook) -> None:
        """Keep a lifecycle action waiting for another HeartbeatTimeout.

        Raises:
            LifecycleActionOver: it waits no more.
        """
        ...

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        """Answer a lifecycle action that waits.

        Raises:
            LifecycleActionOver: it waits no more.
        """
        ...


@dataclass(frozen=True, slots=True)
class Known:
    """All that the table holds about one instance: its retirement, its admission, and `facts` of
    the index, which are at most some minutes old. None where it holds none, which says nothing
    about the instance.
    """

    retirement: Retirement | None = None
    facts: InstanceFacts | None = None
    arrival: Arrival | None = None


@dataclass(frozen=True, slots=True)
class Recalled:
    """Something that somebody read, as JSON, and when."""

    body: str
    read_at: datetime


class Memory(Protocol):
    """What the table remembers by name, so that many functions need not all ask for it."""

    def recall(self, what: str) -> Recalled | None:
        """Read what is remembered; None where nothing is. It may be a second old."""
        ...

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        """Say that one is about to ask for all; False while somebody else does."""
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

    def surge(self, group: str) -> SurgeLedger:
        """Read consistently for whom a group was made one larger, and who waits for a successor."""
        ...

    def write(self, ledger: ChurnLedger | SurgeLedger) -> None:
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


class Market(Protocol):
    """What EC2 says of a region's instance types, where it has them, and what Spot costs."""

    def types(self) -> tuple[Machine, ...]:
        """Read every instance type."""
        ...

    def offered(self) -> dict[str, frozenset[str]]:
        """Read which types each zone has, by name."""
        ...

    def spot(self) -> dict[str, dict[str, float]]:
        """Read what Spot costs now on Linux, in USD per hour, by zone and type."""
        ...


class PriceList(Protocol):
    """What instances cost on demand."""

    def on_demand(self, region: str) -> dict[str, float]:
        """Read what types cost on Linux with shared tenancy, in USD per hour."""
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


class Schedules(Protocol):
    """Events that are received again later, once."""

    def put(self, name: str, at: datetime, event: Mapping[str, Any]) -> None:
        """Have an event received again at this time; a schedule of this name is set anew."""
        ...

    def remove(self, name: str) -> None:
        """Have it received no more; that there is no such schedule is no error."""
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
        """Remember how it stands with one buffer or target."""
        ...

    def forget(self, cluster: str, subject: str) -> None:
        """Forget one that is no longer wanted."""
        ...


class RetireNode(Protocol):
    """The function `retire_node`."""

    def start(self, instance: str, cluster: str, generation: int) -> None:
        """Start this generation's execution; one that has been started already stays the one."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterEndpoint:
    """Where a cluster's API server is: `certificate_authority` is base64 of a PEM."""

    name: str
    url: str
    certificate_authority: str


class Clusters(Protocol):
    """EKS's clusters."""

    def endpoint(self, name: str) -> ClusterEndpoint:
        """Read where the cluster's API server is.

        Raises:
            CloudRefused: there is no such cluster, or it has no endpoint yet.
        """
        ...


class CleanUp(Protocol):
    """The function `reconcile`, for one instance that is gone."""

    def start(self, instance: str, cluster: str) -> None:
        """Have cleaned up what the instance leaves; doing it twice does no harm."""
        ...


class AdmitNode(Protocol):
    """The function `admit_node`."""

    def start(self, instance: str, cluster: str, generation: int) -> None:
        """Start this generation's execution; one that has been started already stays the one."""
        ...


class Announcements(Protocol):
    """The event bus that Leeway's own events go to."""

    def announce(self, detail_type: str, detail: str) -> None:
        """Put one event of source `leeway` with this JSON detail."""
        ...
