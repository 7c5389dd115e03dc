"""Limits the rate of EC2 and Auto Scaling calls by token buckets, as AWS does for an account.

Bucket sizes and refill rates: "Request throttling for the Amazon EC2 API" in the EC2 developer
guide. Each action has its own bucket; actions that start or stop instances have a second one, of
instances. Auto Scaling publishes no figures: it uses those of EC2.
"""

import threading
import time
from collections import Counter
from dataclasses import dataclass

from leeway_sandbox.aws.calls import Call

READS = ("Describe", "Get", "List", "Search")
UNFILTERED = {
    "DescribeInstances",
    "DescribeInstanceStatus",
    "DescribeNetworkInterfaces",
    "DescribeSecurityGroups",
    "DescribeSnapshots",
    "DescribeSpotInstanceRequests",
    "DescribeVolumes",
}
NARROWING = ("Filter.", "InstanceId.", "MaxResults", "SpotInstanceRequestId.", "VolumeId.")
OWN = {
    "CreateLaunchTemplateVersion": (100, 5),
    "CreateTags": (100, 10),
    "DeleteTags": (100, 10),
    "RunInstances": (5, 2),
    "StartInstances": (5, 2),
    "TerminateInstances": (100, 5),
}
# These actions also have a bucket of instances.
RESOURCES = {
    "RunInstances": (1000, 2),
    "StartInstances": (1000, 2),
    "StopInstances": (1000, 20),
    "TerminateInstances": (1000, 20),
}
# The throttling error of each service: code, message, HTTP status.
ERRORS = {
    "ec2": ("RequestLimitExceeded", "Request limit exceeded.", 503),
    "autoscaling": ("Throttling", "Rate exceeded", 400),
}


@dataclass
class Bucket:
    """Tokens that refill at `rate` a second up to `size`."""

    size: float
    rate: float
    tokens: float
    filled_at: float

    def take(self, now: float, wanted: float = 1) -> bool:
        """Take tokens at `now` (monotonic seconds); return whether there were enough."""
        self.tokens = min(self.size, self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.tokens < wanted:
            return False
        self.tokens -= wanted
        return True


class Throttle:
    """All buckets; they are off until `switch` enables them.

    The buckets belong to the account: `share` is the part that other clients leave.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.share = 1.0
        self.refused: Counter[str] = Counter()
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._lock = threading.Lock()

    def switch(self, *, enabled: bool, share: float) -> None:
        """Turn the limits on or off; all buckets are then full."""
        with self._lock:
            self.enabled, self.share = enabled, share
            self._buckets.clear()

    def refuses(self, call: Call) -> tuple[str, str, int] | None:
        """Return `(code, message, status)` if the bucket of the call is empty, else None."""
        if not self.enabled or call.service not in ERRORS:
            return None
        now = time.monotonic()
        with self._lock:
            if self._is_empty(call, now):
                self.refused[str(call)] += 1
                return ERRORS[call.service]
        return None

    def _is_empty(self, call: Call, now: float) -> bool:
        if not self._bucket(call.service, *limits(call), now).take(now):
            return True
        if call.service != "ec2" or call.action not in RESOURCES:
            return False
        name, (size, rate) = f"{call.action} instances", RESOURCES[call.action]
        return not self._bucket("ec2", name, size, rate, now).take(now, instances_of(call))

    def _bucket(self, service: str, name: str, size: float, rate: float, now: float) -> Bucket:
        size, rate = size * self.share, rate * self.share
        return self._buckets.setdefault((service, name), Bucket(size, rate, size, now))


def instances_of(call: Call) -> int:
    """Return the number of instances of a call."""
    if call.action == "RunInstances":
        return int(call.form.get("MaxCount", ["1"])[0])
    return sum(key.startswith("InstanceId.") for key in call.form)


def limits(call: Call) -> tuple[str, float, float]:
    """Return the bucket of a call: name, size, refill in tokens a second."""
    action = call.action
    if action in OWN:
        return action, *OWN[action]
    if action in UNFILTERED and not any(key.startswith(NARROWING) for key in call.form):
        return f"{action} unfiltered", 50, 10
    if action.startswith(READS):
        return action, 100, 20
    return action, 50, 5
