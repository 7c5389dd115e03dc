"""Logs manifests that have errors."""

from dataclasses import dataclass

from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class ManifestTelemetry(Telemetry):
    """Logs manifests that have errors."""

    def misconfigured(self, cluster: str, manifest: str, problem: str) -> None:
        """Log that something users wrote could not be read, or not all of it. What lasts is counted
        once a minute, with the cluster's headroom."""
        self.logger.error(problem, extra={"cluster": cluster, "manifest": manifest})
