"""The runbook is held to the drills: what wakes people is drilled, or stands here with a reason."""

import re
from pathlib import Path

import pytest
from leeway_cli.reason_codes import declared_codes

from tests.drills import night, test_drills  # noqa: F401 - it declares the drills
from tests.drills.page import RUNBOOK, Section, sections, wakes
from tests.test_reasons import declared

PAGE = sections(RUNBOOK.read_text(encoding="utf-8"))

WAKING = [section for section in PAGE.values() if wakes(section)]

NOT_DRILLED = {
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
        "InstanceNeverJoined",
        "InstanceNotOfLaunch",
        "NodeLabelsRefused",
        "NodeNameTaken",
        "UnjoinedInstanceNotTerminated",
    ],
    "admission/test_readiness.py": [
        "NodeStaysNotReady",
        "PromisedResourceMissing",
        "StartupTaintPresent",
    ],
    "aws/test_adapters.py": ["LifecycleActionOver"],
    "aws/test_endpoints.py": ["CloudRefused", "CloudUnavailable"],
    "aws/test_market.py": ["CatalogPartNotRead", "CatalogPartlyRefreshed"],
    "disruption/test_decide.py": ["DestinationInDoubt"],
    "end_to_end/test_brakes.py": ["LaunchesInVain"],
    "end_to_end/test_giving_back.py": ["StartLost"],
    "end_to_end/test_reconciliation.py": ["DeviceNotAllocatable"],
    "headroom/test_failing_clusters.py": ["HeadroomNotReconciled", "HeadroomObjectUnavailable"],
    "headroom/test_missing_rights.py": ["ClusterForbidden", "HeadroomObjectRefused"],
    "headroom/test_reconciler.py": [
        "BufferWithoutSize",
        "DeploymentNotOwned",
        "ScaleConflict",
        "TargetNotFound",
    ],
    "kubernetes/test_pod_feed.py": ["ClusterRefused"],
    "kubernetes/test_unscheduled_pods.py": ["WatchExpired"],
    "launch/test_left_launches.py": ["LaunchNotAdmitted"],
    "launch/test_price_ceiling.py": ["PriceCeilingReached"],
    "manifests/test_in_cluster.py": ["KarpenterIsRunning", "ManifestsHeld"],
    "pod_watch/test_watch_pods.py": [
        "PoolsNotRead",
        "ProvisioningNotWoken",
        "WatchLeaseUnavailable",
    ],
    "pool_pauses/test_record.py": ["NodesNeverReady"],
    "provisioning/test_provision_nodes.py": ["CatalogMissing", "ProvisioningNotWritten"],
    "reconciliation/test_lost_hooks.py": ["HookAnswerLost"],
    "retirement/test_attempts.py": ["ExecutionDied"],
    "retirement/test_detached.py": ["InstanceLeftRunning"],
    "retirement/test_executor.py": ["PodsListedLate", "PodsNotListed"],
    "retirement/test_restored_capacity.py": ["GroupTerminationRefused"],
    "retirement/test_retire_node.py": ["NodeNotCordoned", "RetirementNotReported"],
}
"""Codes of the same sections that a test of their feature injects. The commands that show them are
those of the drills, which also show their level."""

NOT_NAMED = {
    "AdmissionExecutionDied": "needs the deadline of an execution to pass",
    "AdmissionNeedsDeadline": "`leeway apply` refuses such a policy",
    "ExecutionOverdue": "needs the deadline of an execution to pass",
    "LoadBalancersKeepNode": "a part of the outcome of a retirement",
    "ManifestsNotRead": "the table fails; ReconcileIncomplete is drilled with the same commands",
    "NodeNotObserved": "the access of admit_node; NodesNotCordonedAlarm drills that of retire_node",
    "ReplacementRequestFailed": "a part of the outcome of a retirement",
    "RetiredInstanceRuns": "a part of the outcome of a retirement",
    "SuccessorNotRead": "a part of the outcome of a retirement",
}
"""Codes that no drill and no test injects by name, with the reason."""


def test_each_code_that_wakes_people_is_drilled_or_tested_or_named() -> None:
    sections_that_wake = {section.anchor for section in WAKING}
    waking = {code.name for code in declared_codes() if code.runbook in sections_that_wake}
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
