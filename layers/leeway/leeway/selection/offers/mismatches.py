"""Explains why no instance type matches: the requirement that excludes them, with a suggestion."""

from collections.abc import Mapping
from difflib import SequenceMatcher

from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN
from leeway.selection.offers.catalog import OF_MARKETS, TypeTable
from leeway.selection.requirements import Requirement, Requirements, integer


def explain(table: TypeTable, requirements: Requirements) -> str:
    """Return the requirements that exclude all types.

    If single requirements exclude all types, these are named; otherwise each requirement with the
    number of types that it excludes, the strictest first.
    """
    known = [r for r in requirements.values() if r.key in WELL_KNOWN and r.key in _known(table)]
    impossible = [r for r in known if not _meeting_only(table, r)]
    if impossible:
        return "; ".join(_impossible(table, r) for r in impossible)
    excluded = sorted(
        ((len(table) - _meeting_only(table, r).bit_count(), str(r)) for r in known), reverse=True
    )
    counts = ", ".join(f"{text} excludes {count}" for count, text in excluded if count)
    return f"none of the {len(table)} instance types meets all requirements: {counts}"


def unmatched(table: TypeTable, requirement: Requirement) -> str:
    """Return the values of a requirement that no type has, each with a suggestion; empty if every
    value is offered."""
    values = table.values(requirement.key)
    if not values:  # a label of the pool's own
        return ""
    missing = [] if requirement.complement else sorted(requirement.values - values.keys())
    return "; ".join(f"no instance type has {v}{_did_you_mean(v, values)}" for v in missing)


def _known(table: TypeTable) -> frozenset[str]:
    return frozenset(key for key in WELL_KNOWN if table.values(key))


def _meeting_only(table: TypeTable, requirement: Requirement) -> int:
    if requirement.key in OF_MARKETS:
        return table.offered(Requirements([requirement]))
    return table.matching_requirement(requirement)


def _impossible(table: TypeTable, requirement: Requirement) -> str:
    values = table.values(requirement.key)
    if requirement.key in OF_MARKETS:
        by_place = requirement.key != CAPACITY_TYPE
        cause = "nothing is offered there" if by_place else "nothing is offered so"
    elif requirement.key == INSTANCE_TYPE:
        cause = f"{table.catalog.region} does not offer it"
        if len(requirement.values) > 1:
            cause = f"{table.catalog.region} offers none of them"
    else:
        cause = "no instance type has it"
    requested = "" if requirement.complement else min(requirement.values, default="")
    if requirement.key == INSTANCE_TYPE:
        # A similar name of another family (d2 for p2) is not a suggestion.
        family = requested.partition(".")[0]
        values = {name: n for name, n in values.items() if name.partition(".")[0] == family}
    return f"{requirement}: {cause}{_did_you_mean(requested, values) or _range(values)}"


def _did_you_mean(requested: str, values: Mapping[str, int]) -> str:
    """Suggest the most similar value; among equally similar values, the one of the most types."""
    if not requested or not values or integer(requested) is not None:
        return ""
    best = max(
        values, key=lambda v: (SequenceMatcher(None, requested, v).ratio(), values[v].bit_count())
    )
    return f"; did you mean {best}?"


def _range(values: Mapping[str, int]) -> str:
    numbers = sorted(n for n in map(integer, values) if n is not None)
    return f"; there is {numbers[0]} to {numbers[-1]}" if numbers else ""
