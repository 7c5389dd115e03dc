"""Logs manifests that have errors."""

from dataclasses import dataclass

from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class ManifestTelemetry(Telemetry):
    """Logs manifests that have errors."""

    def misconfigured(self, cluster: str, manifest: str, problem: str) -> None:
        """Log that a manifest could not be read, or only in part. `keep_headroom` counts the
        invalid manifests of a cluster once a minute."""
        self.logger.error(problem, extra={"cluster": cluster, "manifest": manifest})
