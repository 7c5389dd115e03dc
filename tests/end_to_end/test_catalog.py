"""refresh_catalog deployed: `leeway types` uses the catalog that it stores."""

import json
import os
import time
from datetime import UTC, datetime, timedelta
from functools import partial

import boto3
import pytest
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.catalog.unavailable import Offering, UnavailableOfferings
from leeway_cli.main import run
from leeway_cli.selection.sources import sandbox_catalog

from tests.end_to_end.environment import PATIENCE, Environment

REGION = "us-east-1"
ITS_OWN = "m5.large"


def test_a_scheduled_run_stores_a_catalog_that_the_command_line_reads(
    env: Environment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox = env.sandbox
    for name, value in sandbox.environment().items():
        monkeypatch.setenv(name, value)
    dynamodb = partial(boto3.client, "dynamodb", region_name=REGION)
    table = DynamoTable(dynamodb, os.environ["LEEWAY_TABLE"])
    (schedule,) = [s["name"] for s in sandbox.schedules() if s["name"].endswith("-refresh-catalog")]
    sandbox.fire(str(schedule))
    until = time.monotonic() + PATIENCE
    while table.get(SURVEY, region=REGION) is None:
        assert time.monotonic() < until, "no catalog was stored"
        time.sleep(1)
    # Another type than that of the nodes: interruptions in other tests mark the nodes' type.
    lost = Offering(REGION, "c5.xlarge", "us-east-1a", "spot")
    soon = datetime.now(UTC) + timedelta(minutes=3)
    unavailable = UnavailableOfferings(DynamoTable(dynamodb, os.environ["LEEWAY_TABLE"]))
    unavailable.mark(lost, "interrupted", soon)
    assert run(["types", "--region", REGION, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = json.loads(out)["types"]
    assert {one["name"] for one in found} == set(sandbox_catalog(REGION).names)
    gone = [
        (one["name"], offering["zone"], offering["capacityType"])
        for one in found
        for offering in one["offerings"]
        if not offering["available"] and one["name"] != ITS_OWN
    ]
    assert gone == [("c5.xlarge", "us-east-1a", "spot")]
