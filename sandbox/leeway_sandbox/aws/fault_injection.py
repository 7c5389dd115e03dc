"""Fault Injection Service: experiments that interrupt Spot instances. moto acts on no target.

EC2 recommends a rebalance immediately after the action begins, warns two minutes before
`durationBeforeInterruption` is over, and then reclaims the instances. AWS does not document how an
action ends whose instances end before; here it warns nobody. Source: AWS FIS user guide, "AWS FIS
actions reference", aws:ec2:send-spot-instance-interruptions.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance
from moto.fis.models import Experiment, FISBackend
from moto.iam.exceptions import NotFoundException
from moto.iam.models import iam_backends

from leeway_sandbox.aws import instances
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud, Timer
from leeway_sandbox.aws.interruptions import Interruption, Interruptions

_ACTION = "aws:ec2:send-spot-instance-interruptions"
_SERVICE = "fis.amazonaws.com"
_WARNING = 120


def install(cloud: Cloud, interruptions: Interruptions) -> None:
    """Let experiments interrupt Spot instances. Other experiments fail."""
    start, stop = FISBackend.start_experiment, FISBackend.stop_experiment
    warnings: dict[str, list[Timer]] = {}

    def start_experiment(self: FISBackend, *args: Any, **kwargs: Any) -> dict[str, Any]:
        known = {*self.experiments}
        answer = start(self, *args, **kwargs)
        experiment = self.experiments[answer["id"]]
        if experiment.id not in known:  # else a client repeats its call
            try:
                warnings[experiment.id] = [*_run(cloud, interruptions, experiment)]
            except _CannotRunError as problem:
                experiment.status = "failed"
                reasons = {**Experiment.STATUS_REASONS, "failed": str(problem)}
                experiment.STATUS_REASONS = reasons  # type: ignore[misc]
        return answer

    def stop_experiment(self: FISBackend, id: str) -> dict[str, Any]:  # noqa: A002 (moto's name)
        for warning in warnings.pop(id, ()):
            warning.cancel()
        return stop(self, id)

    FISBackend.start_experiment = start_experiment  # type: ignore[method-assign]
    FISBackend.stop_experiment = stop_experiment  # type: ignore[method-assign]


class _CannotRunError(Exception):
    """An experiment that fails at its start; the text is the reason of its state."""


def _run(cloud: Cloud, interruptions: Interruptions, experiment: Experiment) -> Iterator[Timer]:
    """Recommend a rebalance, and yield the warnings that follow."""
    if not _is_trusting(experiment.role_arn):
        raise _CannotRunError(f"FIS cannot assume the role {experiment.role_arn}.")
    for action in experiment.actions.values():
        if action["actionId"] != _ACTION:
            raise _CannotRunError(f"The sandbox has only the action {_ACTION}.")
        target = experiment.targets[action["targets"]["SpotInstances"]]
        names = [one.id for one in _selected(cloud, target)]
        if not names:
            raise _CannotRunError("Target resolution returned empty set")
        early = _seconds(action["parameters"]["durationBeforeInterruption"]) - _WARNING
        interruptions.begin(Interruption(instance=names, rebalance=True, warning=None))

        def warn(names: list[str] = names) -> None:
            left = [one for one in names if instances.find(cloud, one)[1].state == "running"]
            interruptions.begin(Interruption(instance=left))

        yield cloud.timers.after(early, warn)


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
    if minutes is None or not 2 <= int(minutes[1]) <= 15:
        raise _CannotRunError(f"durationBeforeInterruption is PT2M to PT15M, got {duration}.")
    return int(minutes[1]) * 60.0
