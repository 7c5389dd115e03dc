"""Fault Injection Service: experiments that interrupt Spot instances. moto acts on no target.

EC2 recommends a rebalance when the action begins, warns two minutes before
`durationBeforeInterruption` is over, and then reclaims the instances. Source: AWS's workshop
"Launching EC2 Spot Instances", "Creating a Spot Interruption Experiment".
"""

import json
import re
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance
from moto.fis.models import Experiment, FISBackend
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends

from leeway_sandbox.aws import instances
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud
from leeway_sandbox.aws.interruptions import Interruption, Interruptions

_ACTION = "aws:ec2:send-spot-instance-interruptions"
_SERVICE = "fis.amazonaws.com"
_WARNING = 120


def install(cloud: Cloud, interruptions: Interruptions) -> None:
    """Let experiments interrupt Spot instances. Other experiments fail."""
    start = FISBackend.start_experiment

    def start_experiment(self: FISBackend, *args: Any, **kwargs: Any) -> dict[str, Any]:
        known = {*self.experiments}
        answer = start(self, *args, **kwargs)
        experiment = self.experiments[answer["id"]]
        if experiment.id not in known:  # else a client repeats its call
            try:
                _run(cloud, interruptions, experiment)
            except _CannotRunError as problem:
                experiment.status = "failed"
                reasons = {**Experiment.STATUS_REASONS, "failed": str(problem)}
                experiment.STATUS_REASONS = reasons  # type: ignore[misc]
        return answer

    FISBackend.start_experiment = start_experiment  # type: ignore[method-assign]


class _CannotRunError(Exception):
    """An experiment that fails at its start; the text is the reason of its state."""


def _run(cloud: Cloud, interruptions: Interruptions, experiment: Experiment) -> None:
    if not _is_trusting(experiment.role_arn):
        raise _CannotRunError(f"FIS cannot assume the role {experiment.role_arn}.")
    for action in experiment.actions.values():
        if action["actionId"] != _ACTION:
            raise _CannotRunError(f"The sandbox has only the action {_ACTION}.")
        target = experiment.targets[action["targets"]["SpotInstances"]]
        names = [one.id for one in _selected(cloud, target)]
        if not names:
            raise _CannotRunError("Target resolution returned empty set")
        interruptions.begin(Interruption(instance=names, rebalance=True, warning=None))
        early = _seconds(action["parameters"]["durationBeforeInterruption"]) - _WARNING

        def warn(names: list[str] = names) -> None:
            left = [one for one in names if instances.find(cloud, one)[1].state == "running"]
            interruptions.begin(Interruption(instance=left))

        cloud.timers.after(early, warn)


def _is_trusting(role_arn: str) -> bool:
    """Whether the role exists, and FIS may assume it."""
    try:
        role = iam_backends[ACCOUNT]["aws"].get_role_by_arn(role_arn)
    except NotFoundException:
        return False
    statements = json.loads(role.assume_role_policy_document).get("Statement", [])
    return any(one.get("Principal", {}).get("Service") == _SERVICE for one in statements)


def _selected(cloud: Cloud, target: dict[str, Any]) -> list[Instance]:
    """Return the running Spot instances that have all tags of a target."""
    wanted = (target.get("resourceTags") or {}).items()
    return [
        instance
        for instance in ec2_backends[ACCOUNT][cloud.region].all_instances()
        if instance.state == "running"
        and instance.lifecycle == "spot"
        and wanted <= instances.tags(instance).items()
    ]


def _seconds(duration: str) -> float:
    minutes = re.fullmatch(r"PT(\d+)M", duration)
    if minutes is None or int(minutes[1]) < 2:
        raise _CannotRunError(f"durationBeforeInterruption is PT2M or longer, got {duration}.")
    return int(minutes[1]) * 60.0
