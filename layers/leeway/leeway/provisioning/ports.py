"""The Protocols of provisioning. A method raises the errors of its service unless it says so."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from leeway.headroom.plan import ScaleTarget
from leeway.headroom.ports import PodTemplate
from leeway.instances.facts import InstanceFacts
from leeway.manifests.reading import Written
from leeway.policy.rules import ClusterPolicy
from leeway.provisioning.cluster_read import ClusterRead
from leeway.provisioning.status import ProvisioningStatus
from leeway.reasons import Reason
from leeway.selection.offers.catalog import Catalog


class ClusterManifests(Protocol):
    """The stored manifests of clusters."""

    def policy_of(self, cluster: str) -> ClusterPolicy:
        """Return a cluster's policy. Raises nothing."""
        ...

    def manifests(self, cluster: str, resources: Collection[str]) -> Sequence[Written]:
        """Return a cluster's valid manifests of some kinds."""
        ...


class Catalogs(Protocol):
    """The catalog of the region."""

    def read(self) -> Catalog | None:
        """Return the catalog; None if there is none."""
        ...


class PodTemplates(Protocol):
    """The pod templates of a cluster's objects."""

    def template(self, target: ScaleTarget) -> PodTemplate | None:
        """Read the pod template of an object; None if the object does not exist."""
        ...


class GroupInstances(Protocol):
    """Instances of Auto Scaling groups."""

    def launched_by_groups(self, cluster: str, since: datetime) -> Sequence[InstanceFacts]:
        """List the instances of a cluster that groups launched at or after `since` and that start
        or run. `since` may be an hour ago at most."""
        ...

    def members(self, group: str) -> frozenset[str]:
        """Return the instances of a group that run."""
        ...


class ProvisioningRecords(Protocol):
    """The table's records of provisioning."""

    def status(self, cluster: str) -> ProvisioningStatus | None:
        """Read the status of a cluster; None before its first run."""
        ...

    def write_status(self, status: ProvisioningStatus) -> None:
        """Replace the status of a cluster."""
        ...

    def told(self, cluster: str) -> Mapping[bytes, datetime]:
        """Read which Events were written, and when (see `provisioning.told_pods`)."""
        ...

    def write_told(self, cluster: str, told: Mapping[bytes, datetime]) -> None:
        """Replace what `told` reads."""
        ...


@dataclass(frozen=True, slots=True)
class CapacityReturned:
    """What a run gives back.

    - `begun`: the retirements that it began. `rehearsed`: those that it would begin without
      spec.dryRun, each once.
    - `problems`: what keeps it from giving back, as long as it is new; `lasting`: what an earlier
      run has logged already. `failures`: what failed; the next run tries again.
    """

    begun: tuple[Reason, ...] = ()
    rehearsed: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()
    lasting: tuple[Reason, ...] = ()
    failures: tuple[Reason, ...] = ()


class CapacityReturns(Protocol):
    """Gives capacity back, at the end of a run."""

    def has_nodes(self, cluster: str) -> bool:
        """Whether a cluster may have nodes that Leeway launched."""
        ...

    def without_node(self, cluster: str) -> frozenset[str]:
        """The instances whose Nodes were deleted: they run, and do not join again."""
        ...

    def after_run(
        self, read: ClusterRead, policy: ClusterPolicy, may_begin: bool
    ) -> CapacityReturned:
        """Give back the nodes that are not needed; only watch them unless it `may_begin`. Raises
        nothing."""
        ...


@dataclass(frozen=True, slots=True)
class PodEvent:
    """A Kubernetes Event about a pod. `name` is that of the Event: a second Event of the same name
    is not written."""

    name: str
    namespace: str
    pod: str
    uid: str
    reason: str
    message: str


class PodEvents(Protocol):
    """Events about the pods of one cluster."""

    def write(self, event: PodEvent) -> None:
        """Write an Event. An Event of the same name, or a missing namespace, is no error.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        ...


class MessageVisibility(Protocol):
    """When SQS delivers messages again that are not deleted."""

    def hide(self, receipts: Sequence[str], seconds: int) -> None:
        """Deliver these messages again after so many seconds, unless they are deleted before."""
        ...
