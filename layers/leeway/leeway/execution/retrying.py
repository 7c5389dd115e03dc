"""Repeats calls: while a service is unavailable, and after a write conflict."""

from collections.abc import Callable
from datetime import timedelta

from leeway.clock import Clock
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.table import RecordChanged

RETRY_TIMEOUT = timedelta(seconds=5)
"""How long a step repeats a call to an API server or an AWS service that is unavailable. After that
the next step runs: an API server that is down must not delay the replacement."""

RETRY_EVERY = 0.5
LONGEST_RETRY = 5.0
"""Seconds between two tries: the first pause and the longest."""

CONFLICT_TRIES = 6
"""How often a read and a conditional write are repeated while other writers change the item."""

API_ERRORS = (ClusterUnavailable, ClusterRefused, CloudUnavailable, CloudRefused)
"""The errors of AWS and of the API server. A step handles a refusal like an outage: the missing
right may be granted before the deadline, and the other steps do not depend on this one."""


def retry_while_unavailable[T](clock: Clock, work: Callable[[], T]) -> T:
    """Call `work` again while AWS or the API server is unavailable, for RETRY_TIMEOUT at most.

    Raises:
        ClusterUnavailable, CloudUnavailable: the last error, after the timeout.
    """
    until = clock.now() + RETRY_TIMEOUT
    while True:
        try:
            return work()
        except (ClusterUnavailable, CloudUnavailable):
            if clock.now() >= until:
                raise
            clock.sleep(RETRY_EVERY)


def retry_conflicts[T](
    what: str,
    work: Callable[[], T],
    tries: int = CONFLICT_TRIES,
    error: Callable[[str], Exception] = CloudUnavailable,
) -> T:
    """Call `work`, which reads an item, decides and writes it, again after each conflict.

    Raises:
        error: the write conflicted in each of the `tries`.
    """
    for _ in range(tries):
        try:
            return work()
        except RecordChanged:
            continue
    raise error(f"{what} was changed by other writers {tries} times in a row")
