"""A whole demo, small: the functions, the template and the sandbox together."""

import json
from pathlib import Path

import pytest

from cli import main


def test_a_small_storm_ends_well_and_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    size = ["--nodes", "4", "--interruptions", "1"]

    code = main.run(["demo", *size, "--report", str(page), "-o", "json"])

    told = json.loads(capsys.readouterr().out)
    assert told["faults"] == []
    assert code == 0
    (node,) = told["nodes"]
    assert node["drained"]
    assert [claim["result"] for claim in node["leewaySaid"]] == ["drained"]
    assert len(node["notices"]) == 2
    assert page.read_text().startswith("<!doctype html>")
