"""One run of `leeway terminate`: decides for all nodes, drains them, and ends each drained one."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import Any

from botocore.exceptions import ClientError
from leeway.aws.autoscaling import AutoScalingGroups
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.eks import EksClusters
from leeway.aws.errors import code_of
from leeway.aws.target_groups import LoadBalancerTargets
from leeway.instances.facts import GroupFacts, InstanceFacts, OwnerKind, owner_of
from leeway.ports.aws import CloudRefused
from leeway.ports.aws import Target as BalancerTarget
from leeway.ports.kubernetes_objects import Node
from leeway.retirement.record import RETIREMENT
from leeway.retirement.targets import LOOK_EVERY, decide_targets
from leeway.wiring.clients import client, session, table

from leeway_cli.drain.run import DrainRun, NodePlan
from leeway_cli.errors import CannotBeDoneError, as_clause, aws_errors
from leeway_cli.output import Format, print_json, write_stderr, write_stdout
from leeway_cli.stack import find_stack, same_server

INSTANCE = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")
"""Ids of EC2 instances."""

_PROVIDER_ID = re.compile(rf"aws:///[^/]+/({INSTANCE.pattern})")
"""The provider id of a node on EC2. Source: cloud-provider-aws, InstanceID."""

TERMINATED = frozenset({"shutting-down", "terminated"})
"""States of an instance that EC2 terminates or has terminated."""

_NODES_OF_KARPENTER = "Run `kubectl delete node {node}`"
_INSTEAD = {
    OwnerKind.KARPENTER: _NODES_OF_KARPENTER,
    OwnerKind.AUTO_MODE: _NODES_OF_KARPENTER,
    OwnerKind.MANAGED_NODE_GROUP: (
        "Run `aws autoscaling terminate-instance-in-auto-scaling-group "
        "--no-should-decrement-desired-capacity --instance-id {instance}`"
    ),
}
"""The commands that end the nodes of owners which drain them. Source: Karpenter documentation,
"Disruption"; EKS user guide, "Simplify node lifecycle with managed node groups"."""


class Call(StrEnum):
    """The call that ends an instance; `none` if it is terminated already, or its group does it."""

    TERMINATE = "TerminateInstances"
    IN_GROUP = "TerminateInstanceInAutoScalingGroup"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Target:
    """A node and the instance that it names. `node` is None if only the instance is known."""

    instance: str
    node: Node | None

    @property
    def title(self) -> str:
        """The name of the node, or else the id of the instance."""
        return self.node.name if self.node is not None else self.instance


@dataclass(frozen=True, slots=True)
class InstanceNow:
    """An instance as AWS describes it now. `state` is empty if EC2 does not know the instance.
    `facts` is None if its tags do not name exactly one cluster, `group` if it is in no group."""

    state: str
    facts: InstanceFacts | None
    group: GroupFacts | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How an instance is ended. `over`: EC2 terminates it already, so its node is not drained.
    `freed` is the capacity that its group gives up, in the group's units."""

    call: Call
    owner: str = ""
    group: str = ""
    freed: int = 0
    over: bool = False

    @property
    def decrement(self) -> bool:
        """Whether the desired capacity of its group is lowered."""
        return self.freed > 0


def find_target(given: str, nodes: Sequence[Node]) -> Target | str:
    """Find the node with a name or an instance id. `nodes` are all nodes of the cluster.

    Everybody who may create nodes can copy a provider id, and a copy has no pods: it would count as
    drained, and the pods of the real node would end with its instance. So exactly one node may name
    the instance.
    """
    if INSTANCE.fullmatch(given):
        instance, node = given, None
    else:
        node = next((one for one in nodes if one.name == given), None)
        if node is None:
            return f"The cluster has no node {given}."
        found = _PROVIDER_ID.fullmatch(node.provider_id)
        if found is None:
            shown = repr(node.provider_id)
            return (
                f"Node {node.name} is not terminated: its provider id {shown} names no EC2 "
                "instance."
            )
        instance = found[1]
    same = [one for one in nodes if one.runs_on(instance)]
    if len(same) > 1:
        names = ", ".join(sorted(one.name for one in same))
        return (
            f"Instance {instance} is not terminated: the nodes {names} all name it. Delete the "
            "Node objects that do not run on it."
        )
    return Target(instance, same[0] if same else None)


def decide_ending(
    target: Target, now: InstanceNow, *, region: str, decrement: bool, freed: int = 0
) -> Ending | str:
    """Decide by which call an instance is ended, or why it is not.

    `freed` is the capacity that other nodes of the same command free in the same group.
    """
    instance, node = target.instance, target.node
    if not now.state:
        return (
            f"EC2 has no instance {instance} in region {region}. Check AWS_REGION and the account."
        )
    if now.facts is None:
        return f"Instance {instance} is not terminated: its tags do not name exactly one cluster."
    owner = now.facts.owner
    if owner.kind is OwnerKind.NONE and node is not None:
        owner = owner_of({}, node.labels)
    owned_by = " ".join(filter(None, (owner.kind.value, owner.name)))
    if now.state in TERMINATED:
        return Ending(Call.NONE, owned_by, over=True)
    if node is None:
        return (
            f"Instance {instance} is not terminated: it is {now.state}, and no node of the cluster "
            "names it."
        )
    if owner.kind in _INSTEAD:
        instead = _INSTEAD[owner.kind].format(node=node.name, instance=instance)
        return (
            f"Node {node.name} is not terminated: its owner, {owned_by}, drains and terminates it. "
            f"{instead}."
        )
    group = now.group
    if group is None:
        return Ending(Call.TERMINATE, owned_by)
    if group.lifecycle_state.startswith("Terminating"):
        return Ending(Call.NONE, owned_by, group.name)
    if not decrement:
        return Ending(Call.IN_GROUP, owned_by, group.name)
    if group.desired - freed - group.units < group.minimum:
        desired = group.desired - freed
        return (
            f"Node {node.name} is not terminated: --decrement would take group {group.name} from "
            f"{desired} below its minimum of {group.minimum}. Lower the minimum, or leave out "
            "--decrement."
        )
    return Ending(Call.IN_GROUP, owned_by, group.name, freed=group.units)


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
    _clusters: dict[str, str] = field(default_factory=dict)

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
        if facts is not None:
            self._clusters[instance] = facts.cluster
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

    def targets(self, instance: str, among: Collection[str]) -> Sequence[BalancerTarget]:
        """Read the targets of an instance, in the target groups `among` these or, if there are
        none, in all of them.

        Raises:
            CannotBeDoneError: AWS does not answer or refuses.
        """
        with aws_errors(f"the targets of instance {instance}"):
            balancers = LoadBalancerTargets(partial(client, "elbv2"))
            return balancers.of_instance(instance, among or None)

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
            stack = find_stack(self.stack)
            cluster = self._clusters.get(instance, "")
            with aws_errors(stack.where):
                records = table(name=stack.table)
                record = records.get(RETIREMENT, cluster=cluster, instance=instance)
        except CannotBeDoneError:
            return ""
        if record is None or not record.is_open:
            return ""
        return f"{record.kind.value} of {record.noticed_at:%Y-%m-%d %H:%M:%S} UTC, {record.phase}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A node whose instance may be ended, and how."""

    target: Target
    ending: Ending
    retirement: str = ""

    def as_data(self, ended: bool) -> dict[str, Any]:
        """Render it for JSON; `ended` says whether its instance ends now."""
        return {
            "node": self.target.node.name if self.target.node else None,
            "instance": self.target.instance,
            "owner": self.ending.owner,
            "group": self.ending.group or None,
            "call": self.ending.call.value,
            "decrement": self.ending.decrement,
            "retirement": self.retirement or None,
            "terminated": ended,
        }


@dataclass
class TerminateRun:
    """Ends nodes of one cluster, each when it is drained. With `waits` load balancers have drained
    its instance as well."""

    drains: DrainRun
    instances: AwsInstances
    decrement: bool
    waits: bool = False
    _requested: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)
    _failed: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _stopped: bool = False

    def terminate(self, given: Sequence[str]) -> None:
        """Drain these nodes, end the instances of the drained ones, and print the result.

        Raises:
            CannotBeDoneError: a node is not terminated.
        """
        accepted, problems = self._decide(given)
        for one in accepted.values():
            self._warn(one)
        plans = self._plans(accepted)
        try:
            results = self.drains.carry_out(plans, lambda node: self._end(accepted[node]))
        except KeyboardInterrupt:
            self._stop([accepted[plan.node] for plan in plans])
            raise
        for node, problem in results.problems.items():
            problems[node] = (
                f"Node {node} is not terminated, because it is not drained: {as_clause(problem)}."
            )
        problems |= self._failed
        documents = []
        for title, one in accepted.items():
            ended = one.ending.over or title in self._ended
            documents.append({**results.documents.get(title, {}), **one.as_data(ended)})
            if self.drains.output is Format.TABLE:
                write_stdout(_outcome(one, ended))
        self._finish(documents, problems)

    def dry_run(self, given: Sequence[str], on_server: bool) -> None:
        """Print what `terminate` would do; with `on_server` the API server checks the evictions.

        Raises:
            CannotBeDoneError: a node would not be terminated.
        """
        accepted, problems = self._decide(given)
        plans = self._plans(accepted)
        previews = {one["node"]: one for one in self.drains.preview(plans, on_server)}
        problems |= {
            plan.node: (
                f"Node {plan.node} is not terminated, because it is not drained: "
                f"{as_clause(plan.refused)}."
            )
            for plan in plans
            if plan.refused
        }
        documents = []
        for title, one in accepted.items():
            self._warn(one)
            documents.append({**previews.get(title, {"dryRun": True}), **one.as_data(False)})
            if self.drains.output is Format.TABLE and title not in problems:
                write_stdout(_would(one))
        self._finish(documents, problems)

    def _decide(self, given: Sequence[str]) -> tuple[dict[str, Accepted], dict[str, str]]:
        """Decide for every node before the first one is cordoned."""
        nodes = self.drains.cluster.nodes()
        accepted: dict[str, Accepted] = {}
        problems: dict[str, str] = {}
        freed: dict[str, int] = {}
        for name in given:
            target = find_target(name, nodes)
            if isinstance(target, str):
                problems[name] = target
                continue
            if target.title in accepted:  # given by its name and by its instance
                continue
            ending = self._ending(target, freed)
            if isinstance(ending, str):
                problems[target.title] = ending
                continue
            freed[ending.group] = freed.get(ending.group, 0) + ending.freed
            retirement = "" if ending.over else self.instances.retirement(target.instance)
            accepted[target.title] = Accepted(target, ending, retirement)
        return accepted, problems

    def _ending(self, target: Target, freed: Mapping[str, int]) -> Ending | str:
        now = self.instances.read(target.instance)
        foreign = self.instances.foreign(target.instance, now)
        if foreign is not None:
            return foreign
        return decide_ending(
            target,
            now,
            region=self.instances.region,
            decrement=self.decrement,
            freed=freed.get(now.group.name, 0) if now.group is not None else 0,
        )

    def _plans(self, accepted: Mapping[str, Accepted]) -> list[NodePlan]:
        """Plan the drains. The node of an instance that EC2 terminates has nothing to drain."""
        return [self.drains.decide(title) for title, one in accepted.items() if not one.ending.over]

    def _warn(self, one: Accepted) -> None:
        if one.retirement:
            write_stderr(
                f"warning: Leeway retires node {one.target.title} already: {one.retirement}. "
                "`leeway status` shows it."
            )

    def _end(self, one: Accepted) -> None:
        """End a drained node. A drain may take hours: the instance is read again before, and the
        decision is made again."""
        target = one.target
        try:
            if self.waits:
                self._wait_for_targets(target)
            ending = self._ending(target, {})
            if isinstance(ending, str):
                self._failed[target.title] = ending
                return
            with self._lock:  # after Ctrl-C no further instance is ended
                if self._stopped:
                    return
                self._requested.add(target.title)
                self.instances.end(target.instance, ending)
                self._ended.add(target.title)
        except CannotBeDoneError as error:
            self._failed[target.title] = (
                f"Node {target.title} is drained and cordoned, and instance {target.instance} "
                f"still runs: {as_clause(error)}. Run the command again to continue."
            )

    def _wait_for_targets(self, target: Target) -> None:
        """Wait for load balancers as retire_node does, and say for which, or why not."""
        clock, deadline = self.drains.clock, self.drains.terms.deadline
        since, groups, said = clock.now(), frozenset[str](), None
        while not self._stopped:
            targets = self.instances.targets(target.instance, groups)
            groups = groups or frozenset(one.group for one in targets)
            decision = decide_targets(targets, since, clock.now(), deadline)
            if decision.reason is not None and decision.reason != said:
                write_stderr(f"node/{target.title}: {decision.reason}")
                said = decision.reason
            if not decision.wait:
                return
            clock.sleep(LOOK_EVERY.total_seconds())

    def _stop(self, accepted: Sequence[Accepted]) -> None:
        with self._lock:
            self._stopped = True
        for one in accepted:
            title, instance = one.target.title, one.target.instance
            if title in self._requested:
                write_stderr(f"node/{title}: the termination of instance {instance} was requested")
            else:
                write_stderr(
                    f"node/{title}: instance {instance} still runs; run the command again to go on"
                )

    def _finish(self, documents: list[dict[str, Any]], problems: Mapping[str, str]) -> None:
        """Print the JSON result, or raise the error that carries it."""
        result = {
            "nodes": documents,
            "notTerminated": [{"node": node, "reason": one} for node, one in problems.items()],
        }
        if problems:
            raise CannotBeDoneError(" ".join(problems.values()), result=result)
        if self.drains.output is Format.JSON:
            print_json(result)


def _outcome(one: Accepted, ended: bool) -> str:
    title, instance = one.target.title, one.target.instance
    if one.ending.over:
        return f"node/{title} terminated already ({instance})"
    return f"node/{title} {'terminated' if ended else 'not terminated'} ({instance})"


def _would(one: Accepted) -> str:
    title, instance, ending = one.target.title, one.target.instance, one.ending
    return f"node/{title}: instance {instance} {'; '.join(_effects(ending))} (dry run)"


def _effects(ending: Ending) -> Iterator[str]:
    if ending.over:
        yield "is terminated already"
    elif ending.call is Call.NONE:
        yield f"is terminated by its group {ending.group} already"
    else:
        yield f"would be ended by {ending.call}"
    if ending.call is Call.IN_GROUP:
        effect = "becomes smaller" if ending.decrement else "launches another instance"
        yield f"group {ending.group} {effect}"
