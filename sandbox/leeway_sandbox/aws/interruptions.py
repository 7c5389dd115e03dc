"""Interrupts Spot instances on command: rebalance recommendation, warning, interruption.

moto never interrupts an instance.
"""

import time
from typing import Literal

from moto.ec2.models.instances import Instance
from pydantic import BaseModel, ConfigDict, Field

from leeway_sandbox.aws import instances, spot
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.aws.groups import group_of
from leeway_sandbox.aws.notices import (
    interruption_warning,
    rebalance_recommendation,
    reservation_warning,
)
from leeway_sandbox.errors import NotFoundError


class Interruption(BaseModel):
    """A command; all times are in seconds.

    The `time` of the warning is `late` seconds ago (in the future if negative). EC2 acts `warning`
    seconds after that time. If `warning` is None, only the rebalance recommendation is sent.
    """

    model_config = ConfigDict(extra="forbid")

    instance: str | list[str]
    warning: float | None = Field(default=120, ge=0)
    late: float = 0
    rebalance: bool = False
    copies: int = Field(default=1, ge=0)  # 0: the warning is lost, and EC2 still acts
    action: Literal["terminate", "stop", "hibernate"] = "terminate"
    reservation: bool = False  # the warning of a capacity reservation, not of Spot


class Interruptions:
    """Interrupts instances of one region."""

    def __init__(self, cloud: Cloud, bus: EventBus):
        self._cloud = cloud
        self._bus = bus

    def begin(self, command: Interruption) -> list[dict[str, str | float | None]]:
        """Send the notices now and act later; return `[{"instance", "event", "reclaim_at"}, …]`.

        Raises NotFoundError, before it sends anything, if an instance does not run.
        """
        names = [command.instance] if isinstance(command.instance, str) else command.instance
        found = [self._find(name) for name in names]
        return [self._interrupt(ec2, instance, command) for ec2, instance in found]

    def _find(self, name: str) -> tuple[instances.TimedInstances, Instance]:
        ec2, instance = instances.find(self._cloud, name)
        if instance.state in instances.ENDING:
            raise NotFoundError(f"EC2 has no running instance {name}.")
        return ec2, instance

    def _interrupt(
        self, ec2: instances.TimedInstances, instance: Instance, command: Interruption
    ) -> dict[str, str | float | None]:
        at = time.time() - command.late
        if command.rebalance:
            self._bus.emit(rebalance_recommendation(instance, at), max(command.copies, 1))
            if group := group_of(instance):
                group.rebalance(instance.id)
        if command.warning is None:
            return {"instance": instance.id, "event": None, "reclaim_at": None}
        if command.reservation:
            event = reservation_warning(instance, at + command.warning, at)
        else:
            event = interruption_warning(instance, command.action, at)
        spot.announce(instance, command.action, at)
        if command.copies:
            self._bus.emit(event, command.copies)
        # EC2 hibernates at once; it terminates and stops after the warning time.
        reclaim_at = at + (0 if command.action == "hibernate" else command.warning)
        self._cloud.journal.add("interrupted", instance=instance.id, reclaim_at=reclaim_at)
        self._cloud.timers.after(
            reclaim_at - time.time(), self._reclaim, ec2, instance, command.action
        )
        return {"instance": instance.id, "event": event["id"], "reclaim_at": reclaim_at}

    def _reclaim(self, ec2: instances.TimedInstances, instance: Instance, action: str) -> None:
        if instance.state in instances.ENDING:
            return
        self._cloud.journal.add("reclaimed", instance=instance.id)
        if action == "terminate":
            reason = instances.SPOT if instance.lifecycle == "spot" else instances.RESERVATION
            ec2.terminate_instances([instance.id], reason)
        else:
            spot.mark(instance, "disabled", "instance-stopped-no-capacity")
            ec2.stop_instances([instance.id])
