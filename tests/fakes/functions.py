"""The functions that other functions start."""

from dataclasses import dataclass, field

from leeway.ports.aws import CloudUnavailable


@dataclass
class Starts:
    """The RetireNode and AdmitNode Protocols: fails `failures` times, then records the starts."""

    failures: int = 0
    started: list[tuple[str, str, int]] = field(default_factory=list)

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        if self.failures:
            self.failures -= 1
            raise CloudUnavailable("Lambda does not answer")
        self.started.append((instance, cluster, attempt))


@dataclass
class CleanUps:
    """The CleanUp Protocol."""

    started: list[tuple[str, str]] = field(default_factory=list)

    def start(self, instance: str, cluster: str) -> None:
        self.started.append((instance, cluster))
