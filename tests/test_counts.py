"""Numbers in sentences have the right noun: `1 node`, `2 nodes`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from leeway.reasons import ReasonCode, counted
from leeway_cli.reason_codes import declared_codes

ROOT = Path(__file__).parents[1]
NOUNS = """
    node pod instance vCPU group finding fault problem round replica volume minute hour day step
    cluster manifest decision record pool workload event byte character zone message refusal
    eviction object error vote template interruption replacement type offering fleet tag
"""
_PLURAL = re.compile(rf"^ (?:\w+ ){{0,2}}?(?:{'|'.join(NOUNS.split())})s\b")

_PART_OF_A_NUMBER = re.compile(r"(?:/|\b(?:of|of the|of its|of the group's|all) )$")
"""`1 of 1 nodes` and `0/1 pods` keep the plural."""

_VERBS_AND_NAMES = re.compile(
    r"^ (?:(?:has|have|had|abandons|launches|runs|drains|sends|reads|binds|uses|stay|is|are|was|for"
    r"|of|in|that|and) )"
)
_BOUNDS = {"most", "max_length"}
_NAMES = _BOUNDS | {"kind", "name", "what", "type", "title", "call.action"}
"""Placeholders that hold a name, such as `{kind} events`, or a bound that is never 1."""


def plurals(path: Path) -> Iterator[str]:
    """Yield the places where a file puts a number before a plural."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            before = ""
            for value, after in zip(node.values, [*node.values[1:], None], strict=True):
                if isinstance(value, ast.Constant):
                    before = str(value.value)
                elif isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                    yield from _found(path, ast.unparse(value.value), before, str(after.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for one in re.finditer(r"([^{}]*)\{(\w+)[^{}]*\}(?=([^{}]*))", node.value):
                if "|" not in one[0] and not re.search(r":[A-Za-z]{2}", one[0]):
                    yield from _found(path, one[2], one[1], one[3])


def _found(path: Path, number: str, before: str, after: str) -> Iterator[str]:
    is_constant = number.lstrip("_").isupper()
    if is_constant or number in _NAMES or number.startswith("counted("):
        return
    if _PART_OF_A_NUMBER.search(before) or _VERBS_AND_NAMES.match(after):
        return
    if _PLURAL.match(after):
        yield f"{path.relative_to(ROOT)}: {before[-20:]}{{{number}}}{after[:40]}"


SOURCES = sorted(
    path
    for top in ("layers/leeway/leeway", "cli", "functions")
    for path in (ROOT / top).rglob("*.py")
)


def test_no_sentence_has_a_number_with_a_fixed_plural() -> None:
    """Use `counted`, or `{pods:pod}` in the sentence of a reason code."""
    assert [found for path in SOURCES for found in plurals(path)] == []


@pytest.mark.parametrize(
    ("number", "nouns", "expected"),
    [
        (1, ("node",), "1 node"),
        (0, ("node",), "0 nodes"),
        (2, ("pod gets", "pods get"), "2 pods get"),
        (1.0, ("minute",), "1 minute"),
        (1.5, ("minute",), "1.5 minutes"),
        (2_000_000, ("pod",), "2000000 pods"),
    ],
)
def test_a_number_gets_its_noun(number: float, nouns: tuple[str, ...], expected: str) -> None:
    assert counted(number, *nouns) == expected


def test_a_reason_counts_in_its_sentence() -> None:
    code = ReasonCode(
        "NodesWait", "{nodes:node waits|nodes wait} for {minutes:minute}, at {cost:.2f}."
    )
    assert code(nodes=1, minutes=1.0, cost=1.0).message == "1 node waits for 1 minute, at 1.00."
    assert code(nodes=3, minutes=2.5, cost=2.0).message == "3 nodes wait for 2.5 minutes, at 2.00."
    assert code.plain_sentence == "{nodes} nodes wait for {minutes} minutes, at {cost:.2f}."


def test_the_page_of_codes_shows_plain_placeholders() -> None:
    assert not [one.name for one in declared_codes() if "|" in one.sentence]
