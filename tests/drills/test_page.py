"""The runbook is held to the drills: what wakes people is drilled, or stands here with a reason."""

import re
from functools import cache
from pathlib import Path

import pytest
from botocore import xform_name
from botocore.session import Session, get_session
from leeway_cli.reason_codes import ERRORS, declared_codes

from tests.drills import night, test_drills  # noqa: F401 - it declares the drills
from tests.drills.page import RUNBOOK, Section, commands, sections, wakes
from tests.test_reasons import declared

PAGE = sections(RUNBOOK.read_text(encoding="utf-8"))

WAKING = [section for section in PAGE.values() if wakes(section)]

NOT_DRILLED = {
    "a-group-launches-nodes-that-do-not-join": "as a-pool-is-paused, of which it shows the causes; "
    "reconciliation/test_group_rolls.py meets it",
    "a-change-of-a-manifest-in-the-cluster-does-not-act": "see karpenter-runs-beside-leeway",
    "karpenter-runs-beside-leeway": "it needs a cluster that keeps its own manifests; "
    "conformance/test_adoption.py has one, and meets both states",
    "manifests-are-held": "see karpenter-runs-beside-leeway",
}
"""Sections without a drill, with the reason."""


@pytest.mark.parametrize("section", WAKING, ids=lambda one: one.anchor)
def test_what_wakes_people_has_a_drill_and_says_when_it_is_seen(section: Section) -> None:
    assert (section.anchor in night.DRILLED) != (section.anchor in NOT_DRILLED)
    assert section.seen.endswith(".")
    assert section.look or "](#" in section.parts["Look"], "no command, and no other section"


def test_every_exception_is_a_section() -> None:
    assert NOT_DRILLED.keys() <= PAGE.keys()
    assert all(NOT_DRILLED.values())


TESTED_IN = {
    "admission/test_admit_node.py": ["AdmissionNotReported", "NodeNotJoined"],
    "admission/test_launched_nodes.py": [
        "InstanceNotOfLaunch",
        "NodeLabelsRefused",
        "NodeNameTaken",
    ],
    "admission/test_readiness.py": [
        "NodeNotObserved",
        "NodeStaysNotReady",
        "PromisedResourceMissing",
    ],
    "end_to_end/test_brakes.py": ["LaunchesInVain"],
    "end_to_end/test_reconciliation.py": ["DeviceNotAllocatable"],
    "manifests/test_in_cluster.py": ["KarpenterIsRunning", "ManifestsHeld", "SwitchedToKarpenter"],
    "pod_watch/test_manifests.py": ["ManifestWatchFailed"],
    "pool_pauses/test_record.py": ["NodesNeverReady"],
    "provisioning/test_manifest_run.py": ["ManifestsNotCopied", "StatusNotWritten"],
    "reconciliation/test_group_rolls.py": ["GroupRollHalted", "SuccessorNotReady"],
    "reconciliation/test_left_launches.py": ["LaunchNotAdmitted"],
}
"""Codes that wake people and that a test of their feature injects. The commands that show them are
those of the drills: other outcomes of an admission, brakes, pauses, problems of reconcile. Their
drills show the level of these lines too."""

WAKE_NOBODY = {
    "admission/test_record.py": ["AdmissionExecutionDied"],
    "disruption/test_decide.py": ["DestinationInDoubt"],
    "drills/test_drills.py": ["CatalogPartlyRefreshed"],
    "interruption/test_receive_notice.py": ["AdmissionNeedsDeadline"],
    "retirement/test_attempts.py": ["ExecutionDied"],
    "retirement/test_detached.py": ["InstanceLeftRunning", "ReplacementRequestFailed"],
    "retirement/test_executor.py": ["LoadBalancersKeepNode", "PodsListedLate", "PodsNotListed"],
    "retirement/test_restored_capacity.py": ["GroupTerminationRefused"],
    "retirement/test_retire_node.py": ["NodeNotCordoned"],
    "retirement/test_successors.py": ["SuccessorNotRead"],
}
"""Codes of the same sections that no line at a level of an alarm has: a log line of normal work
(a next attempt, an ignored notice), a status, an answer, or a sentence in an outcome whose code is
NodeDrained or NodeDrainIncomplete. Each has its section because people look there for what to do.
"""


def test_each_code_of_these_sections_is_drilled_or_tested() -> None:
    sections_that_wake = {section.anchor for section in WAKING}
    # An error stands in the sentence of a code, and wakes nobody by itself.
    codes = [code for code in declared_codes() if code.part != ERRORS]
    waking = {code.name for code in codes if code.runbook in sections_that_wake}
    drilled = set().union(*night.DRILLED.values())
    tested = {
        code for named in (TESTED_IN, WAKE_NOBODY) for part in named.values() for code in part
    }
    assert waking - drilled == tested


@pytest.mark.parametrize("file", [*TESTED_IN, *WAKE_NOBODY])
def test_the_test_of_a_code_names_it(file: str) -> None:
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    for code in (*TESTED_IN.get(file, ()), *WAKE_NOBODY.get(file, ())):
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
