"""Reason codes: each is declared once, is used, reads as a sentence, and is documented."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from leeway.reasons import ReasonCode
from leeway_cli.reason_codes import ERRORS, DeclaredCode, declared_codes, page_of

from tests.template.granted import resources

ROOT = Path(__file__).parents[1]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
CODES = declared_codes()
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for top in ("layers/leeway/leeway", "cli", "sandbox")
    for path in (ROOT / top).rglob("*.py")
}
WORDS = Counter(word for text in SOURCES.values() for word in re.findall(r"\w+", text))
DECLARING = re.compile(r'^(\w+) = _?[A-Za-z]*\(\s*(?:name=)?"(\w+)"', re.MULTILINE)
DECLARED = defaultdict(list)
"""The files and the constants that declare each code."""

for _path, _text in SOURCES.items():
    for _constant, _code in DECLARING.findall(_text):
        DECLARED[_code].append((_path, _constant))
ALARMS = {
    name: one["Properties"]["AlarmDescription"]["Fn::Sub"]
    for name, one in resources().items()
    if one["Type"] == "AWS::CloudWatch::Alarm"
}

each_code = pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)


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


@each_code
def test_a_code_is_camel_case_and_its_sentence_is_one(code: DeclaredCode) -> None:
    assert re.fullmatch(r"(?:[A-Z][a-z0-9]+)+[A-Z0-9]*", code.name), code.name
    assert re.match(r"[A-Z{`]", code.sentence), code.sentence
    assert code.sentence.endswith((".", "}")), code.sentence


@each_code
def test_the_runbook_has_the_section_of_a_code(code: DeclaredCode) -> None:
    assert not code.runbook or code.runbook in anchors()


@pytest.mark.parametrize(
    "code", [one for one in CODES if one.part != ERRORS], ids=lambda code: code.name
)
def test_a_code_is_used(code: DeclaredCode) -> None:
    """By the name of its constant, beside its declaration."""
    found = DECLARED[code.name]
    assert len(found) == 1, f"{code.name}: declared as a constant in {found}"
    ((declared_in, constant),) = found
    assert WORDS[constant] > 1, f"{constant} of {declared_in} is not used"


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a function or class in the sources, with their files."""
    for path, text in SOURCES.items():
        for node in ast.walk(ast.parse(text)) if f"{name}(" in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
                yield str(path.relative_to(ROOT)), node


def test_every_code_that_is_shown_is_known_to_leeway_reasons() -> None:
    """`leeway status`, Events and logs show codes of reasons only, and the names of the errors of
    AWS and of API servers in their sentences."""
    known = {one.name for one in CODES}
    given = [node.args[0] for _, node in calls("ReasonCode")]
    assert {one.value for one in given if isinstance(one, ast.Constant)} <= known
    made = {path.removeprefix("layers/leeway/leeway/") for path, _ in calls("Reason")}
    passes_on = {
        "launch/late_nodes.py",
        "provisioning/report.py",
        "selection/packing/unschedulable.py",
    }
    assert made == {"reasons.py", *passes_on}
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


@pytest.mark.parametrize("name", sorted(ALARMS))
def test_an_alarm_begins_with_its_code_and_ends_with_its_section(name: str) -> None:
    code = name.removesuffix("Alarm")
    assert ALARMS[name].startswith(f"{code}: "), ALARMS[name]
    assert ALARMS[name].endswith(f"#{name.lower()}"), ALARMS[name]
    assert name.lower() in anchors()
