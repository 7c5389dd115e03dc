"""Cron expressions of five fields: strict parsing, and the next times in naive local time.

The grammar is that of KEDA's cron trigger (the standard parser of robfig/cron): lists, ranges,
steps, names of months and days, `?` for `*`; Sunday is 0. If both day fields are restricted, a day
that matches one of them is enough. A star with a step above one restricts its field; a list that
contains a star does not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from cronsim import CronSim, CronSimError


class BadCron(ValueError):
    """The text is not a cron expression; the message names the field and the error."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def value(self, text: str) -> int:
        if text.lower() in self.names:
            return self.low + self.names.index(text.lower())
        if not re.fullmatch(r"[0-9]{1,4}", text):
            raise BadCron(f"{self.name} '{text}': expected {self._expected()}")
        number = int(text)
        if not self.low <= number <= self.high:
            hint = "; Sunday is 0" if self.name == "day of week" and number == 7 else ""
            raise BadCron(f"{self.name} {number}: expected {self._expected()}{hint}")
        return number

    def _expected(self) -> str:
        named = f", {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.low} to {self.high}{named}"


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression. `fields` is its normal form: for each field a `*` or a list of numbers."""

    expression: str
    fields: str

    def times(self, after: datetime) -> Iterator[datetime]:
        """Yield the times strictly after a naive local time, in order."""
        return CronSim(self.fields, after)

    def next(self, after: datetime) -> datetime:
        """Return the next time strictly after a naive local time."""
        return next(self.times(after))


def parse_cron(expression: str) -> Cron:
    """Parse a cron expression.

    Raises:
        BadCron: it does not have five fields, a field is out of range, or no date matches.
    """
    fields = expression.split()
    if len(fields) == 1 and expression.lstrip().startswith("@"):
        raise BadCron(f"'{expression}': expected five fields rather than a descriptor")
    if len(fields) != len(_FIELDS):
        raise BadCron(
            f"'{expression}' has {len(fields)} field{'' if len(fields) == 1 else 's'}: expected "
            "five (minute, hour, day of month, month, day of week)"
        )
    read = [_read_field(text, field) for text, field in zip(fields, _FIELDS, strict=True)]
    cron = Cron(expression, " ".join(read))
    try:
        cron.next(datetime(2000, 1, 1))  # noqa: DTZ001 (local time)
    except (CronSimError, StopIteration) as error:
        raise BadCron(f"'{expression}': expected a day that exists") from error
    return cron


_STARS = frozenset({"*", "?", "*/1", "?/1"})


def _read_field(text: str, field: _Field) -> str:
    """Return the field as a star or as a list of numbers."""
    values: set[int] = set()
    stars = False
    for term in text.split(","):
        values.update(_read_term(term, field))
        stars = stars or term in _STARS
    if stars:
        return "*"
    return ",".join(str(value) for value in sorted(values))


def _read_term(term: str, field: _Field) -> range:
    span, slash, step = term.partition("/")
    low, dash, high = span.partition("-")
    if span in {"*", "?"}:
        first, last = field.low, field.high
    else:
        first = field.value(low)
        last = field.value(high) if dash else first
        if slash and not dash:
            last = field.high
    if last < first:
        raise BadCron(f"{field.name} '{span}': expected a range whose end is not before its start")
    if slash and not re.fullmatch(r"[1-9][0-9]{0,3}", step):
        raise BadCron(f"{field.name} '{term}': expected a step of 1 or more")
    return range(first, last + 1, int(step) if slash else 1)
