"""Reads and ends the instances of nodes, by AWS."""

from dataclasses import dataclass, field
from functools import partial

from botocore.exceptions import ClientError
from leeway.aws.autoscaling import AutoScalingGroups
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.eks import EksClusters
from leeway.aws.errors import code_of
from leeway.aws.records import DynamoRecords
from leeway.instances.owners import OwnerKind
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.wiring.clients import client, session

from leeway_cli.errors import CannotBeDoneError, aws_errors
from leeway_cli.stack import find_stack, same_server
from leeway_cli.terminate.decide import Call, Ending, InstanceNow

_IN_GROUPS = frozenset({OwnerKind.AUTO_SCALING_GROUP, OwnerKind.MANAGED_NODE_GROUP})


@dataclass
class AwsInstances:
    """The instances of one region. `server` is the URL of the kubeconfig's API server; `cluster` is
    the name that the user gave this cluster, empty if they gave none. `stack` may have records of
    retirements."""

    server: str
    cluster: str
    stack: str
    _belongs: dict[str, bool] = field(default_factory=dict)

    @property
    def region(self) -> str:
        """The region of the calls."""
        return str(session().region_name)

    def read(self, instance: str) -> InstanceNow:
        """Read the instance and its Auto Scaling group.

        Raises:
            CannotBeDoneError: AWS does not answer or refuses.
        """
        with aws_errors(f"instance {instance}"):
            instances = Ec2Instances(partial(client, "ec2"))
            state = instances.state_of(instance)
            facts = instances.describe(instance) if state else None
            group = None
            if facts is not None and facts.owner.kind in _IN_GROUPS:
                group = AutoScalingGroups(partial(client, "autoscaling")).facts(instance)
        return InstanceNow(state, facts, group)

    def foreign(self, instance: str, now: InstanceNow) -> str | None:
        """Return why an instance is not one of this cluster; None if it is.

        Its tags name a cluster. Without a name from the user, this is the kubeconfig's cluster if
        EKS has the same API server for that name.

        Raises:
            CannotBeDoneError: EKS does not answer or refuses.
        """
        named = now.facts.cluster if now.facts is not None else ""
        if not named or self._is_this(named):
            return None
        this = f"cluster {self.cluster}" if self.cluster else f"the cluster of {self.server}"
        return (
            f"Instance {instance} is not terminated: by its tags it belongs to cluster {named}, "
            f"and this is {this}."
        )

    def _is_this(self, name: str) -> bool:
        if self.cluster:
            return name == self.cluster
        if name not in self._belongs:
            with aws_errors(f"cluster {name}"):
                self._belongs[name] = self._has_this_server(name)
        return self._belongs[name]

    def _has_this_server(self, name: str) -> bool:
        try:
            endpoint = EksClusters(partial(client, "eks")).endpoint(name)
        except CloudRefused as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and code_of(cause) == "ResourceNotFoundException":
                return False  # everybody who may tag instances can invent a name
            raise
        return same_server(endpoint.url, self.server)

    def end(self, instance: str, ending: Ending) -> None:
        """Make the call that ends an instance.

        Raises:
            CannotBeDoneError: AWS does not answer or refuses.
        """
        with aws_errors(f"instance {instance}"):
            if ending.call is Call.TERMINATE:
                Ec2Instances(partial(client, "ec2")).terminate(instance)
            elif ending.call is Call.IN_GROUP:
                groups = AutoScalingGroups(partial(client, "autoscaling"))
                groups.terminate_in_group(instance, ending.decrement)

    def retirement(self, instance: str) -> str:
        """Describe the open retirement of an instance; empty if there is none, or if no table can
        be read: the command does not need one."""
        try:
            table = find_stack(self.stack).table
            record = DynamoRecords(partial(client, "dynamodb"), table).retirement(instance)
        except (CannotBeDoneError, CloudRefused, CloudUnavailable):
            return ""
        if record is None or not record.is_open:
            return ""
        return f"{record.kind.value} of {record.noticed_at:%Y-%m-%d %H:%M:%S} UTC, {record.phase}"
