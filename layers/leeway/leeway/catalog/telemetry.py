"""Logs and measures catalog refreshes."""

from dataclasses import dataclass

from aws_lambda_powertools.metrics import MetricUnit

from leeway.catalog.refresh import Surveyed
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class CatalogTelemetry(Telemetry):
    """Logs and measures catalog refreshes."""

    def surveyed(self, outcome: Surveyed) -> None:
        """Log and measure what became of a region's survey, and what of it is not of today."""
        about = {"region": outcome.region}
        self.logger.info(f"surveyed {outcome.region}", extra=outcome.to_dict())
        for kept in outcome.kept:
            since = kept.read_at.isoformat() if kept.read_at else "never"
            said = f"{kept.part} could not be read and are those of {since}: {kept.problem}"
            self.logger.warning(said, extra={**about, "part": kept.part})
        sizes = {part.part.value: part.size for part in outcome.parts}
        self.metrics.add_metric("InstanceTypes", MetricUnit.Count, sizes["types"])
        self.metrics.add_metric("CatalogProblems", MetricUnit.Count, len(outcome.kept))
        self.metrics.add_metric("CatalogSize", MetricUnit.Bytes, outcome.size)
        self.metrics.flush_metrics()
