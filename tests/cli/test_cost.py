"""`leeway cost`: what is recorded in the table, as tables and as JSON."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from leeway.costs import COST, OTHER, CostHour, OwnerCost, Returned, SpotPool
from leeway_cli import main

from tests.aws.stored import table_in
from tests.cli.test_json import ROWS
from tests.sandbox.aws.started import Sandbox

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(aws: Sandbox, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run(["cost", "--cluster", "prod", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def store(aws: Sandbox, ago: timedelta, **fields: object) -> CostHour:
    """The record of an hour, of which the last fifty minutes are covered."""
    end = datetime.now(UTC).replace(microsecond=0) - ago
    values: dict[str, object] = {
        "covered": ((end - timedelta(minutes=50), end),),
        "owners": {
            "leeway/web": OwnerCost(1.5, 4.0, 10.0),
            "auto-scaling-group/ng": OwnerCost(0.5, 0.5, 2.0, 0.5),
        },
        "namespaces": {"shop": 1.0, OTHER: 0.25},
        "labels": {"team": {"a": 0.75, "": 0.5}},
        "idle": 0.5,
        "unsplit": 0.25,
        "returned": {"Empty": Returned(2, 0.5)},
        "spot": {
            "m5.large us-east-1a": SpotPool(8.0, 0),
            "c5.large us-east-1b": SpotPool(2.0, 1),
            OTHER: SpotPool(0.5, 0),
        },
    }
    hour = CostHour("prod", f"{end:%Y-%m-%d}", f"{end:%H}", end, **{**values, **fields})  # type: ignore[arg-type]
    table_in(aws).put(COST, hour)
    return hour


def test_nothing_recorded_is_said_with_where_to_look(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "Nothing is recorded of cluster prod" in out
    assert "leeway logs reconcile" in out


def test_costs_are_shown_by_owner_namespace_and_label(run: Run, aws: Sandbox) -> None:
    store(aws, timedelta(hours=30))
    store(aws, timedelta(minutes=2), returned={})
    code, out, err = run("--days", "3")
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert "The nodes of cluster prod cost 4.00 USD for 24.0 instance-h" in words
    assert "pool web 20.0 3.00 75%" in words
    assert "group ng" in words
    assert "shop 2.00 50% (others) 0.50 12% (idle) 1.00 25% (not known) 0.50 12%" in words
    assert "LABEL team USD SHARE a 1.50 38% (without) 1.00 25%" in words
    assert "Not counted: 29.1 h in 1 gap" in words
    assert "1.0 h without a known price of the type" in words
    assert "SPOT HOURS INTERRUPTIONS c5.large us-east-1b 4.0 2 m5.large us-east-1a" in words
    assert "EC2 interrupted 2 Spot instances in 21.0 instance-h, 69.52 a month for each" in words
    assert "Spot instances of Leeway's pools saved 5.00 USD against on-demand." in words
    assert "Empty: Leeway gave back 2 nodes, which saved 0.5000 USD per hour, 12.00 USD" in words


def test_what_pools_saved_while_they_hibernated_is_shown(run: Run, aws: Sandbox) -> None:
    store(aws, timedelta(hours=9), returned={"Hibernation": Returned(3, 0.75)}, hibernated=0.5)
    store(aws, timedelta(minutes=2), returned={}, hibernated=5.75)
    words = " ".join(run("--days", "3")[1].split())
    said = "Hibernation: Leeway gave back 3 nodes, and their pools saved 6.25 USD while they"
    assert said in words


def test_a_table_shows_the_dearest_rows(run: Run, aws: Sandbox) -> None:
    store(aws, timedelta(minutes=2), namespaces={f"ns-{n}": float(n) for n in range(1, 14)})
    words = " ".join(run("--top", "2")[1].split())
    assert "ns-13" in words
    assert "ns-11" not in words
    assert "and 11 more: --top 0 shows all" in words
    assert "ns-1 " in " ".join(run("--top", "0")[1].split())


def test_json_has_the_fields_of_the_page_and_sums_that_agree(run: Run, aws: Sandbox) -> None:
    store(aws, timedelta(minutes=2))
    code, out, _ = run("-o", "json")
    printed = json.loads(out)
    assert (code, printed.pop("formatVersion")) == (0, 1)
    (row,) = [said for commands, said in ROWS if "`leeway cost`" in commands]
    assert all(f"`{name}`" in row for name in printed)
    assert printed["owners"][0] == {
        "kind": "leeway",
        "name": "web",
        "usd": 1.5,
        "onDemandUsd": 4.0,
        "instanceHours": 10.0,
    }
    split = sum(one["usd"] for one in printed["namespaces"])
    assert split + printed["idleUsd"] + printed["notSplitUsd"] == pytest.approx(printed["usd"])
    assert printed["namespaces"][1] == {"namespace": None, "other": True, "usd": 0.25}
    assert printed["saved"]["returned"][0]["usdPerHour"] == 0.5
    assert printed["gaps"] == []
    assert printed["spot"][0] == {
        "instanceType": "c5.large",
        "zone": "us-east-1b",
        "instanceHours": 2.0,
        "interruptions": 1,
    }
    assert printed["spot"][2]["instanceType"] is None


def test_an_hour_that_is_not_readable_is_a_gap(run: Run, aws: Sandbox) -> None:
    store(aws, timedelta(hours=3))
    broken = store(aws, timedelta(hours=2))
    store(aws, timedelta(minutes=2))
    aws.client("dynamodb").put_item(
        TableName="leeway",
        Item={
            "pk": {"S": "COST#prod"},
            "sk": {"S": f"HOUR#{broken.day}#{broken.hour}"},
            "record": {"B": b"not zlib"},
            "version": {"N": "1"},
        },
    )
    code, out, err = run("--days", "1")
    assert code == 0
    assert "an hour is not readable" in err
    assert "in 1 gap" in out


@pytest.mark.parametrize("days", ["0", "36", "x"])
def test_days_that_are_not_kept_are_refused(run: Run, days: str) -> None:
    code, _, err = run("--days", days)
    assert code == 2
    assert "--days" in err
