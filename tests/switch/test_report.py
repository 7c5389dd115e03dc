"""The report of a switch, from journals."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from leeway_cli.report.page import Run, render_page
from leeway_cli.report.switched import Mark, SwitchReport, switch_as_data, switch_from_journal
from leeway_cli.report.switched import switch_page as page_of

OWNER = "Deployment/orders/orders"
RUN = Run(0, datetime(2026, 11, 23, 12, tzinfo=UTC), 240.0, {"scenario": "switch"})


def entry(kind: str, at: float, uid: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "at": at, "uid": uid, "pod": f"orders/{uid}", "owner": OWNER, **fields}


def report(*more: dict[str, Any], ended: int = 0) -> SwitchReport:
    entries = [
        entry("pod-created", 1.0, "a"),
        entry("pod-bound", 2.0, "a", node="node-1"),
        entry("pod-running", 3.0, "a"),
        entry("pod-running", 3.0, "other", owner="Deployment/kube-system/dns"),
        {"kind": "node-cordoned", "at": 4.0, "node": "before"},
        *more,
    ]
    karpenter: Any = SimpleNamespace(began=["i-1"], ended=["i-1"] * ended)
    marks = [Mark(12.0, "record that Karpenter launches nodes")]
    return switch_from_journal(entries, OWNER, 10.0, 60.0, marks, ["general-1"], karpenter)


def test_pods_that_run_on_are_no_fault() -> None:
    found = report()
    assert found.faults == ()
    assert [one.pod for one in found.pods] == ["orders/a"]
    page = render_page(page_of(found, RUN))
    assert "1 of 1 pod ran through the switch" in page
    assert "record that Karpenter launches nodes" in page
    assert switch_as_data(found, RUN)["claims"] == ["general-1"]


def test_pods_that_end_cordons_and_ended_instances_are_faults() -> None:
    ended = entry("pod-deletion", 20.0, "a")
    cordoned = {"kind": "node-cordoned", "at": 21.0, "node": "node-1"}
    faults = report(ended, cordoned, ended=1).faults
    assert faults == (
        "Pod orders/a ended on node node-1.",
        "Karpenter ended 1 instance.",
        "1 node was cordoned.",
    )
