"""The experiment by which Fault Injection Service interrupts Spot instances of an acceptance."""

from collections.abc import Mapping

from leeway_cli.acceptance.world import World
from leeway_cli.errors import CannotBeDoneError, as_clause, aws_errors

_FIS = "Fault Injection Service"


def interrupt(world: World, what: str, tags: Mapping[str, str], minutes: int = 2) -> None:
    """Begin an experiment: EC2 recommends a rebalance for the Spot instances with these tags at
    once, and interrupts them after this time, 2 to 15 minutes, with its warning two minutes before.

    The template is deleted at once: the experiment that runs does not need it. Source: AWS FIS
    user guide, "AWS FIS actions reference", aws:ec2:send-spot-instance-interruptions.
    """
    target = {
        "resourceType": "aws:ec2:spot-instance",
        "resourceTags": dict(tags),
        "selectionMode": "ALL",
    }
    action = {
        "actionId": "aws:ec2:send-spot-instance-interruptions",
        "parameters": {"durationBeforeInterruption": f"PT{minutes}M"},
        "targets": {"SpotInstances": "nodes"},
    }
    with aws_errors(_FIS):
        created = world.fis.create_experiment_template(
            description=f"Interrupts the Spot node of {what} in cluster {world.cluster}",
            roleArn=world.fis_role,
            stopConditions=[{"source": "none"}],
            targets={"nodes": target},
            actions={"interrupt": action},
        )
        template = created["experimentTemplate"]["id"]
        try:
            started = world.fis.start_experiment(experimentTemplateId=template)
            world.experiment = started["experiment"]["id"]
        finally:
            world.fis.delete_experiment_template(id=template)


def check(world: World) -> None:
    """Raise CannotBeDoneError if the experiment, if there is one, interrupts nothing."""
    if world.experiment:
        with aws_errors(_FIS):
            state = world.fis.get_experiment(id=world.experiment)["experiment"]["state"]
        if state["status"] in ("failed", "stopped"):
            problem = as_clause(state["reason"])
            raise CannotBeDoneError(f"{_FIS} interrupted nothing: {problem}.")


def stop(world: World) -> None:
    """Stop the experiment, if there is one: AWS bills each minute of its action."""
    if world.experiment:
        with aws_errors(_FIS):
            world.fis.stop_experiment(id=world.experiment)
        world.experiment = ""
