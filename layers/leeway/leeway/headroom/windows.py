"""Windows of time: cron expressions, the windows between two of them, and the size that is due.

The grammar is that of KEDA's cron trigger (the standard parser of robfig/cron): five fields with
lists, ranges, steps, names of months and days, `?` for `*`; Sunday is 0. If both day fields are
restricted, a day that matches one of them is enough. A star with a step above one restricts its
field; a list that contains a star does not.

A window is open if its next end is not later than its next start. A window with several starts
before an end therefore opens at the last of them. The rule is KEDA's. It uses local wall-clock
time, so a change to or from daylight saving time does not swap the start and the end of a window.
"""

import heapq
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import compress, groupby, islice, pairwise, repeat, takewhile
from operator import itemgetter
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from leeway.headroom.reasons import SIZE_CHOSEN
from leeway.reasons import Reason, counted


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
            f"'{expression}' has {counted(len(fields), 'field')}: expected "
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


_HOUR = timedelta(hours=1)

_LOOKS_AHEAD = (8, 62, 366 * 9)
"""Days. A window mostly opens within a week; a leap day may be eight years ahead."""

_LOOKED_AT = 400
"""Starts and ends of a window that are compared: more than a year of one that opens daily."""

_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class _Days:
    """The days on which a cron expression fires, and the minutes of each such day, in order. It is
    quicker than `Cron.times`, because every read of a manifest looks for warnings."""

    def __init__(self, cron: Cron) -> None:
        fields = zip(cron.fields.split(), _FIELDS, strict=True)
        minute, hour, day, month, weekday = (
            None if text == "*" else frozenset(map(int, text.split(","))) for text, _ in fields
        )
        hours = range(24) if hour is None else sorted(hour)
        self.minutes = [
            60 * one + other
            for one in hours
            for other in (range(60) if minute is None else sorted(minute))
        ]
        self._day, self._month, self._weekday = day, month, weekday

    def has(self, month: int, day: int, weekday: int) -> bool:
        """Whether it fires on such a day; Sunday is 0."""
        if self._month is not None and month not in self._month:
            return False
        if self._day is None or self._weekday is None:
            return (self._day is None or day in self._day) and (
                self._weekday is None or weekday in self._weekday
            )
        return day in self._day or weekday in self._weekday

    def firings(self) -> Iterator[int]:
        """Yield the minutes since the begin of 2024 at which it fires, for four years."""
        for count in range(4 * 366):
            on = _FIRST_DAY + timedelta(days=count)
            if self.has(on.month, on.day, on.isoweekday() % 7):
                for minute in self.minutes:
                    yield count * 1440 + minute


_FIRST_DAY = date(2024, 1, 1)


@dataclass(frozen=True, slots=True)
class Window:
    """A recurring window with `replicas`. `start` is inside the window, `end` is not."""

    timezone: ZoneInfo
    start: Cron
    end: Cron
    replicas: int

    def is_open(self, at: datetime) -> bool:
        """Whether the window is open at an aware instant."""
        local = self._wall_clock(at)
        return self.end.next(local) <= self.start.next(local)

    def next_opening(self, after: datetime) -> datetime | None:
        """Return the first instant after an aware one, at which it is closed, at which it is open
        (UTC). None if that is more than nine years ahead."""
        begin = after.astimezone(UTC)
        for days in _LOOKS_AHEAD:
            end = begin + timedelta(days=days)
            opens = next((at for at in self.moments(begin, end) if self.is_open(at)), None)
            if opens is not None:
                return opens
            begin = end - timedelta(microseconds=1)
        return None

    def never_closes(self) -> bool:
        """Whether the window opens again at each of its ends: then it is open at all times."""
        starts, ends = _Days(self.start), _Days(self.end)
        return set(starts.minutes) <= set(ends.minutes) and all(
            ends.has(month, day, weekday)
            for month, days in enumerate(_LONGEST_MONTHS, start=1)
            for day in range(1, days + 1)
            for weekday in range(7)
            if starts.has(month, day, weekday)
        )

    def trap(self) -> str | None:
        """Say what the window does that its author hardly means: it never closes, or several of its
        starts or ends follow each other. None if it does none of that.

        It reads four years from a leap year on, and of these the first `_LOOKED_AT` starts and
        ends.
        """
        if self.never_closes():
            return "the window never closes: each of its starts is one of its ends, too"
        start, end = self.start.expression, self.end.expression
        starts = [*islice(_Days(self.start).firings(), _LOOKED_AT)]
        ends = [*islice(_Days(self.end).firings(), _LOOKED_AT)]
        for this, later in pairwise(starts):
            following = bisect_right(ends, this)
            if following < len(ends) and ends[following] > later:
                return (
                    f"expected one start for each end: '{start}' fires again before '{end}', and "
                    "only the last time before an end opens the window"
                )
        for this, later in pairwise(ends):
            following = bisect_left(starts, this)
            if following < len(starts) and starts[following] >= later:
                return (
                    f"expected one end for each start: '{end}' fires again before '{start}', and "
                    "the window stays open until the last time before a start"
                )
        return None

    def moments(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the instants in (after, until), in UTC and in order, at which the window may open
        or close: starts, ends, and changes of the zone's UTC offset."""
        for begin, end in self._constant_offsets(after.astimezone(UTC), until.astimezone(UTC)):
            if begin > after:
                yield begin
            local = self._wall_clock(begin)
            offset = local - begin.replace(tzinfo=None)
            last = end.replace(tzinfo=None) + offset
            for time in heapq.merge(
                _between(self.start, local, last), _between(self.end, local, last)
            ):
                yield (time - offset).replace(tzinfo=UTC)

    def _wall_clock(self, at: datetime) -> datetime:
        return at.astimezone(self.timezone).replace(tzinfo=None)

    def _constant_offsets(
        self, begin: datetime, end: datetime
    ) -> Iterator[tuple[datetime, datetime]]:
        """Split a span of UTC time at the changes of the zone's UTC offset."""
        while begin < end:
            change = self._next_change(begin, end)
            yield begin, change
            begin = change

    def _next_change(self, begin: datetime, end: datetime) -> datetime:
        offset = self._offset(begin)
        low = begin
        while low < end and self._offset(low + _HOUR) == offset:
            low += _HOUR
        high = low + _HOUR
        while high - low > timedelta(seconds=1):
            middle = low + (high - low) // 2
            low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
        return min(high.replace(microsecond=0), end)

    def _offset(self, at: datetime) -> timedelta | None:
        return at.astimezone(self.timezone).utcoffset()


def _between(cron: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    return takewhile(lambda at: at < until, cron.times(after))


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cron windows and the bounds of the size.

    `idle` is the size while no window is open; None means `minimum`.
    """

    windows: tuple[Window, ...]
    minimum: int = 0
    maximum: int = 100
    idle: int | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """A number of replicas, and why."""

    replicas: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """`size` applies from `at` on (aware, UTC)."""

    at: datetime
    size: Size


def size_at(schedule: Schedule, at: datetime) -> Size:
    """Return the size at an aware instant: the largest of the open windows, within the bounds."""
    return _size(schedule, [window for window in schedule.windows if window.is_open(at)])


def _size(schedule: Schedule, open_now: Sequence[Window]) -> Size:
    if not open_now:
        if schedule.idle is not None:
            return Size(schedule.idle, SIZE_CHOSEN("No window is open: the idle size applies"))
        return Size(schedule.minimum, SIZE_CHOSEN("No window is open: the minimum applies"))
    largest = max(open_now, key=lambda window: window.replicas)
    start, end, replicas = largest.start.expression, largest.end.expression, largest.replicas
    bounded = max(min(replicas, schedule.maximum), schedule.minimum)
    bound = "minimum" if bounded > replicas else "maximum"
    limit = "" if bounded == replicas else f"; the {bound} replaces its size of {replicas}"
    return Size(bounded, SIZE_CHOSEN(f"The window from '{start}' to '{end}' is open{limit}"))


def change_points(schedule: Schedule, start: datetime, end: datetime) -> list[ChangePoint]:
    """List the sizes over [start, end): the first at `start`, then each that differs from the one
    before."""
    # Only its own moments open or close a window, so each moment asks only one of them.
    windows = schedule.windows
    is_open = [window.is_open(start) for window in windows]
    points = [ChangePoint(start.astimezone(UTC), _size(schedule, [*compress(windows, is_open)]))]
    moments = (zip(one.moments(start, end), repeat(number)) for number, one in enumerate(windows))
    for at, same in groupby(heapq.merge(*moments), key=itemgetter(0)):
        for number in {number for _, number in same}:
            is_open[number] = windows[number].is_open(at)
        size = _size(schedule, [*compress(windows, is_open)])
        if size.replicas != points[-1].size.replicas:
            points.append(ChangePoint(at, size))
    return points


def largest_size_within(schedule: Schedule, at: datetime, lead: timedelta) -> ChangePoint:
    """Return the largest size from `at` until `lead` later, with the first instant that needs it.

    Nodes that take `lead` to join must be requested now.
    """
    # The window that starts exactly at the end of the lead counts too.
    until = at + lead + timedelta(microseconds=1)
    return max(change_points(schedule, at, until), key=lambda point: point.size.replicas)
