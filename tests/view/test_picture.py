"""What the page shows, and what changes in it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from leeway.admission.record import Admission
from leeway.costs import CostHour, OwnerCost
from leeway.disruption.decide import decide_returns
from leeway.disruption.explain import follow
from leeway.disruption.snapshot import Snapshot
from leeway.provisioning.report import PodsWithoutNode
from leeway.reasons import Reason
from leeway_cli.explain.capacity import Capacity
from leeway_cli.logs import About, Level, parse_line
from leeway_cli.nodes.reading import Seen
from leeway_cli.nodes.rows import Records, rows_of
from leeway_cli.view.picture import (
    MOST_LINES,
    Change,
    LogLine,
    Picture,
    Pod,
    applied,
    difference,
    failed,
    picture_of,
    recorded_prices,
)

from tests.disruption.returning import launched
from tests.disruption.snapshots import NOW, own_node, snapshot
from tests.launch.pools import pods
from tests.retirement.retirements import interrupted
from tests.selection.workloads import spec
from tests.view.measure import MOVED, large, updated
from tests.view.pictures import AT, PICTURE, later, node, totals

CLUSTER = snapshot(own_node("full", spec(1500)), own_node("empty"))


def seen(given: Snapshot = CLUSTER, *admissions: Admission, plan: bool = True) -> Seen:
    course = follow(given, decide_returns(given)) if plan else None
    records = Records(admissions={one.facts.instance: one for one in admissions})
    rows = rows_of(given.own, (), course, records, NOW)
    return Seen(Capacity(given, (), {}, lambda _: None), course, rows)


def test_a_picture_has_nodes_pods_prices_and_the_plan_with_its_reasons() -> None:
    admission = launched(interrupted().facts).model_copy(update={"noticed_at": NOW})
    facts = admission.facts
    found = picture_of(seen(CLUSTER, admission), None, (), ["warning: a", "a"], "prod")
    assert {*found.nodes} == {"full", "empty", facts.private_dns_name}
    ((_, one),) = found.pods.items()
    assert (one.node, one.cpu) == ("full", 1500)
    assert found.nodes["full"].cpu[0] == 1500
    assert "gpus" not in msgspec.to_builtins(found.nodes["full"]), "the node has none"
    assert found.plan is not None
    first = found.plan[0]
    assert (first.nodes, first.cause, first.at) == (("empty",), "Empty", None)
    assert first.code
    assert first.reason.startswith("Node empty")
    assert found.prices == ((found.at, found.totals.price),)
    assert found.warnings == ("a",)
    coming = found.nodes[facts.private_dns_name]
    assert (coming.fate, coming.next) == ("starting", "starting")
    assert coming.clock_at == NOW.timestamp()


def test_a_picture_says_why_pods_get_no_node_while_pods_wait() -> None:
    why = PodsWithoutNode(reason=Reason("NoPool", "No pool takes\x1b it."), count=3, some=("a/b",))
    given = replace(seen(replace(CLUSTER, waiting=tuple(pods(1)))), without_node=(why,))
    found = picture_of(given, None, (), (), "prod")
    assert found.totals.waiting == 1
    (one,) = found.without
    assert (one.count, one.some, one.code) == (3, ("a/b",), "NoPool")
    assert "\x1b" not in one.reason
    assert not picture_of(replace(seen(), without_node=(why,)), None, (), (), "prod").without


def test_without_a_plan_nothing_is_said_of_savings() -> None:
    found = picture_of(seen(plan=False), None, (), (), "")
    assert (found.plan, found.totals.saving) == (None, None)


def test_savings_that_there_was_no_time_to_simulate_are_not_counted() -> None:
    whole = seen()
    assert picture_of(whole, None, (), (), "").totals.complete
    assert whole.course is not None
    cut = replace(whole, course=replace(whole.course, complete=False))
    assert not picture_of(cut, None, (), (), "").totals.complete


def test_a_settled_cluster_sends_only_a_price() -> None:
    first = picture_of(seen(), None, (), (), "prod")
    second = picture_of(seen(), first, (), (), "prod")
    change = difference(first, msgspec.structs.replace(second, at=first.at + 5))
    assert msgspec.to_builtins(change).keys() <= {"at", "prices"}


def test_lines_of_the_log_are_added_up_to_the_most() -> None:
    text = '{"level": "INFO", "message": "Done.", "code": "Done", "cluster": "prod"}'
    now = int(NOW.timestamp() * 1000)
    lines = [
        parse_line("reconcile", now + at, text, About(), Level.INFO) for at in range(MOST_LINES)
    ]
    first = picture_of(seen(), None, (one for one in lines if one), (), "prod")
    more = parse_line("reconcile", now + 10**6, text, About(), Level.INFO)
    assert more is not None
    second = picture_of(seen(), first, [more], (), "prod")
    assert len(second.log) == MOST_LINES
    assert [line.at for line in difference(first, second).log] == [NOW.timestamp() + 1000]


def test_characters_that_nobody_sees_are_shown() -> None:
    text = '{"level": "INFO", "message": "a \\u202e b", "code": "Done", "cluster": "prod"}'
    line = parse_line("reconcile", int(NOW.timestamp() * 1000), text, About(), Level.INFO)
    found = picture_of(seen(), None, [line] if line else [], ["\x1b[2J"], "prod")
    assert found.log[0].message == "a \\u202e b"
    assert found.warnings == ("\\u001b[2J",)
    assert failed(found, "\x9b", AT).problem == "\\u009b"


def test_prices_are_kept_for_an_hour() -> None:
    prices = tuple((AT + minute * 60.0, 1.0) for minute in range(60))
    change = difference(PICTURE, later(PICTURE, 3599, prices=(*PICTURE.prices, *prices)))
    assert len(applied(PICTURE, change).prices) == 61
    hour = timedelta(hours=1).total_seconds()
    assert applied(PICTURE, msgspec.structs.replace(change, at=AT + hour)).prices[0][0] == AT


def test_lines_of_the_log_are_kept_for_an_hour() -> None:
    lines = [LogLine(AT + at, "reconcile", "INFO", "", "", "") for at in (0, 60, 30)]
    first = later(PICTURE, 60, log=tuple(lines))
    for seconds, kept in ((3600, 3), (3601, 2), (3659, 2), (3661, 0)):
        after = applied(first, Change(at=AT + seconds))
        assert len(after.log) == kept, seconds
        new = later(after, 0, log=(*after.log, LogLine(AT + seconds, "admit-node", *"abcd")))
        assert len(difference(after, new).log) == 1


def test_a_clock_that_is_set_back_does_not_bring_the_page_back() -> None:
    first = picture_of(seen(), None, (), (), "prod")
    ahead = later(first, 10)
    assert picture_of(seen(), ahead, (), (), "prod").at == ahead.at
    assert failed(ahead, "no", first.at).at == ahead.at


def test_nodes_whose_prices_are_all_unknown_do_not_cost_nothing() -> None:
    found = seen()
    unknown = replace(found, rows=tuple(replace(one, price=None) for one in found.rows))
    assert picture_of(unknown, None, (), (), "").prices == ()
    some = replace(found, rows=(*unknown.rows[:1], *found.rows[1:]))
    assert len(picture_of(some, None, (), (), "").prices) == 1


def test_a_read_that_fails_keeps_what_was_seen() -> None:
    found = failed(PICTURE, "The API server did not answer.", AT + 5)
    assert (found.nodes, found.problem) == (PICTURE.nodes, "The API server did not answer.")
    assert msgspec.to_builtins(difference(PICTURE, found)) == {
        "at": AT + 5,
        "prices": ((AT + 5, None),),
        "problem": "The API server did not answer.",
    }


def test_the_time_of_reads_that_fail_is_a_gap_in_the_prices() -> None:
    lost = failed(failed(PICTURE, "no", AT + 5), "no", AT + 10)
    assert lost.prices == (*PICTURE.prices, (AT + 5, None))
    found = seen()
    again = picture_of(found, lost, (), (), "prod")
    assert again.prices[:-1] == lost.prices
    assert again.prices[-1][1] == again.totals.price
    unknown = replace(found, rows=tuple(replace(one, price=None) for one in found.rows))
    assert picture_of(unknown, again, (), (), "prod").prices[-1][1] is None


NAMES = st.sampled_from(["a", "b", "c", "d"])
NODES = st.builds(node, st.sampled_from(["x", "y"]), fate=st.sampled_from(["", "retires"]))
PODS = st.builds(Pod, NAMES, st.integers(0, 3), st.integers(0, 3))
LINES = st.builds(LogLine, st.just(AT), NAMES, NAMES, NAMES, NAMES, NAMES)


@st.composite
def two(draw: st.DrawFn) -> tuple[Picture, Picture]:
    def one(**more: Any) -> Picture:
        return Picture(
            cluster="prod",
            totals=totals(nodes=draw(st.integers(0, 2))),
            nodes=draw(st.dictionaries(NAMES, NODES)),
            pods=draw(st.dictionaries(NAMES, PODS)),
            plan=draw(st.sampled_from([None, (), PICTURE.plan])),
            without=draw(st.sampled_from([(), PICTURE.without])),
            warnings=draw(st.sampled_from([(), ("a",)])),
            recorded=draw(st.sampled_from([(), ((AT - 60, 1.0), (AT - 30, None))])),
            problem=draw(st.sampled_from(["", "no"])),
            **more,
        )

    first = one(at=AT, log=tuple(draw(st.lists(LINES, max_size=3))), prices=((AT, 1.0),))
    log = (*first.log, *draw(st.lists(LINES, max_size=2)))
    price = draw(st.sampled_from([2.0, None]))
    return first, one(at=AT + 5, log=log, prices=((AT, 1.0), (AT + 5, price)))


@given(two())
def test_a_change_leads_from_one_picture_to_the_next(pair: tuple[Picture, Picture]) -> None:
    before, after = pair
    change = difference(before, after)
    sent = msgspec.json.decode(msgspec.json.encode(change), type=type(change))
    assert applied(before, sent) == after


def test_an_update_of_a_large_cluster_is_small() -> None:
    picture = large()
    after = updated(picture, Random(1))  # noqa: S311 - repeatable on purpose
    change = difference(picture, after)
    assert len(change.pods) == MOVED
    assert len(msgspec.json.encode(change)) < 20_000


def test_recorded_prices_are_averages_with_their_gaps() -> None:
    begin = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)

    def hour(number: int, minutes: tuple[int, int], cost: OwnerCost) -> CostHour:
        first, last = (begin + timedelta(hours=number, minutes=one) for one in minutes)
        covered = ((first, last),) if last > first else ()
        return CostHour("prod", "", "", last, covered=covered, owners={"leeway/web": cost})

    hours = (
        hour(0, (0, 60), OwnerCost(2.0, 4.0, 10.0)),
        hour(1, (0, 30), OwnerCost(1.5, 3.0, 5.0)),
        hour(2, (0, 0), OwnerCost()),
        hour(3, (0, 60), OwnerCost(0.0, 0.0, 2.0, 2.0)),
    )
    at = begin.timestamp()
    assert recorded_prices(hours) == (
        (at, 2.0),
        (at + 3600, 3.0),
        (at + 5400, None),
        (at + 3 * 3600, None),
        (at + 4 * 3600, None),
    )
    assert recorded_prices(hours[:1]) == ((at, 2.0), (at + 3600, None)), "nothing is known since"
    assert recorded_prices(()) == ()
