"""Reason codes: each is declared once, is used, reads as a sentence, and is documented."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from leeway.reasons import ReasonCode
from leeway_cli.reason_codes import ERRORS, declared_codes, page_of

from tests.template.granted import resources

ROOT = Path(__file__).parents[1]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
CODES = declared_codes()
ALARMS = {
    name: one["Properties"]["AlarmDescription"]["Fn::Sub"]
    for name, one in resources().items()
    if one["Type"] == "AWS::CloudWatch::Alarm"
}

DECLARING = re.compile(r'^(\w+) = _?[A-Za-z]*\(\s*(?:name=)?"(\w+)"', re.MULTILINE)


@cache
def sources() -> dict[Path, str]:
    """The text of each file of Leeway's code."""
    tops = [ROOT / top for top in ("layers/leeway/leeway", "cli", "sandbox")]
    return {path: path.read_text(encoding="utf-8") for top in tops for path in top.rglob("*.py")}


@cache
def declared() -> dict[str, list[tuple[Path, str]]]:
    """The constants of each code, with their files."""
    found = defaultdict(list)
    for path, text in sources().items():
        for constant, code in DECLARING.findall(text):
            found[code].append((path, constant))
    return found


def anchors() -> set[str]:
    """The anchors of the runbook's sections, as GitHub makes them."""
    headings = re.findall(r"^#{2,4} +(.+?) *$", RUNBOOK, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_feature_that_reports_declares_codes() -> None:
    parts = {code.part for code in CODES}
    reporting = {"interruption", "retirement", "admission"}
    assert parts >= reporting | {"reconciliation", "headroom", "catalog", "manifests"}
    assert "doctor" in parts


def test_a_code_is_declared_once() -> None:
    names = [code.name for code in CODES]
    assert sorted(names) == sorted(set(names))


def test_a_code_is_camel_case_and_its_sentence_is_one() -> None:
    for code in CODES:
        assert re.fullmatch(r"(?:[A-Z][a-z0-9]+)+[A-Z0-9]*", code.name), code.name
        assert re.match(r"[A-Z{`]", code.sentence), code.sentence
        assert code.sentence.endswith((".", "}")), code.sentence


def test_the_runbook_has_the_section_of_a_code() -> None:
    known = {"", *anchors()}
    assert [code.name for code in CODES if (code.runbook or "") not in known] == []


def test_a_code_is_used() -> None:
    """By the name of its constant, beside its declaration."""
    words = Counter(word for text in sources().values() for word in re.findall(r"\w+", text))
    for name in (one.name for one in CODES if one.part != ERRORS):
        found = declared()[name]
        assert len(found) == 1, f"{name}: declared as a constant in {found}"
        ((declared_in, constant),) = found
        assert words[constant] > 1, f"{constant} of {declared_in} is not used"


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a function or class in the sources, with their files."""
    for path, text in sources().items():
        for node in ast.walk(ast.parse(text)) if f"{name}(" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
                yield str(path.relative_to(ROOT)), node


def test_every_code_that_is_shown_is_known_to_leeway_reasons() -> None:
    """`leeway status`, Events and logs show codes of reasons only, and the names of the errors of
    AWS and of API servers in their sentences."""
    known = {one.name for one in CODES}
    given = [node.args[0] for _, node in calls("ReasonCode")]
    assert {one.value for one in given if isinstance(one, ast.Constant)} <= known
    made = [(path, ast.unparse(call.args[0])) for path, call in calls("Reason")]
    passes_on = ("self.code", "self.name", "reason.code", "cause.code", "codes.pop()")
    assert [one for one in made if one[1] not in passes_on] == []
    assert {"ClusterUnavailable", "ClusterRefused", "ClusterForbidden"} <= known
    assert {"CloudUnavailable", "CloudRefused"} <= known


def test_the_page_of_codes_is_what_the_code_says() -> None:
    page = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    assert page == page_of(CODES), "run `make reasons`"


def test_a_sentence_needs_all_of_its_facts() -> None:
    code = ReasonCode("GroupAtMaximum", "Group {group} is at its maximum of {maximum}.")
    assert code(group="ng", maximum=3).message == "Group ng is at its maximum of 3."
    with pytest.raises(KeyError, match="maximum"):
        code(group="ng")


def test_a_fact_that_is_a_sentence_does_not_double_the_full_stop() -> None:
    code = ReasonCode("NodeNotDrained", "Not drained: {why}. Waiting for {what}...")
    message = code(why="it is gone.", what="it").message
    assert message == "Not drained: it is gone. Waiting for it..."
    message = code(why="no zone us-east-1; did you mean us-east-1a?", what="it").message
    assert message == "Not drained: no zone us-east-1; did you mean us-east-1a? Waiting for it..."


def test_an_alarm_begins_with_its_code_and_ends_with_its_section() -> None:
    for name, text in ALARMS.items():
        assert text.startswith(f"{name.removesuffix('Alarm')}: "), text
        assert text.endswith(f"#{name.lower()}"), text
        assert name.lower() in anchors()
