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


class WhileUnavailable:
    """Repeats a block while AWS or the API server is unavailable, for RETRY_TIMEOUT at most:

        again = WhileUnavailable(clock)
        while True:
            with again:
                return read()

    The last ClusterUnavailable or CloudUnavailable is raised after the timeout.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = clock.now() + RETRY_TIMEOUT

    def __enter__(self) -> None:
        """Begin a try."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Wait before the next try, if there is one."""
        unavailable = isinstance(error, ClusterUnavailable | CloudUnavailable)
        if not unavailable or self._clock.now() >= self._until:
            return False
        self._clock.sleep(RETRY_EVERY)
        return True


class Conflicts:
    """Repeats a block that reads an item, decides and writes it, after each RecordChanged:

        conflicts = Conflicts("the record of i-1")
        while True:
            with conflicts:
                table.put(RECORD, decide(table.get(RECORD, instance="i-1")))
                return

    `error` is raised if each of the CONFLICT_TRIES conflicts. `first`: no conflict has come yet.
    """

    def __init__(self, what: str, error: Callable[[str], Exception] = CloudUnavailable) -> None:
        self._what = what
        self._error = error
        self._count = 0

    @property
    def first(self) -> bool:
        """Whether this is the first try."""
        return self._count == 0

    def __enter__(self) -> None:
        """Begin a try."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Count a conflict."""
        if not isinstance(error, RecordChanged):
            return False
        self._count += 1
        if self._count < CONFLICT_TRIES:
            return True
        what = f"{self._what} was changed by other writers {CONFLICT_TRIES} times in a row"
        raise self._error(what) from error
