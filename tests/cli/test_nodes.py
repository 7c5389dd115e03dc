"""`leeway nodes`: a line a node, by a kubeconfig alone, and with the table."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from leeway.disruption.explain import ForeignNode, title_of
from leeway.instances.facts import Owner, OwnerKind
from leeway_cli import main
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.explain.capacity import KeptOffers, Source
from leeway_cli.nodes.command import bar, rendered
from leeway_cli.nodes.rows import (
    Fate,
    NodeRow,
    Records,
    Share,
    Sort,
    clock,
    ordered,
    rows_of,
    totals_of,
)
from leeway_cli.output import kept_warnings, write_stderr
from leeway_cli.selection.sources import Offers, sandbox_catalog
from leeway_cli.stack import open_cluster

from tests.cli.test_explain_capacity import MANY, budget, node, pod
from tests.cli.test_status import retire
from tests.disruption.returning import launched
from tests.disruption.snapshots import own_node
from tests.launch.launching import NOW
from tests.launch.pools import node_class, pool
from tests.retirement.retirements import interrupted
from tests.sandbox.aws.started import Sandbox
from tests.sandbox.kubernetes.live import PODS, bare_pod, running_cluster

type Run = Callable[..., tuple[int, str, str]]

NO_AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION")


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command on objects: its exit code, stdout and stderr."""

    def show(*words: str, objects: list[dict[str, Any]], pools: bool = True) -> Any:
        general = pool("general", ["on-demand"], disruption=MANY, template={"expireAfter": "Never"})
        (tmp_path / "pools.yaml").write_text(yaml.safe_dump_all([general, node_class()]))
        cluster = {"apiVersion": "v1", "kind": "List", "items": objects}
        (tmp_path / "cluster.json").write_text(json.dumps(cluster))
        given = ["-f", str(tmp_path / "pools.yaml")] if pools else []
        given += ["--nodes", str(tmp_path / "cluster.json"), "--sandbox"]
        code = main.run(["nodes", *given, *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return show


OBJECTS = [
    node("empty"),
    node("full", team="web"),
    node("blocked"),
    pod("p1", "full", "6"),
    pod("p2", "blocked", "7", labels={"app": "db"}),
    budget("db", "db"),
]


def test_each_node_has_a_line_and_the_totals_come_last(run: Run) -> None:
    code, out, err = run("--sort", "name", "-L", "team", objects=OBJECTS)
    assert code == 0, err
    lines = out.splitlines()
    titles = "NAME TYPE CAPACITY ZONE OWNER AGE CPU MEMORY PODS USD/H TEAM NEXT"
    assert lines[0].split() == titles.split()
    blocked, empty, full = (line.split("   ") for line in lines[1:4])
    assert (blocked[0], empty[0], full[0]) == ("blocked", "empty", "full")
    assert "web" in " ".join(full)
    assert blocked[-1].strip() == "kept: PodIsBlocked"
    assert empty[-1].strip() == "empty, goes now"
    assert "███████░  88%" in lines[1]
    assert "░░░░░░░░   0%" in lines[2]
    totals = "\n".join(lines[4:])
    assert "3 nodes, 24.0 vCPU (54% requested)" in totals
    assert "could save" in totals


def test_json_has_amounts_prices_and_what_happens_next(run: Run) -> None:
    code, out, err = run("-o", "json", "--sort", "cpu", objects=OBJECTS)
    assert code == 0, err
    found = json.loads(out)
    first = found["nodes"][0]
    assert (first["name"], first["owner"]) == ("blocked", "pool general")
    assert first["cpu"] == {"requested": 7.0, "allocatable": 8.0, "share": 0.875}
    assert first["pods"]["requested"] == 1
    assert (first["fate"], first["next"]) == ("kept", "kept: PodIsBlocked")
    prices = [one["pricePerHour"] for one in found["nodes"]]
    assert found["totals"]["pricePerHour"] == pytest.approx(sum(prices))
    assert found["totals"]["savingPerHour"] > 0
    assert found["totals"]["cpu"]["requested"] == 13.0


def test_wide_has_the_instance_and_the_price_a_month(run: Run) -> None:
    _, out, _ = run("-o", "wide", "-L", "a.example/owner", objects=OBJECTS)
    assert "A.EXAMPLE/OWNER" in out, "a column of this name is there"
    assert {"USD/MONTH", "INSTANCE", "READY"} <= set(out.splitlines()[0].split())
    assert OBJECTS[0]["spec"]["providerID"].rpartition("/")[2] in out


def test_without_pools_nothing_is_planned_and_nothing_is_warned_of(run: Run) -> None:
    code, out, err = run(objects=OBJECTS, pools=False)
    assert (code, err) == (0, "")
    assert "could save" not in out
    assert "kept" not in out


def test_nodes_are_chosen_by_name_or_instance(run: Run) -> None:
    instance = OBJECTS[0]["spec"]["providerID"].rpartition("/")[2]
    for given in ("empty", "node/empty", instance):
        _, out, _ = run(given, "-o", "json", objects=OBJECTS)
        assert [one["name"] for one in json.loads(out)["nodes"]] == ["empty"]
    code, _, err = run("empti", objects=OBJECTS)
    assert code == 1
    assert err.endswith("leeway: The cluster has no node empti.\n")


def test_a_node_that_is_not_ready_is_starting_or_broken(run: Run) -> None:
    from datetime import UTC, datetime

    young, old = node("young"), node("old")
    for one in (young, old):
        one["status"]["conditions"][0]["status"] = "False"
    created = datetime.now(UTC) - timedelta(seconds=70)
    young["metadata"]["creationTimestamp"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    _, out, _ = run("-o", "json", objects=[young, old])
    found = {one["name"]: one["next"] for one in json.loads(out)["nodes"]}
    assert found["young"].startswith("starting 1:")
    assert found["old"] == "not Ready"


def test_gpus_have_a_column_if_a_node_has_some(run: Run) -> None:
    gpu = node("gpu", "g5.2xlarge")
    for amounts in ("capacity", "allocatable"):
        gpu["status"][amounts] = {**gpu["status"][amounts], "nvidia.com/gpu": "1"}
    _, out, _ = run(objects=[gpu])
    assert "GPUS" in out
    assert "1 GPU (0% requested)" in out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--watch",), "--watch: expected a cluster and a table"),
        (("-l", "a=b"), "--selector: expected a cluster"),
        (("--sort", "size"), "'size' is not one of"),
    ],
)
def test_options_that_do_not_fit_get_one_line(
    run: Run, words: tuple[str, ...], problem: str
) -> None:
    code, out, err = run(*words, objects=OBJECTS)
    assert (code, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1


def test_a_retirement_of_the_table_has_its_deadline(aws: Sandbox, run: Run) -> None:
    record = retire(aws)
    retiring = node("leaving")
    retiring["spec"]["providerID"] = f"aws:///us-east-1a/{record.instance}"
    code, out, err = run("--cluster", "prod", "-o", "json", objects=[retiring])
    assert code == 0, err
    found = {one["name"]: one["next"] for one in json.loads(out)["nodes"]}
    assert found["leaving"].startswith("retires in 1:")


def test_a_kubeconfig_alone_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NO_AWS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with running_cluster(tmp_path) as live:
        first, second = live.add_nodes(1, 2)
        live.create(PODS, bare_pod("web", nodeName=first))
        given = ["--kubeconfig", str(live.kubeconfig()), "-o", "json"]
        assert main.run(["nodes", *given]) == 0
        found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["nodes"]}
        assert found.keys() == {first, second}
        assert (found[first]["pods"]["requested"], found[second]["pods"]["requested"]) == (1, 0)
        assert found[first]["pricePerHour"] is None
        assert main.run(["nodes", *given, "-l", f"kubernetes.io/hostname={second}"]) == 0
        (chosen,) = json.loads(capsys.readouterr().out)["nodes"]
        assert chosen["name"] == second
        assert main.run(["nodes", *given, "-l", "a=b=c"]) == 2
        assert "expected labels that the API server accepts" in capsys.readouterr().err
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                raise KeyboardInterrupt
            live.create(PODS, bare_pod("db", nodeName=second))

        monkeypatch.setattr("leeway_cli.nodes.command.time.sleep", sleep)
        given = ["--kubeconfig", str(live.kubeconfig()), "--watch"]
        assert main.run(["nodes", *given]) == 0
        shown = capsys.readouterr().out
        assert [" 1 pod\n" in shown, " 2 pods\n" in shown] == [True, True]


def test_a_named_cluster_is_read_at_its_own_server_whatever_the_current_context_is(
    aws: Sandbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authority = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(str(authority))
    endpoint = {"endpoint": "https://prod.example", "ca_file": str(authority)}
    aws.control("PUT", "links", {"eks": {"named": endpoint}})
    staging = tmp_path / "kubeconfig"
    parts = {"cluster": {"server": "https://staging.example"}, "user": {"token": "t"}}
    parts["context"] = {"cluster": "x", "user": "x"}
    lists = {f"{part}s": [{"name": "x", part: value}] for part, value in parts.items()}
    staging.write_text(json.dumps({**lists, "current-context": "x"}))
    monkeypatch.setenv("KUBECONFIG", str(staging))

    assert open_cluster("named", None, None).server == "https://prod.example"
    assert capsys.readouterr().err == ""
    assert open_cluster("", None, None).server == "https://staging.example"
    assert capsys.readouterr().err == ""
    assert open_cluster("named", None, "x").server == "https://staging.example"
    assert "cluster named has https://prod.example" in capsys.readouterr().err
    assert open_cluster("unknown", None, None).server == "https://staging.example"
    assert "warning: the kubeconfig is used for cluster unknown: " in capsys.readouterr().err


def test_offers_are_kept_for_some_minutes_with_what_was_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now, calls = [0.0], [0]

    def find(*_: object, **__: object) -> Offers:
        calls[0] += 1
        if calls[0] in {1, 3}:
            raise CannotBeDoneError("EC2 does not answer.")
        write_stderr("The table has no catalog.")
        write_stderr("warning: no Spot prices")
        return Offers(sandbox_catalog())

    source = Source((), (), "", None, None, True, None, "leeway", optional=True)
    offers = KeptOffers(source, find, lambda: now[0])
    seen = []
    for now[0] in (0, 5, 60, 65, 600, 660, 665, 720):
        seen.append((calls[0], bool(offers.read().catalog.names), capsys.readouterr().err))
    failed = "EC2 does not answer.\n"
    assert seen == [
        (0, False, f"warning: no price is known: {failed}"),
        (1, False, f"warning: no price is known: {failed}"),
        (1, True, "The table has no catalog.\nwarning: no Spot prices\n"),
        (2, True, "warning: no Spot prices\n"),
        (2, True, "warning: no Spot prices\n"),
        (2, True, f"warning: the prices of before are shown: {failed}"),
        (3, True, f"warning: the prices of before are shown: {failed}"),
        (3, True, "The table has no catalog.\nwarning: no Spot prices\n"),
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_clusters_that_are_read_at_the_same_time_share_the_offers_and_the_warnings(
    fails: bool,
) -> None:
    calls = []

    def find(*_: object, **__: object) -> Offers:
        calls.append(1)
        write_stderr("warning: no Spot prices")
        if fails:
            raise CannotBeDoneError("EC2 does not answer.")
        return Offers(sandbox_catalog())

    source = Source((), (), "", None, None, True, None, "leeway", optional=True)
    offers = KeptOffers(source, find)

    def read(_: int) -> tuple[int, list[str]]:
        with kept_warnings() as said:
            return len(offers.read().catalog.names), said

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(read, range(8))
    assert (bool(first[0]), len(first[1])) == (not fails, 1 + fails)
    assert others == [first] * 7
    assert len(calls) == 1


def test_an_instance_that_was_launched_and_has_not_joined_is_starting() -> None:
    facts = interrupted().facts
    records = Records(admissions={facts.instance: launched(facts)})
    (one,) = rows_of((), (), None, records, NOW + timedelta(seconds=40))
    assert (one.instance, one.next, one.ready) == (facts.instance, "starting 0:40", False)


def test_an_instance_that_was_detached_has_the_owner_of_its_retirement() -> None:
    record = interrupted()
    one = replace(own_node("n-1"), instance=record.instance)
    nobody = [ForeignNode(one, Owner(OwnerKind.NONE))]
    assert record.facts.owner.kind is OwnerKind.AUTO_SCALING_GROUP
    for records, owner in (
        (Records(), Owner(OwnerKind.NONE)),
        (Records(retirements={record.instance: record}), record.facts.owner),
    ):
        (found,) = rows_of((), nobody, None, records, NOW)
        assert found.owner == title_of(owner)


def row(name: str, **given: Any) -> NodeRow:
    from datetime import UTC, datetime

    base: dict[str, Any] = {
        "instance": "",
        "instance_type": "m5.large",
        "capacity_type": "spot",
        "zone": "a",
        "owner": "pool x",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "ready": True,
    }
    return NodeRow(name, **base | given)


def test_rows_are_sorted_by_what_is_asked_for_then_by_name() -> None:
    rows = [
        row("c", price=1.0, fate=Fate.KEPT, next="kept: A", cpu=Share(1, 4)),
        row("b", price=2.0, next="", cpu=Share(3, 4)),
        row("a", price=None, fate=Fate.RETIRES, next="retires in 1:00", cpu=Share(1, 4)),
    ]
    names = {by: "".join(one.name for one in ordered(rows, by)) for by in Sort}
    assert names[Sort.PRICE] == "bca"
    assert names[Sort.CPU] == "bac"
    assert names[Sort.NEXT] == "acb"
    assert names[Sort.OWNER] == names[Sort.NAME] == "abc"


def test_totals_say_how_many_prices_are_not_known() -> None:
    totals = totals_of([row("a", price=1.0), row("b")], None)
    assert (totals.price, totals.without_price, totals.saving) == (1.0, 1, None)


def test_totals_say_how_many_licences_the_price_lacks() -> None:
    rows = [row("a", price=1.0, labels={"kubernetes.io/os": "windows"}), row("b", price=1.0)]
    totals = totals_of(rows, None)
    assert totals.windows == 1
    assert "2.0000 USD per hour, 1,460.00 a month, without 1 Windows licence" in rendered(
        rows, totals, False, ()
    )


def test_totals_of_nodes_whose_prices_are_all_unknown_have_no_price() -> None:
    rows = [row("a"), row("b")]
    shown = rendered(rows, totals_of(rows, None), False, ())
    assert "\nno price is known" in shown
    assert "USD per hour" not in shown
    assert "0.0000 USD per hour, 0.00 a month" in rendered([], totals_of([], None), False, ())


def test_savings_are_at_least_what_there_was_time_to_simulate() -> None:
    rows = [row("a", price=1.0)]
    for complete, words in ((True, "\ncould save 0.5000"), (False, "\ncould save at least 0.5000")):
        totals = totals_of(rows, 0.5, complete=complete)
        assert words in rendered(rows, totals, False, ())


def test_a_table_that_is_wider_than_the_terminal_leaves_out_columns() -> None:
    name, owner = "ip-10-0-1-7.ec2.internal", "Auto Scaling group web"
    rows = [
        row(name, owner=owner, zone="us-east-1a", labels={"team": "web"}, fate=Fate.KEPT, next="k")
    ]

    def shown(width: int | None) -> list[str]:
        table = rendered(rows, totals_of(rows, None), False, ["team"], width)
        return table.plain.partition("\n\n")[0].splitlines()

    whole = shown(None)
    assert shown(len(whole[0]) + 20) == whole
    for width in (130, 100, 80, 60):
        head, line = shown(width)
        assert max(len(head), len(line)) <= width
        assert line.startswith("ip-10-0-1-7 ")
        assert head.split()[:2] == ["NAME", "TYPE"]
        assert (head.split()[-2:], line.split()[-2:]) == (["TEAM", "NEXT"], ["web", "k"])
    assert "MEMORY" in shown(100)[0]
    assert "ZONE" not in shown(100)[0]


def test_what_happens_next_has_its_colour() -> None:
    rows = [
        row("a", fate=Fate.RETIRES, next="retires in 1:12", cpu=Share(5, 10)),
        row("b", fate=Fate.KEPT, next="kept: PodIsBlocked"),
    ]
    table = rendered(rows, totals_of(rows, None), False, ())
    styles = {table.plain[one.start : one.end]: str(one.style) for one in table.spans}
    assert styles["retires in 1:12"] == "bold red"
    assert styles["kept: PodIsBlocked"] == "dim"
    assert styles["████"] == "green"


def test_bars_and_clocks() -> None:
    assert bar(Share(0, 0)) == "-"
    assert bar(Share(5, 10)) == "████░░░░  50%"
    assert bar(Share(15, 10)) == "████████ 150%"
    assert clock(timedelta(seconds=72)) == "1:12"
    assert clock(timedelta(hours=1, seconds=3)) == "1:00:03"
    assert clock(timedelta(seconds=-5)) == "0:00"
