"""The usage, the prices and the timings of measurements."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.manifests.reading import read_manifests
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.pods import Pod
from leeway_cli.simulated_day.bound import bound_of
from leeway_cli.simulated_day.workload import Workload, supply
from leeway_sandbox.template import parse_template

from bench.__main__ import main
from bench.costs import Usage, dollars
from bench.idle import (
    ALARM,
    FIFO_REQUEST,
    HOURS,
    METRIC,
    MINUTES,
    POLLS,
    SCHEDULED,
    TEMPLATE,
    month,
    pools_month,
    rows,
)
from bench.provision import manifests
from bench.spot_risk import POLICIES, STEPS, TODAY, listed_prices, market_of, run
from bench.storms import timings, usage
from bench.whole_nodes import whole_nodes, with_idle_time


def test_the_total_of_a_bill_is_the_sum_of_its_items() -> None:
    costs = dollars(Usage(invocations=1e6, durable_operations=1e6, events=1e6))
    assert costs["durable_operations"] == pytest.approx(8.0)
    assert costs["total"] == pytest.approx(0.2 + 8.0 + 1.0)


def test_a_stack_with_one_cluster_costs_as_little_as_it_should() -> None:
    assert month(1).total < 2.50
    assert month(1).total + pools_month(1).total < 9


def test_a_quiet_month_pays_for_what_the_template_deploys() -> None:
    quiet = month(1)
    template = parse_template(TEMPLATE.read_text())["Resources"].values()
    alarms = [one for one in template if one["Type"] == "AWS::CloudWatch::Alarm"]
    assert quiet.alarms == pytest.approx(len(alarms) * ALARM)
    assert quiet.schedules == pytest.approx((3 * MINUTES + HOURS / 6) * SCHEDULED)
    assert quiet.queue == pytest.approx(POLLS * FIFO_REQUEST)
    assert quiet.metrics < METRIC, "without problems no metric has data all the time"
    assert month(40).alarms == quiet.alarms
    assert month(40).metrics == quiet.metrics


def test_the_documented_prices_of_a_quiet_month_are_the_computed_ones() -> None:
    page = (Path(__file__).parents[1] / "docs" / "deploy.md").read_text()
    section = page.partition("## What it costs when nothing happens")[2].partition("\n## ")[0]
    documented = [line for line in section.splitlines() if re.search(r"\d\.\d\d \|$", line)]
    assert len(documented) == len(list(rows()))
    for line, (name, *prices) in zip(documented, rows(), strict=True):
        assert line.startswith(f"| {name}")
        assert line.endswith(f" | {' | '.join(prices)} |")
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert f"[about ${month(1).total:.2f} a month]" in readme


def test_usage_is_read_from_the_journals_and_the_calls() -> None:
    entries: list[dict[str, Any]] = [
        {"kind": "invocation", "function": "f", "milliseconds": 500, "cold": True},
        {"kind": "invocation", "function": "f", "milliseconds": 1500, "cold": False},
        {"kind": "execution-ended", "operations": 8, "written": 100},
        {"kind": "logs", "line": "1234"},
    ]
    calls = {"dynamodb:Query": 2, "dynamodb:GetItem": 1, "dynamodb:PutItem": 3}
    used = usage(entries, calls, {"f": 1024})
    assert used == Usage(2, 2.0, 8, 100, 3, 3, 0, 6)
    assert used.per(2).gb_seconds == 1.0


def test_timings_start_at_the_notice_of_each_instance() -> None:
    notice = {"kind": "notice", "detail_type": "EC2 Spot Instance Interruption Warning"}
    entries = [
        {"at": 1.0, "kind": "node-joined", "instance": "i-1", "node": "n-1"},
        {"at": 1.0, "kind": "node-joined", "instance": "i-2", "node": "n-2"},
        {"at": 10.0, **notice, "instance": "i-1"},
        {"at": 11.0, **notice, "instance": "i-2"},
        {"at": 12.0, "kind": "node-cordoned", "node": "n-1"},
        {"at": 13.0, "kind": "eviction", "node": "n-1", "uid": "a"},
        {"at": 19.0, "kind": "eviction", "node": "n-1", "uid": "a"},
        {"at": 14.0, "kind": "eviction", "node": "n-1", "uid": "b"},
    ]
    found = timings(entries, since=5.0)
    assert (found["i-1"].to_cordon, found["i-1"].to_evictions) == (2.0, 4.0)
    assert found["i-2"].to_cordon is None


def test_the_pools_of_the_bench_of_provisioning_are_read_without_problems() -> None:
    reading = read_manifests(yaml.safe_dump_all(manifests("bench")), "bench")
    assert reading.problems == ()
    assert [one.name for one in reading.written] == ["default", "general", "small"]


@pytest.mark.parametrize("name", ["storm", "storms=many", "kubernetes=5"])
def test_an_unknown_measurement_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("clusters", [[], ["37x"], ["c37,"], ["c37", "storms"]])
def test_random_clusters_that_no_seed_has_are_refused(
    clusters: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rehearse", "--only", *clusters]) == 2
    assert f"expected c37,c47 …, got {','.join(clusters)!r}" in capsys.readouterr().err


def test_markets_of_a_seed_differ_only_in_how_often_pools_are_reclaimed() -> None:
    rarely, often = (market_of(1, listed_prices(), rate, 1.0) for rate in (1.0, 10.0))
    assert (rarely.prices == often.prices).all()
    assert (often.reclaims | ~rarely.reclaims).all()
    monthly = often.hazard.mean() * 730 * 0.92
    assert monthly == pytest.approx(10.0)


def test_a_fleet_without_interruptions_pays_for_its_nodes_alone() -> None:
    market = market_of(1, listed_prices(), 0.0, 1.0)
    found = [run(market, policy, 0.05, 10, 1) for policy in POLICIES[: TODAY + 1]]
    assert [(one.interruptions, one.moves) for one in found] == [(0, 0.0)] * 2
    assert found[0] == found[1], "both are the same fleet where nothing is interrupted"
    assert found[0].node_hours == pytest.approx(10 * (STEPS / 12 - 24))
    assert found[0].usd > found[0].node_hours * market.prices.min()


def test_a_policy_that_avoids_pools_is_interrupted_less_and_pays_more() -> None:
    market = market_of(1, listed_prices(), 10.0, 1.0)
    named = {one.name: one for one in POLICIES}
    careful = run(market, named["without the riskier half, 3 days"], 0.05, 50, 1)
    todays = run(market, POLICIES[TODAY], 0.05, 50, 1)
    assert careful.interruptions < todays.interruptions
    assert careful.cost > todays.cost
    assert todays.moves == pytest.approx(0.05 * todays.interruptions)


@pytest.mark.parametrize("services", [["ledger"], ["search"], ["images", "metrics", "orders"]])
def test_a_bound_by_whole_nodes_lies_between_the_bound_by_parts_and_a_plan(
    services: list[str],
) -> None:
    workload = Workload(seed=0, scale=0.3)
    kinds = [workload.services[name] for name in services]
    specs = [one.spec for one in kinds for _ in range(workload.replicas(one, 12 * 60))]
    plan = pack(
        [Pod(str(i), one) for i, one in enumerate(specs)], supply(0, 12), [], Effort(improvements=5)
    )
    whole = whole_nodes(specs, 0, 12, choices=1)
    assert bound_of(specs, 0, 12) <= whole * 1.0001
    assert whole <= plan.price * 1.0001
    assert whole <= whole_nodes(specs, 0, 12, choices=5)


def test_a_dip_of_the_price_is_kept_if_that_costs_less_than_to_launch_again() -> None:
    hour, day = 1.0, [2.0, 1.0, 2.0]
    assert with_idle_time(day, hour, idle=0.0) == pytest.approx(5.0)
    assert with_idle_time(day, hour, idle=0.5) == pytest.approx(5.5), "one more is launched"
    assert with_idle_time(day, hour, idle=3.0) == pytest.approx(6.0), "it is kept"
