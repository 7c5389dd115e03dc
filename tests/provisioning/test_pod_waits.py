"""The time from a pod's creation to its node counts once, for pods that a run saw waiting."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.ports.aws import CloudUnavailable
from leeway.provisioning.cluster_state import BoundPod, ObservedPod
from leeway.provisioning.report import POD_BOUND
from leeway.provisioning.tell import BUCKETS, MOST_WATCHED, POD_WAITS, PodWaits, settle
from leeway.selection.offers.catalog import Catalog
from leeway.table import Item

from tests.launch.launching import NOW
from tests.launch.pools import pods
from tests.provisioning.buying import Buying, big_pods, waiting
from tests.provisioning.test_records import LARGEST

EMPTY = PodWaits("prod")


def bound(pod: ObservedPod, seconds: float) -> BoundPod:
    at = pod.created_at + timedelta(seconds=seconds)
    return BoundPod(pod.pod.name, pod.uid, "n-1", pod.created_at, at)


def seen(count: int) -> list[ObservedPod]:
    return waiting(pods(count))


def test_a_pod_that_a_run_saw_waiting_counts_when_it_is_bound() -> None:
    first, second = seen(2)
    waits, found = settle(EMPTY, [first, second], [])
    assert not found
    waits, found = settle(waits, [second], [bound(first, 42)])
    assert [(one.name, one.seconds) for one in found] == [(first.pod.name, 42)]
    assert (waits.count, waits.seconds, waits.counts) == (1, 42, {45: 1})
    waits, found = settle(waits, [], [bound(first, 42), bound(second, 7000)])
    assert [one.seconds for one in found] == [7000]
    assert (waits.count, waits.seconds, waits.counts) == (2, 7042, {45: 1})


def test_a_pod_that_no_run_saw_waiting_does_not_count() -> None:
    """The scheduler binds most pods to nodes that exist."""
    (pod,) = seen(1)
    assert settle(EMPTY, [], [bound(pod, 1)]) == (EMPTY, ())


def test_a_pod_that_is_deleted_while_it_waits_does_not_count() -> None:
    waits, _ = settle(EMPTY, seen(1), [])
    assert settle(waits, [], []) == (EMPTY, ())


def test_a_pod_that_fits_nowhere_waits_and_does_not_count() -> None:
    nowhere, pod = seen(2)
    waits, _ = settle(EMPTY, [nowhere, pod], [])
    for _ in range(3):
        before = waits
        waits, _ = settle(waits, [nowhere], [bound(pod, 30)])
    assert (waits, waits.count) == (before, 1), "nothing is written while nothing changes"


def test_clocks_of_two_api_servers_that_differ_make_no_negative_time() -> None:
    (pod,) = seen(1)
    waits, _ = settle(EMPTY, [pod], [])
    assert [one.seconds for one in settle(waits, [], [bound(pod, -1)])[1]] == [0]


def test_the_record_of_any_number_of_pods_fits_into_an_item() -> None:
    """Of too many pods a part is watched that neither age nor name chooses."""
    many = [replace(one, uid=f"uid-{n}") for n, one in enumerate(seen(1) * (3 * MOST_WATCHED))]
    waits, _ = settle(EMPTY, many, [])
    assert len(waits.waiting) == MOST_WATCHED
    body = POD_WAITS.write(waits, {}, NOW).body
    assert body is not None
    assert len(body) < LARGEST
    later, found = settle(waits, many[:9], [bound(one, 5) for one in many[9:]])
    assert len(found) > 0.9 * MOST_WATCHED
    assert len(later.waiting) == 9


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5000)), max_size=60))
def test_a_pod_counts_once_whatever_runs_see(steps: list[tuple[int, int]]) -> None:
    """Each step is a run: pod `number` is bound, and later runs see it bound again."""
    some = seen(10)
    waits, counted, done = EMPTY, list[str](), dict[str, BoundPod]()
    for number, seconds in steps:
        waits, found = settle(waits, [one for one in some if one.uid not in done], [*done.values()])
        counted += [one.uid for one in found]
        done.setdefault(some[number].uid, bound(some[number], seconds))
    waits, found = settle(waits, [], [*done.values()])
    counted += [one.uid for one in found]
    assert sorted(counted) == sorted(done)
    assert waits.count == len(done)
    assert sum(waits.counts.values()) == sum(one.seconds <= BUCKETS[-1] for one in done.values())


@pytest.fixture
def buying(catalog: Catalog) -> Buying:
    return Buying(catalog)


def bind(buying: Buying, some: Sequence[ObservedPod], seconds: float) -> None:
    state = buying.states.state
    left = [one for one in state.waiting if one not in some]
    now = tuple(bound(one, seconds) for one in some)
    buying.states.state = replace(state, waiting=left, bound=(*state.bound, *now))


def test_a_run_reports_pods_that_wait_and_those_that_were_bound(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(3))
    some = buying.states.state.waiting
    report = buying.run()
    assert (report.waiting, report.waiting_since, report.bound) == (3, NOW, ())
    bind(buying, some[:2], 40)
    report = buying.run()
    assert report.waiting == 1
    assert [one.seconds for one in report.bound] == [40, 40]
    assert not buying.run("late").bound
    assert (buying.statuses["prod"].waiting, buying.statuses["prod"].waiting_since) == (1, NOW)


def test_of_two_runs_at_once_one_counts(buying: Buying) -> None:
    buying.wait_for_nodes(*big_pods(1))
    some = buying.states.state.waiting
    buying.run()
    bind(buying, some, 40)
    buying.table.before = once(lambda: buying.run("the other run"))
    report = buying.run()
    assert not report.bound
    assert not report.failures
    stored = buying.table.get(POD_WAITS, cluster="prod")
    assert stored is not None
    assert (stored.count, stored.waiting) == (1, ())


def once(
    action: Callable[[], object], wanted: str = "put"
) -> Callable[[str, tuple[str, str]], None]:
    """Act before the first write of the record of waits, or before its first `get`."""
    left = [action]

    def before(operation: str, key: tuple[str, str]) -> None:
        if operation == wanted and key[1] == POD_WAITS.sk and left:
            left.pop()()

    return before


def test_a_settled_cluster_writes_no_record(buying: Buying) -> None:
    buying.run()
    assert not [key for key in buying.table.written if key[1] == POD_WAITS.sk]


@pytest.mark.parametrize("operation", ["get", "put"])
def test_a_record_that_the_table_does_not_serve_does_not_end_the_run(
    buying: Buying, operation: str
) -> None:
    def fail() -> None:
        raise CloudUnavailable("no answer")

    buying.wait_for_nodes(*big_pods(1))
    buying.table.before = once(fail, operation)
    report = buying.run()
    assert len(report.launched) == 1
    assert [one.code for one in report.failures] == ["ProvisioningNotWritten"]


def test_a_record_of_another_version_does_not_end_the_run(buying: Buying) -> None:
    key = ("PROVISIONING#prod", POD_WAITS.sk)
    buying.table.items[key] = Item(key, '{"counts": "some"}', version=1)
    buying.wait_for_nodes(*big_pods(1))
    report = buying.run()
    assert len(report.launched) == 1
    assert [one.code for one in report.failures] == ["ProvisioningNotWritten"]


def test_a_line_says_how_long_a_pod_waited() -> None:
    assert POD_BOUND(pod="shop/web-0", node="n-1", seconds=42).message == (
        "Pod shop/web-0 got node n-1 42 seconds after its creation."
    )
