"""The parameters of a demo run, which its report shows so that it can be repeated."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Run:
    """The parameters of a run, its start and its duration in seconds."""

    seed: int
    nodes: int
    pods: int
    interruptions: int
    began: datetime
    duration: float

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        return (
            f"leeway demo --seed {self.seed} --nodes {self.nodes}"
            f" --interruptions {self.interruptions}"
        )


@dataclass(frozen=True)
class ScaleUpRun:
    """The parameters of a run that scales a Deployment, its start and its duration in seconds."""

    seed: int
    replicas: int
    began: datetime
    duration: float

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        return f"leeway demo --scenario scale-up --seed {self.seed} --replicas {self.replicas}"


@dataclass(frozen=True)
class ScaleDownRun:
    """The parameters of a simulated day, its start and its duration in seconds."""

    seed: int
    began: datetime
    duration: float

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        return f"leeway demo --scenario scale-down --seed {self.seed}"
