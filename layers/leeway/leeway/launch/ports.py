"""The Protocols of AWS that a launch calls; every method may raise the errors of `ports.aws`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from leeway.bootstrap.node import ClusterDetails
from leeway.instances.facts import InstanceFacts
from leeway.launch.fleet_errors import FleetError
from leeway.launch.fleets import FleetRequest
from leeway.launch.intent import FleetInstance, LaunchIntent
from leeway.launch.observed import Image, OwnedTemplate, Subnet
from leeway.launch.templates import LaunchTemplate
from leeway.manifests.fields import SecurityGroupTerm, SubnetTerm
from leeway.manifests.node_class import AmiTerm


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """The instances that a fleet launched, and the errors of its overrides."""

    instances: tuple[FleetInstance, ...]
    errors: tuple[FleetError, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeCluster:
    """The cluster that nodes join: its connection details, and its version, such as 1.34."""

    details: ClusterDetails
    version: str


class NodeClusters(Protocol):
    """Clusters of EKS, as nodes need them."""

    def node_cluster(self, name: str) -> NodeCluster:
        """Read a cluster.

        Raises:
            CloudRefused: there is no such cluster, or nodes cannot join it yet.
        """
        ...


class Networks(Protocol):
    """Subnets and security groups of EC2."""

    def subnets(self, terms: Sequence[SubnetTerm]) -> Sequence[Subnet]:
        """List the subnets that match at least one of the terms."""
        ...

    def security_groups(self, terms: Sequence[SecurityGroupTerm]) -> Sequence[str]:
        """List the ids of the security groups that match at least one of the terms."""
        ...


class InstanceProfiles(Protocol):
    """Instance profiles of IAM."""

    def profiles_of(self, role: str) -> Sequence[str]:
        """List the names of the instance profiles that have a role; none if there is no role."""
        ...


class Images(Protocol):
    """AMIs, and the SSM parameters that name them."""

    def parameters(self, names: Collection[str]) -> Mapping[str, str]:
        """Read parameters; those that do not exist are left out."""
        ...

    def images(self, terms: Sequence[AmiTerm]) -> Sequence[Image]:
        """List the available AMIs that match at least one of the terms."""
        ...


class LaunchTemplates(Protocol):
    """Launch templates of EC2."""

    def ensure(self, templates: Collection[LaunchTemplate]) -> None:
        """Create those that do not exist."""
        ...

    def forget(self, names: Collection[str]) -> None:
        """Look for these templates again at the next `ensure`: they may have been deleted."""
        ...


class OwnedLaunchTemplates(Protocol):
    """The launch templates that Leeway created for a cluster."""

    def owned_by(self, cluster: str) -> Sequence[OwnedTemplate]:
        """List the launch templates whose tags name Leeway as the owner, and this cluster."""
        ...

    def delete(self, name: str) -> None:
        """Delete a launch template. One that does not exist any more is not an error."""
        ...


class Fleets(Protocol):
    """Fleets of EC2 of type instant."""

    def create(self, request: FleetRequest, token: str) -> FleetAnswer:
        """Launch instances; the same request with the same token launches nothing again. A call
        that EC2 refuses is an answer with an error that has no override.

        Raises:
            CloudUnavailable: the instances may have been launched: repeat the call.
        """
        ...

    def launched_by(self, intent: str) -> Sequence[FleetInstance]:
        """List the instances with the tag of an intent that start or run."""
        ...

    def alive(self, instances: Collection[str]) -> frozenset[str]:
        """Return those of some instances that start or run."""
        ...


class InstanceDescriptions(Protocol):
    """Instances of EC2."""

    def describe_all(self, instances: Collection[str]) -> Mapping[str, InstanceFacts]:
        """Read instances by their ids. Those that EC2 does not know yet, and those whose tags do
        not name exactly one cluster, are left out."""
        ...


class LaunchIntents(Protocol):
    """The table's launch intents."""

    def of_cluster(self, cluster: str) -> Sequence[LaunchIntent]:
        """Read the intents of a cluster consistently, the oldest first."""
        ...

    def write(self, intent: LaunchIntent) -> None:
        """Write an intent whose `version` is one above the stored one (1: there is none).

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...
