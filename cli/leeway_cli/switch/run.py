"""Does the steps of a switch: the first one of a plan, then a new plan, until no step is left."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from leeway.switched import Buyer, Switch

from leeway_cli.errors import CannotBeDoneError
from leeway_cli.switch.plan import Deployment, Do, Instance, Seen, Step, SwitchPlan, plan_switch

LOOK_EVERY = 2.0
"""Seconds between two plans while a step waits, or has no effect yet: reads of EC2 are late."""

WAITS_FOR = timedelta(minutes=20)
"""How long a step may wait: a node of Leeway that never joins is ended after 15 minutes."""

RENEW_AFTER = 10
"""Instances after which the claim of the command is renewed."""


class World(Protocol):
    """The cluster, EC2 and the table. Every method raises CannotBeDoneError."""

    def read(self) -> Seen:
        """Read all that a plan needs."""
        ...

    def write_switch(self, switch: Switch) -> None:
        """Write who launches nodes, if nobody else has written it since it was read."""
        ...

    def scale(self, deployment: Deployment, replicas: int) -> None:
        """Set the size of Karpenter's Deployment."""
        ...

    def record_launch(self, instance: Instance, now: datetime) -> None:
        """Write the launch of an instance into the table."""
        ...

    def tag(self, instances: tuple[str, ...], tags: dict[str, str]) -> None:
        """Write tags of instances."""
        ...

    def untag(self, instances: tuple[str, ...], tags: dict[str, str]) -> None:
        """Remove tags of instances; one with an empty value whatever its value is."""
        ...

    def write_claim(self, instance: Instance, now: datetime) -> None:
        """Write the NodeClaim of a node of Leeway, or complete the one that a killed command left.
        Nothing is written if Karpenter has started."""
        ...

    def remove_claim(self, name: str) -> None:
        """Delete a NodeClaim that a killed switch wrote. One that Karpenter has registered
        meanwhile stays; nothing is deleted while Karpenter runs."""
        ...

    def drain(self, node: str) -> None:
        """Drain a node within the budgets of its pods, and end its instance."""
        ...


def carry_out(
    world: World,
    to: Buyer,
    say: Callable[[str], None],
    sleep: Callable[[float], None],
) -> SwitchPlan:
    """Do the steps until none is left; return the last plan. `sleep` waits for seconds, and keeps
    the claim of the command.

    Raises:
        CannotBeDoneError: a refusal, a step that a person has to do, one that failed, or one that
            waits for too long. The command goes on where it was.
    """
    before: Step | None = None
    since: datetime | None = None
    while True:
        sleep(0.0)  # a command that has lost its claim writes nothing more
        seen = world.read()
        plan = plan_switch(seen, to)
        if plan.refusals:
            first, *others = plan.refusals
            raise CannotBeDoneError(first, "\n".join(others))
        if not plan.steps:
            return plan
        step = plan.steps[0]
        repeated = before is not None and (step.do, step.title) == (before.do, before.title)
        if not repeated:
            since = seen.now
            say(f"{step.title}: {step.why}")
        elif since is not None and seen.now - since > WAITS_FOR:
            raise CannotBeDoneError(
                f"Cluster {seen.cluster}: the step `{step.title}` takes too long. {step.why} Run "
                "the command again to go on."
            )
        if step.do is Do.WAIT or repeated:
            sleep(LOOK_EVERY)
        if step.do is not Do.WAIT:
            _do(world, seen, step, sleep)
        before = step


def _do(world: World, seen: Seen, step: Step, sleep: Callable[[float], None]) -> None:
    instances = [one for one in seen.instances if one.id in {*step.instances}]
    match step.do:
        case Do.NAME_KARPENTER | Do.NAME_LEEWAY:
            world.write_switch(_switched(seen, step))
        case Do.SCALE:
            _scale(world, seen.deployments[0], step)
        case Do.TAG:
            world.tag(step.instances, dict(step.tags))
        case Do.UNTAG:
            world.untag(step.instances, dict(step.tags))
    for number, name in enumerate(step.claims, 1):
        if number % RENEW_AFTER == 0:
            sleep(0.0)
        world.remove_claim(name)
    for number, one in enumerate(instances, 1):
        if number % RENEW_AFTER == 0:
            sleep(0.0)
        match step.do:
            case Do.RECORD:
                world.record_launch(one, seen.now)
            case Do.CLAIM:
                world.write_claim(one, seen.now)
            case Do.DRAIN:
                world.drain(seen.nodes.get(one.id, one.id))


def _scale(world: World, deployment: Deployment, step: Step) -> None:
    if step.by_git:
        raise CannotBeDoneError(
            f"{step.by_git} applies Deployment {deployment.namespace}/{deployment.name}, and would "
            f"undo the change. Set spec.replicas to {step.replicas} there, or stop its sync and "
            f"run `{deployment.scale_command(step.replicas)}`. Then run the command again."
        )
    world.scale(deployment, step.replicas)


def _switched(seen: Seen, step: Step) -> Switch:
    old = seen.switch
    version = old.version + 1 if old is not None else 1
    if step.do is Do.NAME_LEEWAY:
        replicas = old.replicas if old is not None else 0
        return Switch(seen.cluster, version, Buyer.LEEWAY, seen.now, replicas)
    return Switch(seen.cluster, version, Buyer.KARPENTER, seen.now, step.replicas)
