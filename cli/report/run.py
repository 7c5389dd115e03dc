"""The circumstances of a run that its report names, so that it can be repeated."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Run:
    """Which world and storm it was, when, and how long all of it took (`wall`, seconds)."""

    seed: int
    nodes: int
    pods: int
    interruptions: int
    began: datetime
    wall: float

    @property
    def command(self) -> str:
        """The command line that repeats it."""
        return (
            f"leeway demo --seed {self.seed} --nodes {self.nodes}"
            f" --interruptions {self.interruptions}"
        )
