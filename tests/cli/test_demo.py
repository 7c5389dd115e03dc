"""A small demo with the functions, the template and the sandbox."""

import json
from pathlib import Path

import pytest
from leeway_cli import main
from leeway_sandbox.nursery import VARIABLE


def test_a_storm_has_no_faults_and_a_pool_launches_on_demand_while_spot_is_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)  # each server is a process, as users have it
    page = tmp_path / "report.html"
    size = ["--nodes", "6", "--interruptions", "3"]
    monkeypatch.setattr("leeway_cli.demo.command.OPENED_WITHIN", 0.0)

    code = main.run(["demo", *size, "--view", "--report", str(page), "-o", "json"])

    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert "http://127.0.0.1:" in printed.err, "the address of leeway view"
    assert report["faults"] == []
    assert code == 0
    owners = sorted(node["group"] or node["pool"] for node in report["nodes"])
    assert owners == ["flexible", "spot-hooked", "spot-plain"]
    assert {one["capacityType"] for one in report["shortages"]} == {"spot"}
    assert [one["capacityType"] for one in report["launches"]] == ["on-demand"]
    assert report["launches"][0]["fallback"]
    assert report["launches"][0]["readyAt"]
    assert max(len(node["notices"]) for node in report["nodes"]) == 2, "a notice comes twice"
    assert page.read_text().startswith("<!doctype html>")
    assert "instead of Spot" in page.read_text()
    for node in report["nodes"]:
        assert node["drained"]
        assert [event["result"] for event in node["leewayEvents"]] == ["drained"]


def test_a_scale_up_gets_nodes_and_its_report_has_their_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    command = ["demo", "--scenario", "scale-up", "--replicas", "80"]

    code = main.run([*command, "--report", str(page), "-o", "json"])

    report = json.loads(capsys.readouterr().out)
    assert report["faults"] == []
    assert code == 0
    summary = report["summary"]
    assert summary["podsRunning"] == 80
    assert summary["podsPendingAtMost"] > 0
    assert report["pods"][-1]["pending"] == 0
    assert sum(one["count"] for one in report["nodes"]) == summary["nodesLaunched"] > 0
    assert {one["capacityType"] for one in report["nodes"]} == {"spot"}
    assert summary["pricePerHour"] >= summary["lowerBoundPerHour"] > 0
    assert "Pods over time" in page.read_text()
