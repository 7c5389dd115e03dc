"""The stored status of a buffer or a scaled target."""

from dataclasses import dataclass
from datetime import timedelta

from leeway.headroom.plan import ScaleTarget
from leeway.reasons import Reason
from leeway.table import Record


@dataclass(frozen=True, slots=True)
class OriginalScale:
    """The size of a scaled target before Leeway scaled it first. `uid` is the object's: another
    object may later have the same name."""

    subject: str
    uid: str
    replicas: int


@dataclass(frozen=True, slots=True)
class HeadroomStatus:
    """The status of one buffer or target. `subject` names it, `source` its manifest.

    - `replicas`: the last size that Leeway applied, None if it applied none.
    - `problem`: why the desired size was not applied, None if it was.
    - `target`, `restore`: those of a scaled target.
    - `join_time`: how long the buffer's pods waited for a node.
    - `ready`: how many of the buffer's pods are Ready; None if they were not counted.
    """

    subject: str
    source: str
    replicas: int | None = None
    reason: Reason | None = None
    problem: Reason | None = None
    target: ScaleTarget | None = None
    restore: bool = False
    join_time: timedelta | None = None
    ready: int | None = None

    @property
    def pending(self) -> int:
        """The number of the buffer's pods that are not Ready."""
        if self.replicas is None or self.ready is None:
            return 0
        return max(0, self.replicas - self.ready)


STATUS = Record(HeadroomStatus, "HEADROOM#{cluster}", "STATUS#{subject}")

ORIGINAL = Record(OriginalScale, "HEADROOM#{cluster}", "ORIGINAL#{subject}#{uid}")
"""Written once for each object: of two runs at the same time, the second may read the size that the
first has just applied."""
