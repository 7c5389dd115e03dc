"""Requirements on node labels: sets of values, complements of sets, integer bounds."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from leeway.selection.labels import WELL_KNOWN, normalised, short

# Numbers as labels hold them; a leading zero or a sign makes a value a mere text.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")

# Source: Kubernetes "Labels and Selectors", "Syntax and character set".
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"(?=.{1,253}/)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/")

_SIMILARITY = 0.8
"""Minimum similarity of two labels for a suggestion."""


class BadRequirement(ValueError):
    """An invalid requirement, which Kubernetes rejects too."""


class Operator(StrEnum):
    """The operator of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"
    GTE = "Gte"
    LTE = "Lte"


_SETS = (Operator.IN, Operator.NOT_IN)
_BOUNDS = (Operator.GT, Operator.LT, Operator.GTE, Operator.LTE)


def integer(value: str) -> int | None:
    """Return the integer value of a label value, None if it is not an integer."""
    return int(value) if _INTEGER.fullmatch(value) else None


def check_key(key: str) -> None:
    """Validate a label name.

    Raises:
        BadRequirement: the name is invalid.
    """
    prefix = _PREFIX.match(key)
    if not _NAME.fullmatch(key[prefix.end() :] if prefix else key):
        raise BadRequirement(f'expected a label\'s name, like kubernetes.io/arch, got "{key[:80]}"')


def check_value(value: str) -> None:
    """Validate a label value.

    Raises:
        BadRequirement: the value is invalid.
    """
    if value and not _NAME.fullmatch(value):
        raise BadRequirement(
            f'expected a label\'s value (up to 63 letters, digits, "-", "_" or "."), '
            f'got "{value[:80]}"'
        )


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on one label.

    It matches the values in `values`, or with `complement` all other values; with bounds, only
    integers within them. `absent`: it also matches a node without the label. A requirement with
    bounds does not match such a node; bounds that exclude every integer match no node.
    """

    key: str
    values: frozenset[str] = frozenset()
    complement: bool = False
    at_least: int | None = None
    at_most: int | None = None
    absent: bool = False
    min_values: int | None = None

    @classmethod
    def of(
        cls,
        key: str,
        operator: Operator | str,
        values: Iterable[str] = (),
        min_values: int | None = None,
    ) -> "Requirement":
        """Make a requirement from the fields of a manifest.

        Raises:
            BadRequirement: the name, the operator or the values are invalid in Kubernetes.
        """
        given = tuple(values)
        check_key(key)
        for value in given:
            check_value(value)
        name = normalised(key)
        match _operator(operator, given):
            case Operator.IN:
                return cls(name, frozenset(given), min_values=min_values)
            case Operator.NOT_IN:
                return cls(name, frozenset(given), True, absent=True, min_values=min_values)
            case Operator.EXISTS:
                return cls(name, complement=True, min_values=min_values)
            case Operator.DOES_NOT_EXIST:
                return cls(name, absent=True, min_values=min_values)
            case bound:
                low, high = _bounds(bound, given[0])
                return cls(name, frozenset(), True, low, high, min_values=min_values)

    @property
    def has_values(self) -> bool:
        """Whether any value matches."""
        if not self.complement:
            return any(map(self.has, self.values))
        if self.at_least is None or self.at_most is None:
            return True
        within = self.at_most - self.at_least + 1
        return within > len(self.values) or within > sum(
            1 for value in self.values if (n := integer(value)) is not None and self._within(n)
        )

    @property
    def is_empty(self) -> bool:
        """Whether no node matches."""
        return not self.has_values and not self.absent

    def has(self, value: str) -> bool:
        """Whether a label value matches."""
        if (value in self.values) is self.complement:
            return False
        if self.at_least is None and self.at_most is None:
            return True
        number = integer(value)
        return number is not None and self._within(number)

    def _within(self, number: int) -> bool:
        return (self.at_least is None or number >= self.at_least) and (
            self.at_most is None or number <= self.at_most
        )

    def admits(self, value: str | None) -> bool:
        """Whether a node with this label value matches; None: it has no such label."""
        return self.absent if value is None else self.has(value)

    def intersection(self, other: "Requirement") -> "Requirement":
        """Return the requirement that matches what both match; `min_values` is the larger one."""
        values, complement = _intersected(self, other)
        met = Requirement(
            self.key,
            values,
            complement,
            _largest(self.at_least, other.at_least),
            _smallest(self.at_most, other.at_most),
            self.absent and other.absent,
            _largest(self.min_values, other.min_values),
        )
        if complement:
            return met
        kept = frozenset(filter(met.has, values))
        return met if kept == values else _with_values(met, kept)

    def within(self, other: "Requirement") -> bool:
        """Whether every node that matches it also matches the other requirement."""
        met = self.intersection(other)
        return (met.values, met.complement, met.at_least, met.at_most, met.absent) == (
            self.values,
            self.complement,
            self.at_least,
            self.at_most,
            self.absent,
        )

    @property
    def operator(self) -> Operator:
        """The operator that describes it best; bounds without values are Gte or Lte."""
        if not self.has_values:
            return Operator.DOES_NOT_EXIST
        if not self.complement:
            return Operator.IN
        if self.at_least is not None:
            return Operator.GTE
        if self.at_most is not None:
            return Operator.LTE
        return Operator.NOT_IN if self.values else Operator.EXISTS

    def __str__(self) -> str:
        name = short(self.key)
        if not self.has_values and self.absent:
            return f"{name} DoesNotExist"
        if self.is_empty and not self.complement:
            return f"{name} without any value left"
        if not self.complement:
            return f"{name} In [{', '.join(sorted(self.values))}]"
        parts = []
        if self.at_least is not None:
            parts.append(f"Gt {self.at_least - 1}")
        if self.at_most is not None:
            parts.append(f"Lt {self.at_most + 1}")
        if self.values:
            parts.append(f"NotIn [{', '.join(sorted(self.values))}]")
        left = ", which leaves no value" if self.is_empty else ""
        return f"{name} {' and '.join(parts or ['Exists'])}{left}"


def _operator(operator: Operator | str, values: Collection[str]) -> Operator:
    try:
        known = Operator(operator)
    except ValueError:
        expected = ", ".join(Operator)
        raise BadRequirement(f'expected one of {expected}, got "{operator}"') from None
    if known in _SETS and not values:
        raise BadRequirement(f"expected at least one value for {known}")
    if known in _BOUNDS and (len(values) != 1 or integer(next(iter(values))) is None):
        raise BadRequirement(f"expected one integer for {known}, got [{', '.join(values)}]")
    if known not in _SETS + _BOUNDS and values:
        raise BadRequirement(f"expected no values for {known}, got [{', '.join(values)}]")
    return known


def _bounds(operator: Operator, value: str) -> tuple[int | None, int | None]:
    match operator:
        case Operator.GT:
            return int(value) + 1, None
        case Operator.LT:
            return None, int(value) - 1
        case Operator.GTE:
            return int(value), None
        case _:
            return None, int(value)


def _intersected(one: Requirement, other: Requirement) -> tuple[frozenset[str], bool]:
    match one.complement, other.complement:
        case True, True:
            return one.values | other.values, True
        case True, False:
            return other.values - one.values, False
        case False, True:
            return one.values - other.values, False
        case _:
            return one.values & other.values, False


def _with_values(requirement: Requirement, values: frozenset[str]) -> Requirement:
    r = requirement
    return Requirement(r.key, values, r.complement, r.at_least, r.at_most, r.absent, r.min_values)


def _largest(one: int | None, other: int | None) -> int | None:
    return max((n for n in (one, other) if n is not None), default=None)


def _smallest(one: int | None, other: int | None) -> int | None:
    return min((n for n in (one, other) if n is not None), default=None)


def _suggestion(key: str, known: Iterable[str]) -> str:
    """Suggest a known label with the same name without its prefix, or with a similar name."""
    name = key.rpartition("/")[2]
    meant = [each for each in sorted(known) if each.rpartition("/")[2] == name]
    meant += get_close_matches(key, sorted(known), n=1, cutoff=_SIMILARITY)
    return f"; did you mean {meant[0]}?" if meant else ""


class Requirements(Mapping[str, Requirement]):
    """Requirements by label, one per label; immutable and hashable."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Requirement] = {}
        for requirement in requirements:
            known = by_key.get(requirement.key)
            by_key[requirement.key] = known.intersection(requirement) if known else requirement
        self._by_key = by_key
        self._hash: int | None = None

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> "Requirements":
        """Require exactly these labels, as a nodeSelector does."""
        return cls(
            Requirement(normalised(key), frozenset({value})) for key, value in labels.items()
        )

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._by_key.values()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirements) and self._by_key == other._by_key

    def __str__(self) -> str:
        return ", ".join(str(self._by_key[key]) for key in sorted(self._by_key))

    __repr__ = __str__

    def of_key(self, key: str) -> Requirement:
        """Return the requirement on a label; without one, a requirement that matches everything."""
        anything = Requirement(key, complement=True, absent=True)
        return self._by_key.get(key, anything)

    def intersection(self, other: "Requirements") -> "Requirements":
        """Return the requirements that match what both match."""
        return Requirements([*self._by_key.values(), *other._by_key.values()])

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels matches every requirement."""
        return all(r.admits(labels.get(key)) for key, r in self._by_key.items())

    def within(self, others: "Requirements") -> bool:
        """Whether every node that matches these also matches the others."""
        return all(self.of_key(key).within(other) for key, other in others.items())

    def agrees(self, others: "Requirements") -> bool:
        """Whether a node can match both."""
        return not any(requirement.is_empty for requirement in self.intersection(others).values())

    def compatible(
        self, requested: "Requirements", allow_undefined: Collection[str] = WELL_KNOWN
    ) -> bool:
        """Whether a node with these requirements can match those of a pod."""
        return self.conflict(requested, allow_undefined) is None

    def conflict(
        self, requested: "Requirements", allow_undefined: Collection[str] = WELL_KNOWN
    ) -> str | None:
        """Return why no node with these requirements matches those of a pod; None if one can. A
        label in `allow_undefined` comes with the instance type and needs no requirement here."""
        for key, requirement in requested._by_key.items():
            offered = self._by_key.get(key)
            if requirement.is_empty:
                return f"{requirement}"
            if offered is None:
                if key not in allow_undefined and not requirement.absent:
                    suggestion = _suggestion(key, {*allow_undefined, *self._by_key})
                    return f"{requirement}: no node of the pool has the label{suggestion}"
            elif offered.intersection(requirement).is_empty:
                return f"{requirement} conflicts with {offered} of the pool"
        return None
