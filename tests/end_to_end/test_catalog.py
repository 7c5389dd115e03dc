"""refresh_catalog deployed: what it reads is what `leeway types` chooses from."""

import json
import os
import time
from functools import partial

import boto3
import pytest
from leeway.cloud.surveys import DynamoSurveys

from cli.catalogs import sandbox_catalog
from cli.main import run
from tests.end_to_end.rehearsal import Rehearsal

REGION = "us-east-1"


def test_a_scheduled_run_keeps_a_catalog_that_the_command_line_reads(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox = rehearsal.sandbox
    for name, value in sandbox.environment().items():
        monkeypatch.setenv(name, value)
    surveys = DynamoSurveys(
        partial(boto3.client, "dynamodb", region_name=REGION), os.environ["LEEWAY_TABLE"]
    )
    (schedule,) = [s["name"] for s in sandbox.schedules() if "RefreshCatalog" in s["name"]]
    sandbox.fire(str(schedule))
    until = time.monotonic() + 120
    while surveys.packed(REGION) is None:
        assert time.monotonic() < until, "nothing was surveyed"
        time.sleep(1)
    assert run(["types", "--region", REGION, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)
    assert {one["name"] for one in found} == set(sandbox_catalog(REGION).names)
