"""Lets status checks of an instance fail, and pass again, on command.

The instances of moto pass every check.
"""

import time
from typing import Any, Literal

from moto.ec2.models.instances import Instance
from pydantic import BaseModel, ConfigDict

from leeway_sandbox.aws import instances
from leeway_sandbox.aws.cloud import Cloud
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
