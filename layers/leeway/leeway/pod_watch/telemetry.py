"""Logs and measures pod watches."""

from collections.abc import Sequence
from dataclasses import dataclass

from leeway.reasons import Reason
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class PodWatchTelemetry(Telemetry):
    """Logs and measures pod watches."""

    def watch_started(self, clusters: Sequence[str], reason: Reason) -> None:
        """Log that this run watches, and why."""
        self.logger.info(reason.message, extra={"code": reason.code, "clusters": len(clusters)})

    def watch_ended(self, reason: Reason) -> None:
        """Log why a run that watched has ended."""
        self.logger.info(reason.message, extra={"code": reason.code})

    def watch_problem(self, cluster: str, reason: Reason) -> None:
        """Log why a cluster is not watched, or what failed; `cluster` may be empty."""
        self.logger.error(reason.message, extra={"code": reason.code, "cluster": cluster})

    def watch_restored(self, cluster: str, reason: Reason) -> None:
        """Log that a cluster is watched again."""
        self.logger.info(reason.message, extra={"code": reason.code, "cluster": cluster})

    def woken(self, cluster: str, reason: Reason) -> None:
        """Log why the buyer of a cluster is woken."""
        self.logger.info(reason.message, extra={"code": reason.code, "cluster": cluster})

    def watch_problems(self, problems: int) -> None:
        """Count the watches that do not work, and the clusters whose buyer was not woken."""
        self.count("MinorProblems", problems)
