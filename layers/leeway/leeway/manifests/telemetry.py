"""Logs manifests that have errors."""

from dataclasses import dataclass

from leeway.reasons import Reason
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class ManifestTelemetry(Telemetry):
    """Logs manifests that have errors."""

    def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
        """Log that a manifest could not be read, or only in part. `keep_headroom` counts the
        invalid manifests of a cluster once a minute."""
        about = {"code": reason.code, "cluster": cluster, "manifest": manifest}
        self.logger.error(reason.message, extra=about)
