"""What is remembered of a buffer or a scaled target from one tick to the next."""

from dataclasses import dataclass, field
from datetime import timedelta

from leeway.headroom.plan import ScaleTarget


@dataclass(frozen=True, slots=True)
class Original:
    """The size that a scaled target had before Leeway scaled it first; `uid` says which object of
    its name that was."""

    uid: str
    replicas: int


@dataclass(frozen=True, slots=True)
class HeadroomStatus:
    """How it stands with one buffer or target. `subject` names it, `source` its manifest.

    `replicas` is the size that it was given last, None where it was left as it is. `problem` says
    what kept it from having its size, empty where nothing did. `target` and `restore` are those of
    a scaled target; `join` is how long a buffer's pods have been seen to wait for a node, `running`
    how many of them were Ready at the last look (None where nobody looked).
    """

    subject: str
    source: str
    replicas: int | None = None
    reason: str = ""
    problem: str = ""
    target: ScaleTarget | None = None
    restore: bool = False
    # Remembered apart from the rest, and no change of it.
    original: Original | None = field(default=None, compare=False)
    join: timedelta | None = None
    running: int | None = None

    @property
    def pending(self) -> int:
        """How many pods of a buffer hold no room yet."""
        if self.replicas is None or self.running is None:
            return 0
        return max(0, self.replicas - self.running)
