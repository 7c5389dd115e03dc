"""Use case: a region's survey is kept fresh; a part that can't be read stays as it was."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from leeway.catalog.ports import Market, PriceList, Surveys
from leeway.clock import Clock
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.selection.offers.compressed import UnknownForm, compressed, unpacked
from leeway.selection.offers.survey import Part, Survey


class NothingSurveyed(Exception):
    """No part could be read, or types or offerings have never been: the message says why."""


@dataclass(frozen=True, slots=True)
class PartRead:
    """What became of one part: how much of it there is now, and the problem where it is old."""

    part: Part
    size: int
    problem: str = ""
    read_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What became of a survey; `size` is that of its compressed form, in bytes."""

    region: str
    parts: tuple[PartRead, ...]
    size: int

    @property
    def kept(self) -> tuple[PartRead, ...]:
        """The parts that could not be read, and are as old as they say."""
        return tuple(part for part in self.parts if part.problem)

    def to_dict(self) -> dict[str, Any]:
        """Render for JSON."""
        return {
            "region": self.region,
            "bytes": self.size,
            "parts": {part.part.value: part.size for part in self.parts},
            "kept": {part.part.value: part.problem for part in self.kept},
        }


class Telemetry(Protocol):
    """Whom it is told."""

    def surveyed(self, outcome: Surveyed) -> None:
        """Tell what became of a survey."""
        ...


@dataclass(frozen=True, slots=True)
class Surveyor:
    """Reads regions."""

    market: Market
    price_list: PriceList

    def survey(
        self, region: str, now: datetime, former: Survey
    ) -> tuple[Survey, tuple[PartRead, ...]]:
        """Read all parts of a region's survey; one that can't be read stays as in `former`.

        Raises:
            NothingSurveyed: there is nothing new, or nothing that nodes could be chosen by.
        """
        readers: dict[Part, Callable[[], Any]] = {
            Part.TYPES: partial(self.market.types),
            Part.OFFERINGS: partial(self.market.offered),
            Part.ON_DEMAND_PRICES: partial(self.price_list.on_demand, region),
            Part.SPOT_PRICES: partial(self.market.spot),
            Part.ZONES: partial(self.market.zone_ids),
        }
        survey, problems = former, dict.fromkeys(readers, "")
        for part, read in readers.items():
            try:
                found = read()
            except (CloudRefused, CloudUnavailable) as error:
                problems[part] = str(error)
                continue
            if found:
                survey = survey.renewed(part, found, now)
            else:
                # A region that has none of something is not to be believed.
                problems[part] = "the answer was empty"
        survey = survey.of_what_is_offered()
        if all(problems.values()) or not survey.complete:
            raise NothingSurveyed(f"{region}: {_told(problems)}")
        return survey, tuple(
            PartRead(part, survey.size(part), problem, survey.read_at.get(part))
            for part, problem in problems.items()
        )


def _told(problems: Mapping[Part, str]) -> str:
    """One problem that all parts share is told once."""
    if len(set(problems.values())) == 1:
        return next(iter(problems.values()))
    return "; ".join(f"{part}: {problem}" for part, problem in problems.items() if problem)


@dataclass(frozen=True, slots=True)
class RefreshCatalog:
    """The use case of `refresh_catalog`."""

    surveyor: Surveyor
    surveys: Surveys
    telemetry: Telemetry
    clock: Clock

    def refresh(self, region: str) -> Surveyed:
        """Survey a region anew, and keep the result.

        Raises:
            NothingSurveyed: there is nothing new, or nothing that nodes could be chosen by.
            CloudUnavailable: the table can't be read or written.
        """
        survey, parts = self.surveyor.survey(region, self.clock.now(), self._former(region))
        packed = compressed(survey)
        self.surveys.write(region, packed)
        outcome = Surveyed(region, parts, len(packed))
        self.telemetry.surveyed(outcome)
        return outcome

    def _former(self, region: str) -> Survey:
        packed = self.surveys.packed(region)
        try:
            return unpacked(packed) if packed else Survey(region)
        except (UnknownForm, ValueError, zlib.error):
            return Survey(region)  # another version's: it is written anew
