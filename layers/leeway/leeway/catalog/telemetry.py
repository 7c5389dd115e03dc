"""Logs and measures catalog refreshes."""

from dataclasses import dataclass

from aws_lambda_powertools.metrics import MetricUnit

from leeway.catalog.refresh import CatalogRefresh
from leeway.telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class CatalogTelemetry(Telemetry):
    """Logs and measures catalog refreshes."""

    def catalog_refreshed(self, refresh: CatalogRefresh) -> None:
        """Log and measure a refresh, with a line for each part that could not be read."""
        self.logger.info(refresh.reason.message, extra=refresh.to_dict())
        for part in refresh.parts:
            if part.problem is None:
                continue
            since = part.read_at.isoformat() if part.read_at else "never"
            self.logger.warning(
                part.problem.message,
                extra={
                    "code": part.problem.code,
                    "region": refresh.region,
                    "part": part.part,
                    "read_at": since,
                },
            )
        self.metrics.add_metric("CatalogProblems", MetricUnit.Count, len(refresh.stale))
        self.metrics.flush_metrics()
