"""The runbook is held to the drills: each alarm and each code that wakes people is drilled."""

import re
from functools import cache
from pathlib import Path

import pytest
from botocore import xform_name
from botocore.session import Session, get_session
from leeway_cli.reason_codes import ERRORS, declared_codes

from tests.drills import night, test_drills  # noqa: F401 - it declares the drills
from tests.drills.page import COUNTED, RUNBOOK, Section, anchor_of, commands, sections, wakes
from tests.test_reasons import declared

PAGE = sections(RUNBOOK.read_text(encoding="utf-8"))

WAKING = [section for section in PAGE.values() if wakes(section)]


@pytest.mark.parametrize("section", WAKING, ids=lambda one: one.anchor)
def test_what_wakes_people_says_when_its_commands_show_the_cause(section: Section) -> None:
    assert section.seen.endswith(".")
    assert section.look


def test_a_section_that_says_when_its_commands_show_the_cause_has_a_drill() -> None:
    assert {one.anchor for one in PAGE.values() if one.seen} == night.DRILLED.keys() - {TEACHES}


TEACHES = "where-to-look"
"""The section about the commands themselves. It has drills, too."""


def test_the_table_of_the_page_says_which_alarm_counts_a_problem() -> None:
    """A drill that looks at the sections of an alarm and of a problem sees the alarm's metric."""
    page = PAGE[anchor_of(COUNTED)].text
    rows = [re.findall(r"\(#([\w-]+)\)", line) for line in page.splitlines() if "](#" in line]
    written = {alarm: set(problems) for alarm, *problems in rows}
    counted = {one.anchor for one in PAGE.values() if one.below == COUNTED}
    drilled = {alarm: night.LED_TO[alarm] & counted for alarm in written}
    assert written == drilled
    assert set().union(*written.values()) == counted


WAKE_NOBODY = {
    "admission/test_record.py": ["AdmissionExecutionDied"],
    "disruption/test_decide.py": ["DestinationInDoubt"],
    "drills/test_drills.py": ["CatalogPartlyRefreshed", "SuccessorNotReady"],
    "interruption/test_receive_notice.py": ["AdmissionNeedsDeadline"],
    "retirement/test_attempts.py": ["ExecutionDied"],
    "retirement/test_detached.py": ["InstanceLeftRunning", "ReplacementRequestFailed"],
    "retirement/test_executor.py": ["LoadBalancersKeepNode", "PodsNotListed"],
    "retirement/test_restored_capacity.py": ["GroupTerminationRefused", "SuccessorKept"],
    "retirement/test_retire_node.py": ["NodeNotCordoned"],
    "retirement/test_successors.py": ["SuccessorNotRead"],
}
"""Codes of the same sections that no line at a level of an alarm has: a log line of normal work
(a next attempt, an ignored notice), a status, an answer, or a sentence in an outcome whose code is
NodeDrained or NodeDrainIncomplete. Each has its section because people look there for what to do.
"""


def test_each_code_of_these_sections_is_drilled_or_wakes_nobody() -> None:
    sections_that_wake = {section.anchor for section in WAKING}
    # An error stands in the sentence of a code, and wakes nobody by itself.
    codes = [code for code in declared_codes() if code.part != ERRORS]
    waking = {code.name for code in codes if code.runbook in sections_that_wake}
    drilled = set().union(*night.DRILLED.values())
    named = {code for part in WAKE_NOBODY.values() for code in part}
    assert waking - drilled == named


@pytest.mark.parametrize("file", [*WAKE_NOBODY])
def test_the_test_of_a_code_names_it(file: str) -> None:
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    for code in WAKE_NOBODY[file]:
        names = [code, *(constant for _, constant in declared()[code])]
        assert any(re.search(rf"\b{name}\b", text) for name in names), code


AWS_COMMANDS = sorted(
    {
        command
        for page in (RUNBOOK, RUNBOOK.with_name("migrating.md"))
        for command in commands(page.read_text(encoding="utf-8"))
        if command.startswith("aws ") and not command.startswith("aws logs tail")
    }
)


@pytest.mark.parametrize("command", AWS_COMMANDS)
def test_aws_has_the_operation_and_the_options_of_a_command(command: str) -> None:
    """No drill runs what people do after they have looked."""
    _, service, operation, *rest = command.split()
    model = aws_models().get_service_model(service)
    names = {xform_name(name, "-"): name for name in model.operation_names}
    shape = model.operation_model(names[operation]).input_shape
    known = {f"--{xform_name(name, '-')}" for name in (shape.members if shape else ())}
    options = {word for word in rest if word.startswith("--")}
    of_the_cli = {"--query", "--output", "--cli-binary-format"}
    assert not {one.replace("--no-", "--") for one in options - known} - known - of_the_cli


@cache
def aws_models() -> Session:
    return get_session()
