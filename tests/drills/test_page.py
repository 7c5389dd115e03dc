"""The runbook is held to the drills: what wakes people is drilled, or stands here with a reason."""

import re
from pathlib import Path

import pytest
from leeway_cli.reason_codes import ERRORS, declared_codes

from tests.drills import night, test_drills  # noqa: F401 - it declares the drills
from tests.drills.page import RUNBOOK, Section, sections, wakes
from tests.test_reasons import declared

PAGE = sections(RUNBOOK.read_text(encoding="utf-8"))

WAKING = [section for section in PAGE.values() if wakes(section)]

NOT_DRILLED = {
    "a-change-of-a-manifest-in-the-cluster-does-not-act": "see karpenter-runs-beside-leeway",
    "karpenter-runs-beside-leeway": "it needs a cluster that keeps its own manifests; "
    "conformance/test_adoption.py has one, and meets both states",
    "manifests-are-held": "see karpenter-runs-beside-leeway",
    "retirementsthrottledalarm": "the sandbox's Lambda limits each function, and no account; the "
    "command is that of NoticesLateAlarm, which has a drill",
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
        "NodeStaysNotReady",
        "PromisedResourceMissing",
    ],
    "disruption/test_decide.py": ["DestinationInDoubt"],
    "end_to_end/test_brakes.py": ["LaunchesInVain"],
    "end_to_end/test_reconciliation.py": ["DeviceNotAllocatable"],
    "manifests/test_in_cluster.py": ["KarpenterIsRunning", "ManifestsHeld", "SwitchedToKarpenter"],
    "pod_watch/test_manifests.py": ["ManifestWatchFailed"],
    "pool_pauses/test_record.py": ["NodesNeverReady"],
    "provisioning/test_manifest_run.py": ["ManifestsNotCopied", "StatusNotWritten"],
    "reconciliation/test_left_launches.py": ["LaunchNotAdmitted"],
    "retirement/test_attempts.py": ["ExecutionDied"],
    "retirement/test_detached.py": ["InstanceLeftRunning"],
    "retirement/test_executor.py": ["PodsListedLate", "PodsNotListed"],
    "retirement/test_restored_capacity.py": ["GroupTerminationRefused"],
    "retirement/test_retire_node.py": ["NodeNotCordoned"],
}
"""Codes of the same sections that a test of their feature injects. The commands that show them are
those of the drills, which also show their level."""

NOT_NAMED = {
    "AdmissionExecutionDied": "needs the deadline of an execution to pass",
    "AdmissionNeedsDeadline": "`leeway apply` refuses such a policy",
    "CatalogPartlyRefreshed": "the answer of the function; the log has CatalogPartNotRead",
    "LoadBalancersKeepNode": "a part of the outcome of a retirement",
    "NodeNotObserved": "the access of admit_node; NodesNotCordonedAlarm drills that of retire_node",
    "ReplacementRequestFailed": "a part of the outcome of a retirement",
    "SuccessorNotRead": "a part of the outcome of a retirement",
}
"""Codes that no drill and no test injects by name, with the reason."""


def test_each_code_that_wakes_people_is_drilled_or_tested_or_named() -> None:
    sections_that_wake = {section.anchor for section in WAKING}
    # An error stands in the sentence of a code, and wakes nobody by itself.
    codes = [code for code in declared_codes() if code.part != ERRORS]
    waking = {code.name for code in codes if code.runbook in sections_that_wake}
    drilled = set().union(*night.DRILLED.values())
    tested = {code for codes in TESTED_IN.values() for code in codes}
    assert waking - drilled == tested | NOT_NAMED.keys()
    assert not tested & NOT_NAMED.keys()


@pytest.mark.parametrize("file", TESTED_IN)
def test_the_test_of_a_code_names_it(file: str) -> None:
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    for code in TESTED_IN[file]:
        names = [code, *(constant for _, constant in declared()[code])]
        assert any(re.search(rf"\b{name}\b", text) for name in names), code
