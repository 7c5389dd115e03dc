"""The AWS services that Leeway calls, as Protocols.

Every method may raise CloudUnavailable or CloudRefused, unless its docstring says that it raises
nothing. Times are aware and in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from leeway.notices import LifecycleHook

# For annotations only: a function that uses one port does not import the types of the others.
if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from leeway.instances.facts import (
        CurrentInstance,
        GroupFacts,
        GroupRules,
        InstanceFacts,
        ObservedChange,
        ObservedHook,
        ObservedImpairment,
        ObservedInstance,
        ObservedInterruption,
    )
    from leeway.instances.group_template import GroupNow
    from leeway.notices import LifecycleHook


class CloudUnavailable(Exception):
    """AWS cannot be reached, throttles, or has an internal error: the same call may succeed later.

    The call may have had its effect: repeat only calls that are safe to repeat."""


class CloudRefused(Exception):
    """AWS rejected the call: a right is missing, or the request is not valid in the present state.
    The same call fails again until somebody changes that."""


class LifecycleActionOver(CloudRefused):
    """The lifecycle action does not wait any more: it was answered, or it timed out."""


@dataclass(frozen=True, slots=True)
class LaunchError:
    """Why EC2 launched no instance of a type in a zone. `code` and `message` are EC2's;
    `instance_type` is empty if the error is not about one type."""

    instance_type: str
    zone: str
    code: str
    message: str

    @property
    def lacks_capacity(self) -> bool:
        """Whether EC2 has no capacity for the type in the zone at the moment.

        Source: EC2 API reference, "Error codes"."""
        return self.code in {"InsufficientInstanceCapacity", "UnfulfillableCapacity"}


@dataclass(frozen=True, slots=True)
class LaunchedInstance:
    """An instance that `Groups.launch` launched."""

    instance: str
    instance_type: str
    zone: str


@dataclass(frozen=True, slots=True)
class Launched:
    """The result of a launch in one zone: instances, errors, or both."""

    instances: tuple[LaunchedInstance, ...]
    errors: tuple[LaunchError, ...] = ()


class Instances(Protocol):
    """EC2 instances."""

    def describe(self, instance: str) -> InstanceFacts | None:
        """Read an instance.

        None if EC2 has no such instance, or if its tags do not name exactly one cluster.
        """
        ...

    def terminate(self, instance: str) -> None:
        """Terminate an instance. An instance that does not exist any more is not an error.

        Raises:
            CloudRefused: also if the instance is protected from termination.
        """
        ...


class GroupInstances(Instances, Protocol):
    """EC2 instances, also those of a group."""

    def launched_in(self, group: str, since: datetime) -> Sequence[InstanceFacts]:
        """List the instances of a group that are pending or running and were launched at or after
        `since`, to the second. `since` may be an hour ago at most."""
        ...


class Sweep(Protocol):
    """Reads the state of many instances in few calls, for what notices report one by one."""

    def instances(self, clusters: Collection[str]) -> Sequence[ObservedInstance]:
        """List all instances whose tags name one of the clusters. The list is complete, and
        includes instances that were terminated within about an hour."""
        ...

    def interruptions(self) -> Sequence[ObservedInterruption]:
        """List the Spot instances that EC2 interrupts. The list includes instances that EC2 has
        interrupted before: they do not run any more."""
        ...

    def changes(self) -> Sequence[ObservedChange]:
        """List the changes that EC2 has scheduled for instances. Completed and cancelled changes
        stay in the list for about a week, with `over` set."""
        ...

    def impairments(self) -> Sequence[ObservedImpairment]:
        """List the running instances for which at least one status check fails."""
        ...

    def block_ends(self, reservations: Collection[str]) -> Mapping[str, datetime]:
        """Read when EC2 begins to end the instances of these Capacity Blocks, by their ids. One
        that EC2 does not know is left out."""
        ...

    def named(self, private_dns_names: Collection[str]) -> Sequence[ObservedInstance]:
        """List the instances of all clusters that have one of these private DNS names. A name is
        unique within its VPC only, so several instances can have the same one."""
        ...

    def states(self, instances: Collection[str]) -> Mapping[str, str]:
        """Read the present states of these instances: instance id → state name, as `running`.

        An instance that EC2 does not know by its id is `terminated`. An instance about which EC2
        gives no clear answer is left out.
        """
        ...


class CurrentInstances(Protocol):
    """The present state of EC2 instances."""

    def current_instance(self, instance: str) -> CurrentInstance | None:
        """Read the state, the latest start and the Spot request of an instance; None if EC2 has no
        such instance."""
        ...

    def in_reservation(self, reservation: str) -> Sequence[str]:
        """List the ids of the instances that are pending or running in a capacity reservation."""
        ...


class ScheduledChanges(Protocol):
    """The changes that EC2 has scheduled for an instance."""

    def changes_of(self, instance: str) -> Sequence[ObservedChange]:
        """Read the changes of a running instance. Completed and cancelled changes have `over`
        set."""
        ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """Instances that wait for the answer to a lifecycle hook.

    `unread` has one text for each group that could not be read: an error in one group must not hide
    the others."""

    seen: tuple[ObservedHook, ...]
    unread: tuple[str, ...] = ()


class WaitingActions(Protocol):
    """The lifecycle actions that wait for an answer."""

    def of_groups(self, groups: Collection[str]) -> Waiting:
        """List the instances of these groups that wait, once for each hook of their transition:
        Auto Scaling does not say for which hook an instance waits.

        Raises neither CloudUnavailable nor CloudRefused: errors are in `unread`.
        """
        ...


class GroupTemplates(Protocol):
    """What Auto Scaling groups launch now."""

    def now(self, groups: Collection[str]) -> Mapping[str, GroupNow]:
        """Read groups with their instances, by name. A group that does not exist is left out. A
        launch template that cannot be read is named in `unread` of its groups."""
        ...


class InstanceTypes(Protocol):
    """EC2 instance types."""

    def accelerators(self, instance_type: str) -> tuple[str, ...]:
        """Return the manufacturers of the accelerators of a type, as EC2 names them (`NVIDIA`,
        `AWS`), each once; empty if the type has no accelerator."""
        ...


class Groups(Protocol):
    """EC2 Auto Scaling groups."""

    def facts(self, instance: str) -> GroupFacts | None:
        """Read the group of an instance as it is now; None if the instance is in no group."""
        ...

    def rules(self, group: str) -> GroupRules:
        """Read what is the same for all instances of a group.

        Raises:
            CloudRefused: also if there is no such group.
        """
        ...

    def lifecycle_states(self, instances: Collection[str]) -> Mapping[str, str]:
        """Read the lifecycle states of instances in their groups, as `InService` or
        `Warmed:Running`. An instance that no group lists, or not yet, is left out."""
        ...

    def missing(self, group: str) -> int:
        """Return the desired capacity of a group minus the capacity of its pending and in-service
        instances, in the units of the group, at least 0.

        Raises:
            CloudRefused: also if there is no such group.
        """
        ...

    def launch(self, group: str, zone: str, units: int, token: str) -> Launched:
        """Launch instances in one zone of a group, and raise its desired capacity by `units`. Waits
        until EC2 has launched them or failed. A repeated call with the same `token` returns the
        first result, for eight hours.

        Raises:
            CloudUnavailable: the launch may have happened; repeat the call with the same token.
            CloudRefused: LaunchInstances does not support the group, or the group is at its
                maximum.
        """
        ...

    def terminate_in_group(self, instance: str, decrement: bool = False) -> None:
        """Terminate an instance through its group, which runs its terminate hooks. With `decrement`
        the desired capacity is lowered; without it the group launches a replacement at once."""
        ...

    def detach(self, instance: str, group: str) -> None:
        """Detach an instance without lowering the desired capacity: the group launches a
        replacement, and nobody but Leeway terminates the instance."""
        ...

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        """Read the settings of a hook; None if the group has no such hook, or does not exist."""
        ...

    def heartbeat(self, instance: str, hook: LifecycleHook) -> None:
        """Keep a lifecycle action waiting for another HeartbeatTimeout, from now on.

        Raises:
            LifecycleActionOver: the action does not wait any more.
        """
        ...

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        """Answer a lifecycle action that waits.

        Raises:
            LifecycleActionOver: the action does not wait any more.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClusterEndpoint:
    """The API server of a cluster. `url` begins with `https://`; `certificate_authority` is a PEM
    in base64."""

    name: str
    url: str
    certificate_authority: str


class Clusters(Protocol):
    """EKS clusters."""

    def endpoint(self, name: str) -> ClusterEndpoint:
        """Read the API server of a cluster.

        Raises:
            CloudRefused: also if there is no such cluster, or it has no endpoint yet.
        """
        ...


class LeewayEvents(Protocol):
    """The event bus for Leeway's own events."""

    def publish(self, detail_type: str, detail: str) -> None:
        """Put one event with source `leeway`. `detail` is a JSON object, as text."""
        ...


class HookResult(StrEnum):
    """The answer to a lifecycle action."""

    CONTINUE = "CONTINUE"
    ABANDON = "ABANDON"


@dataclass(frozen=True, slots=True)
class HookSettings:
    """The settings of a lifecycle hook: `timeout` is its HeartbeatTimeout in seconds. `has_target`
    says that it notifies a target of its own (SNS, SQS, Lambda), which answers its actions."""

    timeout: int
    has_target: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """An instance as a target of a load balancer: the ARN of its target group, its port, and its
    `state` as Elastic Load Balancing names it: `healthy`, `draining`, `unused`."""

    group: str
    port: int
    state: str


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """A target group: the states of the targets of each instance that it has, by its id, and its
    deregistration delay in seconds."""

    states: Mapping[str, tuple[str, ...]]
    delay: int


class Targets(Protocol):
    """The instance targets of Application and Network Load Balancers."""

    def groups(self) -> Sequence[str]:
        """List the ARNs of the target groups with instance targets that a load balancer uses."""
        ...

    def group(self, arn: str) -> TargetGroup:
        """Read a target group; one without targets if there is no such group."""
        ...

    def of_instance(self, instance: str, among: Collection[str] | None = None) -> Sequence[Target]:
        """List the targets of an instance, also those that drain, in the target groups `among`
        these ARNs or, if that is None, in all groups of load balancers. A target that is not
        registered any more is left out."""
        ...
