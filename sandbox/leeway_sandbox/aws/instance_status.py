"""Lets status checks of an instance fail and pass again, and lets EC2 schedule its events: reboot,
stop, retirement, maintenance.

The instances of moto pass every check, and moto's DescribeInstanceStatus shows no events.
"""

import time
import uuid
from typing import Any, Literal

from moto.core.responses import ActionResult
from moto.ec2.models.instances import Instance
from moto.ec2.responses.instances import InstanceResponse
from pydantic import BaseModel, ConfigDict

from leeway_sandbox.aws import instances
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.ec2_requests import page
from leeway_sandbox.aws.notices import timestamp

CHECKS = ("instance", "system", "attached-ebs")
FILTERS = {f"{check}-status.status": check for check in CHECKS}


class Impairment(BaseModel):
    """A command: the check has failed for `lasts` seconds; with None it passes."""

    model_config = ConfigDict(extra="forbid")

    instance: str
    check: Literal["instance", "system", "attached-ebs"] = "system"
    lasts: float | None = 0


def impair(cloud: Cloud, command: Impairment) -> dict[str, list[str]]:
    """Set a status check; return the checks that fail now, `{"failed": […]}`."""
    _, instance = instances.find(cloud, command.instance)
    failed = _failed(instance)
    if command.lasts is None:
        failed.pop(command.check, None)
    else:
        failed[command.check] = time.time() - command.lasts
    return {"failed": sorted(failed)}


def _failed(instance: Instance) -> dict[str, float]:
    """Return the failed checks with the time since when they fail, in epoch seconds."""
    found: dict[str, float] = instance.__dict__.setdefault("failed_checks", {})
    return found


def summary(instance: Instance, check: str) -> dict[str, Any]:
    """Return the status of one check as DescribeInstanceStatus shows it."""
    since = _failed(instance).get(check)
    if since is None or instance.state != "running":
        passed = {"Name": "reachability", "Status": "passed"}
        return {"Status": "ok", "Details": [passed]}
    failed = {"Name": "reachability", "Status": "failed", "ImpairedSince": timestamp(since)}
    return {"Status": "impaired", "Details": [failed]}


BY_CODE = "event.code"


class Maintenance(BaseModel):
    """A command: an event that starts in `starts_in` seconds.

    With the id of an earlier answer as `event`, the command changes that event. `over` is the
    prefix with which EC2 marks a finished event in its description.
    """

    model_config = ConfigDict(extra="forbid")

    instance: str
    code: Literal[
        "instance-reboot",
        "instance-retirement",
        "instance-stop",
        "system-maintenance",
        "system-reboot",
    ] = "instance-retirement"
    starts_in: float = 3600
    event: str = ""
    over: Literal["", "[Completed]", "[Canceled]"] = ""


def announce(cloud: Cloud, command: Maintenance) -> dict[str, str]:
    """Schedule or change an event; return its id, `{"event": …}`."""
    _, instance = instances.find(cloud, command.instance)
    event = command.event or f"instance-event-{uuid.uuid4().hex[:17]}"
    scheduled = _scheduled(instance)
    scheduled[event] = {
        "InstanceEventId": event,
        "Code": command.code,
        "Description": f"{command.over} The instance is on degraded hardware".strip(),
        "NotBefore": timestamp(time.time() + command.starts_in),
    }
    return {"event": event}


def _scheduled(instance: Instance) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = instance.__dict__.setdefault("scheduled", {})
    return found


class InstanceStatuses(InstanceResponse):
    """Answers DescribeInstanceStatus with scheduled events and status checks, in pages."""

    def describe_instance_status(self) -> ActionResult:
        """Return one page of the statuses that the parameters and filters select."""
        filters = self._filters_from_querystring()
        codes = filters.pop(BY_CODE, None)
        statuses = [
            (check, list(filters.pop(name))) for name, check in FILTERS.items() if name in filters
        ]
        found = self.ec2_backend.describe_instance_status(
            self._get_param("InstanceIds", []),
            self._get_bool_param("IncludeAllInstances", False),
            [{"name": name, "values": values} for name, values in filters.items()],
        )
        if codes is not None:
            found = [i for i in found if any(e["Code"] in codes for e in _scheduled(i).values())]
        found = [
            one
            for one in found
            if all(summary(one, check)["Status"] in wanted for check, wanted in statuses)
        ]
        shown, token = page(found, self._get_param("MaxResults"), self._get_param("NextToken"))
        statuses_shown = [_status(instance) for instance in shown]
        return ActionResult({"InstanceStatuses": statuses_shown, "NextToken": token})


def _status(instance: Instance) -> dict[str, Any]:
    return {
        "InstanceId": instance.id,
        "AvailabilityZone": instance.placement.zone,
        "InstanceState": {"Name": instance.state, "Code": instance.state_code},
        "InstanceStatus": summary(instance, "instance"),
        "SystemStatus": summary(instance, "system"),
        "AttachedEbsStatus": summary(instance, "attached-ebs"),
        "Events": list(_scheduled(instance).values()),
    }
