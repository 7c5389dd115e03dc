"""`leeway metrics`: OpenMetrics that Prometheus reads, and the Grafana dashboard over it."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.costs import COST, CostHour, NodeCount, OwnerCost
from leeway.launch.prices import SpendingLimit
from leeway.provisioning.report import STATUS, PodsWithoutNode, ProvisioningStatus
from leeway.provisioning.tell import BUCKETS, POD_WAITS, PodWaits
from leeway.reasons import Reason
from leeway_cli import main
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.metrics import (
    CONTENT_TYPE,
    METRICS,
    MOST_SERIES,
    TO_NODE,
    Families,
    add_costs,
    exposition,
    server_of,
)
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.aws.stored import table_in
from tests.cli.test_cost import store
from tests.cli.test_status import pause, retire, spoil
from tests.sandbox.aws.started import Sandbox

type Run = Callable[..., tuple[int, str, str]]

LIMITS = {"": 100.0, "web": 2.0}
"""USD per hour; the one without a pool is that of the cluster."""

DASHBOARD = Path(__file__).parents[2] / "dashboards" / "leeway.json"


@pytest.fixture
def run(aws: Sandbox, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main.run(["metrics", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The samples of each metric, as Prometheus's own parser reads them."""
    return {
        family.name: {
            tuple(sorted(sample.labels.items())): sample.value for sample in family.samples
        }
        for family in text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    }


def test_an_empty_cluster_has_its_settings_alone(run: Run) -> None:
    code, out, err = run("--cluster", "prod")
    assert (code, err) == (0, "")
    assert out.endswith("# EOF\n")
    assert set(parsed(out)) == {
        "leeway_paused",
        "leeway_dry_run",
        "leeway_manifest_problems",
        "leeway_unreadable_records",
        "leeway_admissions",
    }


def test_everything_that_the_table_knows_is_shown(run: Run, aws: Sandbox) -> None:
    nodes = (NodeCount("leeway/web", 3, 0.5, 1.5, {"m5.large spot": 2, "c5.large on-demand": 1}),)
    store(aws, timedelta(minutes=2), nodes=nodes)
    retire(aws)
    pause(aws)
    status = ProvisioningStatus(
        cluster="prod",
        run_at=datetime.now(UTC),
        why="a pod waits",
        pods=9,
        waiting=7,
        waiting_since=datetime(2026, 11, 28, 18, tzinfo=UTC),
        without_node=(
            PodsWithoutNode(reason=Reason("NoPool", "No pool."), count=4, some=("shop/a",)),
        ),
        spending=tuple(SpendingLimit("prod", pool, most, 0.5) for pool, most in LIMITS.items()),
    )
    table_in(aws).put(STATUS, status)
    waits = PodWaits("prod", version=1, counts={45: 8, 60: 1}, count=10, seconds=7500)
    table_in(aws).put(POD_WAITS, waits)
    found = parsed(run("--cluster", "prod")[1])
    assert set(found) == set(METRICS)
    assert list(found["leeway_pods_waiting"].values()) == [7]
    since = found["leeway_pods_waiting_since_timestamp_seconds"]
    assert list(since.values()) == [status.waiting_since and status.waiting_since.timestamp()]
    owner = (("owner", "web"), ("owner_kind", "leeway"))
    on_spot = (("capacity_type", "spot"), ("cluster", "prod"), ("instance_type", "m5.large"))
    assert found["leeway_nodes"][(*on_spot, *owner)] == 2
    assert found["leeway_node_cost_usd_per_hour"][(("cluster", "prod"), *owner)] == 0.5
    shop = (("cluster", "prod"), ("namespace", "shop"))
    assert found["leeway_namespace_cost_usd_per_hour"][shop] == pytest.approx(1.0 * 60 / 50)
    assert found["leeway_last_day_cost_usd"] == {(("cluster", "prod"),): 2.0}
    assert list(found["leeway_pods_without_node"].values()) == [4]
    limits = found["leeway_pool_cost_limit_usd_per_hour"]
    assert limits == {(("cluster", "prod"), ("pool", pool)): most for pool, most in LIMITS.items()}
    assert list(found["leeway_pool_paused"].values()) == [1]
    assert list(found["leeway_retirements"].values()) == [1]


def test_records_that_cannot_be_read_are_left_out_and_counted(run: Run, aws: Sandbox) -> None:
    record = retire(aws)
    pause(aws)
    table_in(aws).put(STATUS, ProvisioningStatus(cluster="prod", run_at=datetime.now(UTC)))
    table_in(aws).put(POD_WAITS, PodWaits("prod", version=1))
    spoil(aws, f"RETIREMENT#prod#{record.instance}")
    spoil(aws, "POOLS#prod")
    spoil(aws, "PROVISIONING#prod", "WAITS")
    code, out, _ = run("--cluster", "prod")
    found = parsed(out)
    assert code == 0
    assert list(found["leeway_unreadable_records"].values()) == [3]
    assert list(found["leeway_provisioning_problems"].values()) == [0]
    assert not found.keys() & {"leeway_retirements", "leeway_pool_paused", TO_NODE}


def test_the_times_of_pods_to_their_nodes_are_a_histogram() -> None:
    found = Families()
    found.waits = [
        PodWaits(cluster, counts={45: 8, 60: 1}, count=10, seconds=7500)
        for cluster in ("test", "prod")
    ]
    (family,) = text_string_to_metric_families(exposition(found))  # type: ignore[no-untyped-call]
    assert family.type == "histogram"
    prod = [(one.name, one.labels, one.value) for one in family.samples if "prod" in str(one)]
    buckets = {labels["le"]: value for _, labels, value in prod if "le" in labels}
    assert len(buckets) == len(BUCKETS) + 1
    picked = [buckets[one] for one in ("1.0", "40.0", "45.0", "60.0", "3600.0", "+Inf")]
    assert picked == [0, 0, 8, 9, 9, 10]
    assert [(name, value) for name, labels, value in prod if "le" not in labels] == [
        ("leeway_pods_bound_duration_seconds_count", 10),
        ("leeway_pods_bound_duration_seconds_sum", 7500),
    ]


def at(end: datetime, **fields: Any) -> CostHour:
    covered = ((end - timedelta(minutes=30), end),)
    owners = {"leeway/web": OwnerCost(1.0)}
    values: dict[str, Any] = {"covered": covered, "owners": owners, "namespaces": {"shop": 0.5}}
    return CostHour("prod", f"{end:%Y-%m-%d}", f"{end:%H}", end, **{**values, **fields})


def test_what_is_not_recorded_any_more_is_not_shown_as_current() -> None:
    end = datetime(2026, 11, 23, 12, 40, tzinfo=UTC)
    nodes = (NodeCount("leeway/web", 1, 0.5, 1.5, {"m5.large spot": 1}),)
    old = at(end - timedelta(hours=5), namespaces={"old": 9.0})
    for minutes, shown in ((14, True), (16, False)):
        found = Families()
        add_costs(found, "prod", [old, at(end, nodes=nodes)], end + timedelta(minutes=minutes))
        for name in METRICS:
            if name.startswith("leeway_node"):
                assert bool(found.values[name]) is shown, name
        hourly = found.values["leeway_namespace_cost_usd_per_hour"]
        assert hourly == ({(("cluster", "prod"), ("namespace", "shop")): 1.0} if shown else {})
        assert found.values["leeway_last_day_cost_usd"] == {(("cluster", "prod"),): 2.0}
        assert found.values["leeway_cost_recorded_timestamp_seconds"]


def test_a_cost_that_is_not_known_yet_is_missing_rather_than_zero() -> None:
    end = datetime(2026, 11, 23, 12, 40, tzinfo=UTC)
    found = Families()
    add_costs(
        found,
        "prod",
        [at(end, nodes=(NodeCount("leeway/web", 2, 0, 0, {"m5.large spot": 2}),))],
        end,
    )
    assert list(found.values["leeway_nodes"].values()) == [2]
    assert not found.values["leeway_node_cost_usd_per_hour"]
    assert not found.values["leeway_node_cost_on_demand_usd_per_hour"]


def test_a_day_is_this_hour_and_the_23_before_it(run: Run, aws: Sandbox) -> None:
    for ago in (0, 22, 24):
        table_in(aws).put(COST, at(datetime.now(UTC) - timedelta(hours=ago)))
    found = parsed(run("--cluster", "prod")[1])
    assert found["leeway_last_day_cost_usd"] == {(("cluster", "prod"),): 2.0}


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, text in METRICS.items():
        assert re.fullmatch(r"leeway(_[a-z]+)+", name)
        assert not name.endswith(("_total", "_count", "_sum", "_bucket", "_info")), "of other types"
        assert ("timestamp" in name) == name.endswith("_timestamp_seconds")
        assert ("cost" in name or "usd" in name) <= ("usd" in name or "recorded" in name)
        assert text.endswith(".")
        assert "\n" not in text


@given(st.text(), st.floats(allow_nan=True))
def test_any_label_and_value_is_read_back(text: str, value: float) -> None:
    found = Families()
    found.add("leeway_pods_waiting", value, cluster=text)
    samples = parsed(exposition(found)).get("leeway_pods_waiting", {})
    assert all(labels == (("cluster", text),) for labels in samples)
    assert len(samples) == (value == value and abs(value) != float("inf"))


def test_the_number_of_series_is_bounded_and_the_sum_is_kept() -> None:
    found = Families()
    name = "leeway_namespace_cost_usd_per_hour"
    for number in range(3 * MOST_SERIES):
        found.add(name, number, cluster="prod", namespace=f"ns-{number}")
    found.add(name, 1.0, cluster="test", namespace="shop")
    samples = parsed(exposition(found))[name]
    assert len(samples) == MOST_SERIES + 2
    assert sum(samples.values()) == sum(range(3 * MOST_SERIES)) + 1
    assert samples[(("cluster", "prod"), ("namespace", "*"))] > 0


@contextmanager
def serving(read: Callable[[], str]) -> Iterator[str]:
    with server_of(read, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_scrapes_share_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leeway_cli.metrics.READ_EVERY", 3600.0)
    reads: list[int] = []

    def read() -> str:
        reads.append(1)
        return "# EOF"

    with serving(read) as url:
        for _ in range(3):
            answer = httpx.get(f"{url}/metrics", timeout=60)
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert answer.text == "# EOF\n"
    assert len(reads) == 1


def test_a_table_that_does_not_answer_fails_the_scrape_and_not_the_server() -> None:
    answers: list[str | Exception] = ["# EOF", CannotBeDoneError("table leeway does not answer.")]

    def read() -> str:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    with serving(read) as url:
        failed = httpx.get(f"{url}/metrics", timeout=60)
        assert failed.status_code == 503
        assert "does not answer" in failed.text
        assert httpx.get(f"{url}/metrics", timeout=60).status_code == 200
        assert httpx.get(f"{url}/other", timeout=60).status_code == 404


@pytest.mark.parametrize("address", ["9468", ":9468", "localhost:", "localhost:http", "a:70000"])
def test_an_address_that_is_none_is_refused(run: Run, address: str) -> None:
    code, _, err = run("--cluster", "prod", "--address", address)
    assert code == 2
    assert "--address: expected HOST:PORT such as 127.0.0.1:9468" in err


def test_a_port_that_is_taken_is_one_line(run: Run) -> None:
    with serving(lambda: "") as url:
        code, _, err = run("--cluster", "prod", "--serve", "--address", url.removeprefix("http://"))
    assert code == 1
    assert re.search(r"--address: can't listen on 127.0.0.1:\d+: ", err)


def test_the_panels_of_grafana_read_metrics_that_exist() -> None:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    queries = [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]
    queries += [one["definition"] for one in dashboard["templating"]["list"] if "definition" in one]
    names = {name for query in queries for name in re.findall(r"leeway_\w+", query)}
    named = {name.removesuffix("_bucket") for name in names}
    assert named == set(METRICS), "each metric has a panel"
    labels = {"cluster", "owner_kind", "owner", "namespace", "cause", "instance_type"}
    labels |= {"capacity_type", "reason", "kind", "phase", "le"}
    for panel in dashboard["panels"]:
        for one in panel["targets"]:
            by = re.findall(r"by \(([^)]*)\)", one["expr"])
            used = {name.strip() for group in by for name in group.split(",")}
            used |= set(re.findall(r"{{(\w+)}}", one["legendFormat"]))
            assert used <= labels
            assert one["expr"].count("(") == one["expr"].count(")")
    cells = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(one["x"] + one["w"] <= 24 for one in cells)
    assert len({(one["x"], one["y"]) for one in cells}) == len(cells)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(cells)
