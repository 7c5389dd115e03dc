"""Target groups that drain a deregistered target for their deregistration delay.

moto forgets such a target at once. Source: Elastic Load Balancing's guide for Application Load
Balancers, "Deregistration delay": the target is `draining`, then `unused` and not listed.
"""

import time
from typing import Any

from moto.core.responses import ActionResult
from moto.elbv2.models import FakeHealthStatus, FakeTargetGroup
from moto.elbv2.responses import ELBV2Response

_DELAY = "deregistration_delay.timeout_seconds"
_until: dict[tuple[str, str], tuple[float, str]] = {}
"""Until when a target drains, by its group and its id, and its port."""


class TargetGroups(ELBV2Response):
    """moto's actions of Elastic Load Balancing, with targets that drain."""

    def register_targets(self) -> ActionResult:
        """Register targets; one that drains is registered again."""
        for target in self._get_param("Targets"):
            _until.pop((self._get_param("TargetGroupArn"), target["Id"]), None)
        return super().register_targets()

    def deregister_targets(self) -> ActionResult:
        """Begin to drain targets."""
        arn = self._get_param("TargetGroupArn")
        group: FakeTargetGroup = self.elbv2_backend.target_groups[arn]
        registered = {target: str(facts["Port"]) for target, facts in group.targets.items()}
        answer = super().deregister_targets()
        end = time.monotonic() + float(str(group.attributes[_DELAY]))
        for target in self._get_param("Targets"):
            _until[arn, target["Id"]] = (end, registered[target["Id"]])
        return answer

    def describe_target_health(self) -> ActionResult:
        """Describe the targets that are registered, and those that drain."""
        answer = super().describe_target_health()
        if self._get_param("Targets"):
            return answer
        arn, now = self._get_param("TargetGroupArn"), time.monotonic()
        result: Any = answer.result
        result["TargetHealthDescriptions"] += [
            FakeHealthStatus(
                target,
                port,
                port,
                "draining",
                "Target.DeregistrationInProgress",
                "Target deregistration is in progress",
            )
            for (group, target), (end, port) in _until.items()
            if group == arn and now < end
        ]
        return answer
