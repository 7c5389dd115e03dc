"""What Leeway asks of AWS, as Protocols; every method may raise the errors at the top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from leeway.notices import LifecycleHook

# Only shapes: a function that uses one port need not import what the others speak of.
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from leeway.instances.facts import InstanceFacts
    from leeway.instances.groups import GroupFacts, GroupRules
    from leeway.instances.observed import (
        CurrentInstance,
        ObservedChange,
        ObservedHook,
        ObservedImpairment,
        ObservedInstance,
        ObservedInterruption,
    )
    from leeway.notices import LifecycleHook


class CloudUnavailable(Exception):
    """AWS could not be reached, throttled, or failed inside: worth another try."""


class CloudRefused(Exception):
    """AWS understood and said no: trying the same again will not help."""


class LifecycleActionOver(CloudRefused):
    """The hook no longer waits: it was answered, or its time ran out."""


@dataclass(frozen=True, slots=True)
class LaunchError:
    """Why EC2 launched nothing of a type in a zone, by its error code and its message."""

    instance_type: str
    zone: str
    code: str
    message: str

    @property
    def lacks_capacity(self) -> bool:
        """Whether EC2 has none of the type in the zone now.

        Source: EC2 API reference, "Error codes"."""
        return self.code in {"InsufficientInstanceCapacity", "UnfulfillableCapacity"}


@dataclass(frozen=True, slots=True)
class LaunchedInstance:
    """An instance that a group launched for a caller, who waited for it."""

    instance: str
    instance_type: str
    zone: str


@dataclass(frozen=True, slots=True)
class Launched:
    """What came of asking a group for instances in one zone."""

    instances: tuple[LaunchedInstance, ...]
    errors: tuple[LaunchError, ...] = ()


class Instances(Protocol):
    """EC2's instances."""

    def describe(self, instance: str) -> InstanceFacts | None:
        """Read an instance; None where EC2 knows none, or its tags name no one cluster."""
        ...

    def terminate(self, instance: str) -> None:
        """Terminate; an instance that is gone already is no error."""
        ...


class GroupInstances(Instances, Protocol):
    """EC2's instances, and those of a group."""

    def launched_in(self, group: str, since: datetime) -> Sequence[InstanceFacts]:
        """List the instances of a group that were launched since, and that start or run."""
        ...


class Sweep(Protocol):
    """All at once of what notices tell one by one."""

    def instances(self, clusters: Collection[str]) -> Sequence[ObservedInstance]:
        """List the instances whose tags name one of the clusters, completely; those that were
        terminated within the last hour are among them."""
        ...

    def interruptions(self) -> Sequence[ObservedInterruption]:
        """List the Spot instances that EC2 is about to take back. Among them are some that it has
        taken back before: those do not run any more."""
        ...

    def changes(self) -> Sequence[ObservedChange]:
        """List what EC2 has scheduled for instances; among it what is over, for about a week."""
        ...

    def impairments(self) -> Sequence[ObservedImpairment]:
        """List the running instances of which some status check fails."""
        ...

    def named(self, private_dns_names: Collection[str]) -> Sequence[ObservedInstance]:
        """List the instances of any cluster that have one of these private DNS names. Names are
        unique in a VPC only."""
        ...

    def states(self, instances: Collection[str]) -> Mapping[str, str]:
        """Read the states of these very instances now. One that EC2 does not know, asked for by its
        id, is terminated; one of which it says neither is left out."""
        ...


class CurrentInstances(Protocol):
    """EC2's instances as they are at this moment."""

    def current_instance(self, instance: str) -> CurrentInstance | None:
        """Read an instance's state, latest start and Spot request; None where EC2 knows none."""
        ...

    def in_reservation(self, reservation: str) -> Sequence[str]:
        """List the instances that run in a capacity reservation."""
        ...


class ScheduledChanges(Protocol):
    """What EC2 has scheduled for instances."""

    def changes_of(self, instance: str) -> Sequence[ObservedChange]:
        """Read what it has scheduled for a running instance; among it what is over."""
        ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """Instances that wait for the answer to a lifecycle hook, and what could not be read, in words:
    a group that is throttled must not hide the others."""

    seen: tuple[ObservedHook, ...]
    unread: tuple[str, ...] = ()


class WaitingActions(Protocol):
    """Lifecycle actions that wait for an answer."""

    def of_groups(self, groups: Collection[str]) -> Waiting:
        """Look for the instances of these groups that wait, once for each hook that may be meant.
        Raises nothing that AWS says."""
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

    def missing(self, group: str) -> int:
        """Read how much of its desired capacity a group has still to start, in its own units."""
        ...

    def launch(self, group: str, zone: str, units: int, token: str) -> Launched:
        """Have the group launch so much of its capacity in one of its zones, at once, and want that
        much more; once for each token, for eight hours.

        Raises:
            CloudUnavailable: it may have launched; the same token tells.
            CloudRefused: the group does not take that, or is at its maximum.
        """
        ...

    def terminate_in_group(self, instance: str, decrement: bool = False) -> None:
        """Terminate by the group's hooks: without a decrement it launches a successor at once."""
        ...

    def detach(self, instance: str, group: str) -> None:
        """Take the instance out without decrementing, so that the group launches a successor."""
        ...

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        """Read a hook's settings; None where the group has no such hook."""
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


class LeewayEvents(Protocol):
    """The event bus that Leeway's own events go to."""

    def publish(self, detail_type: str, detail: str) -> None:
        """Put one event of source `leeway` with this JSON detail."""
        ...


class HookResult(StrEnum):
    """What a lifecycle action is completed with."""

    CONTINUE = "CONTINUE"
    ABANDON = "ABANDON"


@dataclass(frozen=True, slots=True)
class HookSettings:
    """A hook as its group has it: its HeartbeatTimeout in seconds, and whether it notifies a target
    of its own (SNS, SQS, Lambda), whose business its actions are then."""

    timeout: int
    has_target: bool = False
