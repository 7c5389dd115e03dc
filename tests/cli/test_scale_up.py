"""The report of a scale-up, from journals to the page."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from leeway_cli.demo.pools import QUIET, is_over, prices_of, with_bound
from leeway_cli.report.page import Run, print_page, render_page
from leeway_cli.report.scale_up import (
    Offering,
    ScaleUpPlan,
    ScaleUpReport,
    headline,
    lay_out_chart,
    points_shown,
    price_text,
    scale_up_as_data,
    scale_up_from_journal,
    scale_up_page,
)
from leeway_cli.selection.sources import sandbox_survey
from leeway_sandbox.scenario import scale_up_scenario
from rich.console import Console

from tests.cli.journals import NEW_INSTANCE, NEW_NODE, NODE, WEB, ZERO, Journal
from tests.cli.test_pool_launches import fleet, place
from tests.cli.test_report_output import RUN, checked

SPOT = Offering("m5.large", "us-east-1a", "spot")
PLAN = ScaleUpPlan(
    cluster="demo",
    owner=WEB.owner,
    before=1,
    after=3,
    nodes=3,
    scaled_at=ZERO,
    prices={SPOT: 0.04},
)
ITS_RUN = Run(7, RUN.began, 51.2, {"scenario": "scale-up", "replicas": 3})


def created(journal: Journal, at: float, pod: str) -> Journal:
    """Add a pod without a node."""
    return journal.add(at, "pod-created", pod=pod, uid=f"uid-{pod}", owner=WEB.owner)


def bound(journal: Journal, at: float, pod: str, node: str = NEW_NODE) -> Journal:
    """Add the node of a pod, which runs a second later."""
    name = {"pod": pod, "uid": f"uid-{pod}", "owner": WEB.owner}
    journal.add(at, "pod-bound", node=node, **name)
    return journal.add(at + 1, "pod-running", node=node, **name)


def scaled() -> Journal:
    """One pod runs; two more wait for a node, which Leeway launches."""
    journal = Journal().runs("shop/web-0", WEB)
    created(journal, 1, "shop/web-1")
    created(journal, 1, "shop/web-2")
    fleet(journal, 3, [{"instance": NEW_INSTANCE, **place("m5.large")}], [])
    return journal.node(NEW_NODE, NEW_INSTANCE, 7, 8)


def finished() -> Journal:
    journal = bound(scaled(), 8, "shop/web-1")
    return bound(journal, 9, "shop/web-2")


def report(journal: Journal) -> ScaleUpReport:
    return scale_up_from_journal(journal.entries, PLAN)


def test_the_curve_counts_pending_starting_and_running_pods() -> None:
    found = {
        point.at - ZERO: (point.pending, point.starting, point.running)
        for point in report(finished()).curve
    }

    assert found[0] == (0, 0, 1)
    assert found[1] == (2, 0, 1)
    assert found[8] == (1, 1, 1)
    assert found[9] == (0, 1, 2)
    assert found[10] == (0, 0, 3)


def test_times_count_from_the_first_new_pod() -> None:
    done = report(finished())

    assert (done.seconds_to_launch, done.seconds_to_run, done.most_pending) == (2, 9, 2)
    assert done.faults == ()
    assert headline(done) == "From 1 to 3 pods on 1 new node in 9 seconds."


def test_nodes_are_grouped_by_offering_and_priced() -> None:
    unknown = place("m9.huge", "us-east-1b", "on-demand")
    journal = fleet(finished(), 4, [{"instance": f"i-{n}", **place("m5.large")} for n in "ab"], [])
    fleet(journal, 4, [{"instance": "i-c", **unknown}], [])
    found = report(journal)

    assert [(one.offering, one.count, one.price_per_hour) for one in found.nodes] == [
        (SPOT, 3, 0.04),
        (Offering("m9.huge", "us-east-1b", "on-demand"), 1, None),
    ]
    assert found.price == pytest.approx(0.12)
    assert found.fleets == 3


def test_a_pod_without_a_node_is_a_fault() -> None:
    (fault,) = report(bound(scaled(), 8, "shop/web-1")).faults
    assert fault == f"Pods of {WEB.owner} without a node: 1."


def test_a_node_that_no_pod_needs_is_a_fault() -> None:
    journal = fleet(finished(), 4, [{"instance": "i-a", **place("m5.large")}], [])
    (fault,) = report(journal.node("ip-10-0-0-8.ec2.internal", "i-a", 7, 8)).faults
    assert fault.endswith("and no pod needed it.")


def test_pods_that_end_or_are_missing_are_faults() -> None:
    ended = finished().ended(10.5, "shop/web-2", WEB)
    assert report(ended).faults == (
        f"{WEB.owner} has 2 of 3 pods.",
        f"Pods of {WEB.owner} that ended during the scale-up: 1.",
    )


def test_launches_before_the_scaling_and_pods_of_others_do_not_count() -> None:
    journal = fleet(finished(), -5, [{"instance": "i-a", **place("m5.large")}], [])
    journal.add(2, "pod-created", pod="shop/api-1", uid="uid-api", owner="Deployment/shop/api")
    found = report(journal)

    assert [one.instance for one in found.launches] == [NEW_INSTANCE]
    assert found.last.pending == 0


def test_the_scale_up_is_over_when_all_is_quiet() -> None:
    done = report(finished())

    assert not is_over(done, ZERO + 10 + QUIET - 0.1)
    assert is_over(done, ZERO + 10 + QUIET)
    assert not is_over(report(bound(scaled(), 8, "shop/web-1")), ZERO + 99)
    starting = fleet(finished(), 9, [{"instance": "i-a", **place("m5.large")}], [])
    assert not is_over(report(starting), ZERO + 99), "a launched node is not Ready"


def test_the_bound_is_that_of_the_pods_on_new_nodes() -> None:
    scenario = scale_up_scenario()
    few = with_bound(report(finished()), scenario)
    many = with_bound(replace(few, on_new_nodes=200), scenario)

    assert few.on_new_nodes == 2
    assert 0 < few.bound < many.bound
    cheapest = min(price for offering, price in prices_of(sandbox_survey()).items() if price > 0)
    assert many.bound > cheapest


def test_the_bound_of_a_scale_up_without_new_nodes_is_zero() -> None:
    journal = bound(Journal().runs("shop/web-0", WEB), 2, "shop/web-0", NODE)
    found = with_bound(report(journal), scale_up_scenario())

    assert (found.bound, found.over_bound) == (0, None)
    assert price_text(found) == "The new nodes cost 0.00 USD per hour."


def test_the_price_is_told_beside_the_bound() -> None:
    priced = replace(report(finished()), bound=0.032)

    assert price_text(priced) == (
        "The new nodes cost 0.04 USD per hour, 25 % more than the lower bound of any nodes for"
        " their pods (0.03 USD)."
    )


def test_the_terminal_shows_the_pods_the_nodes_and_the_faults() -> None:
    screen = StringIO()
    page = scale_up_page(report(bound(scaled(), 8, "shop/web-1")), ITS_RUN)
    print_page(page, Console(file=screen))

    shown = screen.getvalue()
    assert "m5.large" in shown
    assert "us-east-1a" in shown
    assert "EC2 takes one to two minutes" in shown
    assert "✗" in shown


def test_a_long_curve_is_thinned_and_keeps_its_last_point() -> None:
    journal = Journal()
    for second in range(200):
        created(journal, second, f"shop/web-{second}")
    shown = points_shown(report(journal).curve)

    assert len(shown) <= 14
    assert shown[-1].pending == 200


@pytest.mark.parametrize("journal", [finished(), scaled(), Journal()], ids=["good", "bad", "empty"])
def test_the_page_is_well_formed(journal: Journal) -> None:
    page = checked(render_page(scale_up_page(report(journal), ITS_RUN)))

    assert "EC2 takes one to two minutes" in page
    assert "leeway demo --scenario scale-up --seed 7 --replicas 3" in page


def test_the_areas_of_the_chart_cover_all_pods() -> None:
    shapes = lay_out_chart(report(finished())).shapes

    areas = [str(one.at["points"]) for one in shapes if one.tag == "polygon"]
    heights = [float(point.split(",")[1]) for points in areas for point in points.split()]
    assert (min(heights), max(heights)) == (24, 288)
    assert [one.kind for one in shapes if "mark" in one.kind] == ["mark launched", "mark ready"]


def test_the_data_is_json() -> None:
    data = json.loads(json.dumps(scale_up_as_data(report(finished()), ITS_RUN)))

    assert data["good"] is True
    assert data["nodes"] == [
        {
            "instanceType": "m5.large",
            "zone": "us-east-1a",
            "capacityType": "spot",
            "count": 1,
            "pricePerHour": 0.04,
        }
    ]
    assert data["summary"]["allRunningAfterSeconds"] == 9
    assert data["pods"][-1] == {
        "at": "2026-11-20T09:00:10.000+00:00",
        "pending": 0,
        "starting": 0,
        "running": 3,
    }
