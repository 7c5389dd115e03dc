"""Use case: refresh the catalog of a region; a part that cannot be read keeps its last state."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from aws_lambda_powertools.metrics import MetricUnit

from leeway.catalog.stored import SURVEY
from leeway.clock import Clock
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.reasons import Reason, ReasonCode
from leeway.selection.offers.machines import Machine
from leeway.selection.offers.survey import Part, Survey, UnknownForm, compressed, unpacked
from leeway.table import Table
from leeway.telemetry import Telemetry

_RUNBOOK = "catalognotrefreshedalarm"

CATALOG_REFRESHED = ReasonCode(
    "CatalogRefreshed", "The catalog of {region} was read completely and stored."
)

CATALOG_PARTLY_REFRESHED = ReasonCode(
    "CatalogPartlyRefreshed",
    "The catalog of {region} was stored, but these parts are older: {parts}.",
    _RUNBOOK,
)

CATALOG_PART_NOT_READ = ReasonCode(
    "CatalogPartNotRead", "AWS did not return the {part} of {region}: {error}.", _RUNBOOK
)

CATALOG_UNAVAILABLE = ReasonCode(
    "CatalogUnavailable",
    "The catalog of {region} cannot be refreshed: AWS returned no part of it, or no instance types "
    "or no offerings. These parts were not read: {problems}.",
    _RUNBOOK,
)


class Market(Protocol):
    """The instance types, offerings and prices of one region."""

    def types(self) -> tuple[Machine, ...]:
        """Read all instance types."""
        ...

    def offered(self) -> dict[str, frozenset[str]]:
        """Read the names of the types that each zone offers."""
        ...

    def zone_ids(self) -> dict[str, str]:
        """Read the zone ids, which are the same in every account, by this account's zone names."""
        ...

    def spot(self) -> dict[str, dict[str, float]]:
        """Read the current Linux Spot prices in USD per hour, by zone and type."""
        ...

    def on_demand(self, region: str) -> dict[str, float]:
        """Read the on-demand prices for Linux with shared tenancy in USD per hour, by type."""
        ...


class CatalogUnavailable(Exception):
    """No part of a catalog could be read, or it has no instance types or no offerings."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PartRefresh:
    """The refresh of one part: its number of entries now, and why it was not read, if so.
    `read_at` is when the part was last read, None if it never was."""

    part: Part
    size: int
    problem: Reason | None = None
    read_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CatalogRefresh:
    """The refresh of a region's catalog; `size` is that of the stored form, in bytes."""

    region: str
    parts: tuple[PartRefresh, ...]
    size: int

    @property
    def stale(self) -> tuple[PartRefresh, ...]:
        """The parts that could not be read and keep their last state."""
        return tuple(part for part in self.parts if part.problem is not None)

    @property
    def reason(self) -> Reason:
        """Whether the refresh is complete."""
        if not self.stale:
            return CATALOG_REFRESHED(region=self.region)
        names = ", ".join(part.part.value for part in self.stale)
        return CATALOG_PARTLY_REFRESHED(region=self.region, parts=names)

    def to_dict(self) -> dict[str, Any]:
        """Render for JSON."""
        return {
            "region": self.region,
            "code": self.reason.code,
            "bytes": self.size,
            "parts": {part.part.value: part.size for part in self.parts},
            "stale": {part.part.value: asdict(part.problem) for part in self.parts if part.problem},
        }


def read_catalog(
    market: Market, region: str, now: datetime, former: Survey
) -> tuple[Survey, tuple[PartRefresh, ...]]:
    """Read all parts of a region's catalog; a part that cannot be read stays as in `former`.

    Raises:
        CatalogUnavailable: no part was read, or there are no types or no offerings.
    """
    readers: dict[Part, Callable[[], Any]] = {
        Part.TYPES: partial(market.types),
        Part.OFFERINGS: partial(market.offered),
        Part.ON_DEMAND_PRICES: partial(market.on_demand, region),
        Part.SPOT_PRICES: partial(market.spot),
        Part.ZONES: partial(market.zone_ids),
    }
    survey, errors = former, dict[Part, str]()
    for part, read in readers.items():
        try:
            found = read()
        except (CloudRefused, CloudUnavailable) as error:
            errors[part] = str(error)
            continue
        if found:
            survey = survey.renewed(part, found, now)
        else:  # every region has all parts, so an empty answer is an error
            errors[part] = "the answer is empty"
    survey = survey.of_what_is_offered()
    if len(errors) == len(readers) or not survey.complete:
        raise CatalogUnavailable(CATALOG_UNAVAILABLE(region=region, problems=_grouped(errors)))
    return survey, tuple(
        PartRefresh(
            part,
            survey.size(part),
            CATALOG_PART_NOT_READ(part=part, region=region, error=errors[part])
            if part in errors
            else None,
            survey.read_at.get(part),
        )
        for part in readers
    )


def _grouped(errors: Mapping[Part, str]) -> str:
    """Name the parts with their errors; an error of several parts appears once."""
    parts: dict[str, list[str]] = {}
    for part, error in errors.items():
        parts.setdefault(error, []).append(part.value)
    return "; ".join(f"{', '.join(names)} ({error})" for error, names in parts.items())


def refresh_catalog(
    market: Market,
    table: Table,
    report: Callable[[CatalogRefresh], None],
    clock: Clock,
    region: str,
) -> CatalogRefresh:
    """Read the catalog of a region and store it.

    Raises:
        CatalogUnavailable: no part was read, or there are no types or no offerings.
        CloudUnavailable: the table cannot be read or written.
    """
    former = _former(table.get(SURVEY, region=region), region)
    survey, parts = read_catalog(market, region, clock.now(), former)
    packed = compressed(survey)
    table.put(SURVEY, packed, region=region)
    refresh = CatalogRefresh(region, parts, len(packed))
    report(refresh)
    return refresh


def _former(packed: bytes | None, region: str) -> Survey:
    try:
        return unpacked(packed) if packed else Survey(region)
    except (UnknownForm, ValueError, zlib.error):
        return Survey(region)  # unreadable, and replaced by this refresh


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
