"""What the report says about nodes of Leeway's own, launches and capacity that was short."""

from leeway_cli.report.evaluation import launch_texts, shortage_text
from leeway_cli.report.from_journal import report_from_journal
from leeway_cli.report.model import StormPlan, StormReport, Target
from leeway_cli.report.storm_page import storm_as_data

from tests.cli.journals import AGENT, INSTANCE, NODE, WEB, Journal
from tests.cli.test_report_output import RUN, page_of

NEW, NEXT = ("ip-10-0-0-20.ec2.internal", "i-20"), ("ip-10-0-0-21.ec2.internal", "i-21")
OTHER, OTHER_NODE = "i-2", "ip-10-0-0-2.ec2.internal"
PLAN = StormPlan(
    cluster="demo",
    targets=(Target(INSTANCE, NODE, "", pool="web"), Target(OTHER, OTHER_NODE, "", pool="web")),
    workloads={workload.owner: workload for workload in (WEB, AGENT)},
    late=80.0,
)


def place(kind: str, zone: str = "us-east-1a", market: str = "spot") -> dict[str, str]:
    return {"instance_type": kind, "zone": zone, "capacity_type": market}


def fleet(
    journal: Journal,
    at: float,
    launched: list[dict[str, str]],
    refused: list[dict[str, str]],
    pool: str = "web",
) -> Journal:
    """Add a fleet of a pool; empty for a fleet that Leeway did not request."""
    tags = {"leeway.sh/nodepool": pool} if pool else {}
    return journal.add(at, "fleet", tags=tags, launched=launched, refused=refused)


def storm() -> Journal:
    """Two nodes of a pool are interrupted; Spot is short, and one on-demand node is launched."""
    journal = Journal().notice(0.0).notice(0.1, OTHER)
    fleet(journal, -30, [{"instance": INSTANCE, **place("m5.large")}], [])
    code = "InsufficientInstanceCapacity"
    short = [("m5.large", "us-east-1a"), ("m5.xlarge", "us-east-1b"), ("m5.large", "us-east-1b")]
    fleet(journal, 2, [], [{"code": code, **place(*one)} for one in short])
    on_demand = place("m5.xlarge", market="on-demand")
    fleet(journal, 3, [{"instance": NEW[1], **on_demand}], [])
    return journal.node(*NEW, 8, 9)


def report(journal: Journal) -> StormReport:
    return report_from_journal(journal.entries, PLAN)


def test_an_on_demand_launch_after_refused_spot_capacity_is_a_fallback() -> None:
    (launch,) = report(storm()).launches

    assert (launch.instance, launch.pool, launch.fallback) == (NEW[1], "web", True)
    assert launch.node == NEW[0]
    assert launch.ready_at is not None


def test_an_on_demand_launch_of_another_pool_is_no_fallback() -> None:
    on_demand = {"instance": NEXT[1], **place("m5.large", market="on-demand")}
    journal = fleet(storm(), 4, [on_demand], [], pool="other")

    assert [one.fallback for one in report(journal).launches] == [True, False]


def test_a_spot_launch_is_no_fallback() -> None:
    journal = fleet(storm(), 4, [{"instance": NEXT[1], **place("m6i.large")}], [])

    assert [one.fallback for one in report(journal).launches] == [True, False]


def test_a_shortage_names_its_types_and_zones_once() -> None:
    (shortage,) = report(storm()).shortages

    assert shortage.instance_types == ("m5.large", "m5.xlarge")
    assert shortage.zones == ("us-east-1a", "us-east-1b")
    assert shortage.capacity_type == "spot"


def test_launches_before_the_storm_and_those_of_others_are_not_reported() -> None:
    journal = fleet(storm(), 5, [{"instance": "i-99", **place("m5.large")}], [], pool="")

    assert [one.instance for one in report(journal).launches] == [NEW[1]]


def test_one_launch_may_replace_several_nodes_of_a_pool() -> None:
    found = [node.trace.replacement for node in report(storm()).nodes]

    assert [one and one.instance for one in found] == [NEW[1], NEW[1]]


def test_two_launches_replace_two_nodes_in_the_order_of_their_notices() -> None:
    journal = fleet(storm(), 4, [{"instance": NEXT[1], **place("m6i.large")}], [])
    found = [node.trace.replacement for node in report(journal).nodes]

    assert [one and one.instance for one in found] == [NEW[1], NEXT[1]]


def test_a_storm_without_launches_leaves_the_nodes_of_a_pool_without_a_replacement() -> None:
    journal = Journal().notice(0.0).notice(0.1, OTHER)

    assert "No replacement was launched." in report(journal).nodes[0].faults


def test_sentences_tell_the_shortage_and_the_fallback() -> None:
    found = report(storm())
    (shortage,), (launch,) = map(shortage_text, found.shortages), launch_texts(found.launches)

    assert shortage.startswith("Spot capacity was short for pool web: 2 instance types in 2 zones")
    assert "InsufficientInstanceCapacity" in shortage
    assert launch == "Leeway launched 1 on-demand m5.xlarge for pool web, instead of Spot."


def test_the_page_shows_owners_launches_and_shortages() -> None:
    page = page_of(report(storm()))

    assert "Leeway, pool web" in page
    assert "What Leeway launched" in page
    assert "instead of Spot" in page
    assert "Spot capacity was short for pool web" in page


def test_the_document_has_owners_launches_and_shortages() -> None:
    data = storm_as_data(report(storm()), RUN)

    assert [(node["group"], node["pool"]) for node in data["nodes"]] == [(None, "web")] * 2
    assert data["launches"][0]["instanceType"] == "m5.xlarge"
    assert data["launches"][0]["fallback"] is True
    assert data["shortages"][0]["code"] == "InsufficientInstanceCapacity"


def test_the_page_of_a_storm_without_pools_says_nothing_about_launches() -> None:
    page = page_of(report(Journal().notice()))

    assert "What Leeway launched" not in page


def faults(journal: Journal) -> list[str]:
    """The faults of the launches."""
    return [one for one in report(journal).faults if "Leeway launched" in one]


def test_a_launched_node_that_runs_a_pod_is_no_fault() -> None:
    assert faults(storm().runs("shop/web-1", WEB, at=10, node=NEW[0])) == []


def test_a_launched_node_that_no_pod_needs_is_a_fault() -> None:
    agents = storm().runs("kube-system/node-agent-1", AGENT, at=10, node=NEW[0])

    (fault,) = faults(agents)
    assert fault == f"Leeway launched {NEW[1]} for pool web, and no pod needed it."


def test_a_launched_instance_that_does_not_become_ready_is_a_fault() -> None:
    journal = fleet(storm(), 4, [{"instance": NEXT[1], **place("m6i.large")}], [])

    (fault,) = faults(journal.runs("shop/web-1", WEB, at=10, node=NEW[0]))
    assert fault == f"Leeway launched {NEXT[1]} for pool web, and it did not become Ready."


def test_the_admission_of_an_own_node_is_no_report_about_its_retirement() -> None:
    def said(journal: Journal, at: float, title: str, result: str) -> None:
        detail = {"instance": INSTANCE, "result": result}
        journal.add(at, "put-events", source="leeway", detail_type=title, detail=detail)

    journal = storm()
    said(journal, 2, "Leeway Node Admitted", "admitted")
    said(journal, 30, "Leeway Node Retired", "drained")

    events = report(journal).nodes[0].trace.leeway_events
    assert [event.result for event in events] == ["drained"]
