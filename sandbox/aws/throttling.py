"""Limits the rate of EC2 and Auto Scaling calls by token buckets, as AWS does per account.

Stands in for request throttling, which moto has not. Bucket sizes and refill rates of EC2: "Request
throttling for the Amazon EC2 API" in the EC2 developer guide; each action has a bucket of its own.
Auto Scaling publishes no figures: it gets EC2's.
"""

import threading
import time
from dataclasses import dataclass

from sandbox.aws.calls import Call

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
RESOURCE_INTENSIVE = {"RequestSpotInstances", "CancelSpotInstanceRequests", "CreateKeyPair"}
OWN = {
    "CreateLaunchTemplateVersion": (100, 5),
    "CreateTags": (100, 10),
    "DeleteTags": (100, 10),
    "RunInstances": (5, 2),
    "StartInstances": (5, 2),
    "TerminateInstances": (100, 5),
}
# What each service says when it throttles: code, message, HTTP status.
WORDS = {
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

    def take(self, now: float) -> bool:
        """Whether there was a token to take, at `now` (monotonic seconds)."""
        self.tokens = min(self.size, self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Throttle:
    """All buckets; switched off unless `enabled`."""

    def __init__(self, *, enabled: bool):
        self.enabled = enabled
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._lock = threading.Lock()

    def refuses(self, call: Call) -> tuple[str, str, int] | None:
        """`(code, message, status)` when the call finds its bucket empty, else None."""
        if not self.enabled or call.service not in WORDS:
            return None
        name, size, rate = limits(call)
        now = time.monotonic()
        with self._lock:
            bucket = self._buckets.setdefault((call.service, name), Bucket(size, rate, size, now))
            return None if bucket.take(now) else WORDS[call.service]


def limits(call: Call) -> tuple[str, float, float]:
    """The bucket that a call draws from: its name, its size, its refill in tokens a second."""
    action = call.action
    if action in OWN:
        return action, *OWN[action]
    if action in UNFILTERED and not any(key.startswith(NARROWING) for key in call.form):
        return f"{action} unfiltered", 50, 10
    if action.startswith(READS):
        return action, 100, 20
    if action in RESOURCE_INTENSIVE:
        return action, 50, 5
    return action, 50, 5
