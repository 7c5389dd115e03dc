"""Nodes that join and that no pod gets a place on: launches stop by themselves."""

from dataclasses import replace
from datetime import timedelta

import pytest
from leeway.launch.fleets import FleetInstance
from leeway.launch.intent import LaunchIntent
from leeway.provisioning.brakes import vain_launches, workload_of
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode, Pod, Taint

from tests.launch.launching import NOW
from tests.provisioning.buying import Buying, big_pods, node


@pytest.fixture
def buying(catalog: Catalog) -> Buying:
    return Buying(catalog)


GATE = Taint("example.com/gate", "", "NoSchedule")
MINUTE = timedelta(minutes=1)
SUFFIXES = (
    "2b4c5",
    "6d7f8",
    "9g2h4",
    "j5k6l",
    "m7n8p",
    "q9r2s",
    "t4v5w",
    "x6z7b",
    "c8d9f",
    "g2h4j",
)


def gated(buying: Buying) -> None:
    """All launched instances join, and a controller puts a taint on each that no pool declares."""
    buying.join()
    state = buying.states.state
    buying.states.state = replace(
        state, nodes=tuple(replace(one, taints=(GATE,)) for one in state.nodes)
    )


def job(suffix: str) -> Pod:
    """A pod of a Job whose controller creates it anew each minute."""
    (found,) = big_pods(1)
    return replace(found, name=f"shop/job-{suffix}")


def test_a_pod_that_is_created_anew_and_gets_no_place_on_joined_nodes_stops_launches(
    buying: Buying,
) -> None:
    launched, reports = [], []
    for suffix in SUFFIXES:
        buying.wait_for_nodes(job(suffix))
        reports.append(buying.run())
        launched.append(len(reports[-1].launched))
        gated(buying)
        buying.time += MINUTE
    # Three nodes have been launched three minutes ago when the sixth run begins.
    assert launched == [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    (told,) = reports[-1].without_node
    assert told.cause.code == "LaunchesInVain"
    assert "shop/job: 5 nodes" in told.reason.message
    assert reports[-1].capped
    assert [one.code for one in reports[-1].launch_problems] == ["LaunchesInVain"]
    assert "LaunchesInVain" in {one.reason for one in buying.events.existing.values()}


def test_other_workloads_get_nodes_and_the_stopped_one_is_tried_again_after_an_hour(
    buying: Buying,
) -> None:
    for suffix in SUFFIXES:
        buying.wait_for_nodes(job(suffix))
        buying.run()
        gated(buying)
        buying.time += MINUTE
    (other,) = big_pods(1, name="other")
    buying.wait_for_nodes(job("b2b4c"), other)
    report = buying.run()
    assert len(report.launched) == 1
    assert {one.pod for one in report.without_node} == {"shop/job-b2b4c"}
    buying.table.items.clear()  # The table deletes them after an hour.
    gated(buying)
    buying.wait_for_nodes(job("b2b4c"))
    assert len(buying.run().launched) == 1


def test_launches_go_on_when_pods_run_on_the_nodes(buying: Buying) -> None:
    some = [job(suffix) for suffix in SUFFIXES[:4]]
    buying.wait_for_nodes(*some[:3])
    assert len(buying.run().launched) == 3
    gated(buying)
    buying.time += 4 * MINUTE
    buying.wait_for_nodes(*some)
    assert not buying.run().launched
    state = buying.states.state
    filled = [replace(one, pods=(some[0].spec,)) for one in state.nodes]
    buying.states.state = replace(state, nodes=(*filled[:1], *state.nodes[1:]))
    buying.wait_for_nodes(some[3])
    assert len(buying.run().launched) == 1


def test_empty_nodes_that_wait_for_a_drain_stop_no_launch(buying: Buying) -> None:
    """A budget lets the pods of a workload move one by one."""
    moving = [job(suffix) for suffix in SUFFIXES[:3]]
    buying.retire(*moving)
    assert len(buying.run().launched) == 3
    buying.join()
    buying.time += 4 * MINUTE
    buying.wait_for_nodes(job(SUFFIXES[3]))
    report = buying.run()
    assert (len(report.launched), report.without_node) == (1, ())


def test_nodes_that_wait_for_a_drain_and_do_not_serve_its_pods_stop_launches(
    buying: Buying,
) -> None:
    buying.retire(*(job(suffix) for suffix in SUFFIXES[:3]))
    assert len(buying.run().launched) == 3
    gated(buying)
    buying.time += 4 * MINUTE
    report = buying.run()
    assert not report.launched
    assert [one.cause.code for one in report.without_node] == ["LaunchesInVain"] * 3


def test_a_workload_that_is_scaled_up_again_uses_its_empty_nodes_and_gets_more(
    buying: Buying,
) -> None:
    some = [job(suffix) for suffix in SUFFIXES]
    buying.wait_for_nodes(*some[:3])
    assert len(buying.run().launched) == 3
    buying.join()
    buying.time += 30 * MINUTE
    buying.wait_for_nodes(*some)
    report = buying.run()
    assert (len(report.launched), report.without_node) == (7, ())


def launch(number: int, *pods: str) -> LaunchIntent:
    instance = FleetInstance(f"i-{number}", "m5.24xlarge", "us-east-1a", "spot")
    return LaunchIntent(
        id=f"intent-{number}",
        cluster="prod",
        pool="web",
        pods=pods,
        token="t",
        created_at=NOW,
        request=None,
        instances=(instance,),
    )


NODES = {f"i-{number}": f"ip-{number}" for number in range(3)}
EMPTY = [node(name) for name in NODES.values()]


def vain(nodes: list[ExistingNode], minutes: int = 3) -> dict[str, tuple[str, ...]]:
    intents = [launch(number, f"shop/web-{SUFFIXES[number]}") for number in range(3)]
    return dict(vain_launches(intents, NODES, nodes, NOW + minutes * MINUTE))


def test_pods_that_have_a_place_on_nodes_that_start_are_not_affected(buying: Buying) -> None:
    some = big_pods(3)
    buying.wait_for_nodes(*some)
    assert len(buying.run().launched) == 3
    buying.join(ready=False)
    buying.time += 5 * MINUTE
    report = buying.run()
    assert not report.launched
    assert not report.without_node
    assert not report.capped


def test_nodes_count_when_they_have_joined_and_are_empty() -> None:
    assert vain(EMPTY) == {"shop/web": ("ip-0", "ip-1", "ip-2")}
    assert not vain(EMPTY, minutes=2)
    assert not vain(EMPTY[:2])
    (pod,) = big_pods(1)
    assert not vain([*EMPTY[:2], node("ip-2", pod)])
    assert not vain([*EMPTY[:2], replace(EMPTY[2], terminating=pod.spec.requests)])
    cordoned = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    assert not vain([*EMPTY[:2], replace(EMPTY[2], taints=(cordoned,))]), "drained, not in vain"


def test_pods_of_daemonsets_do_not_fill_a_node() -> None:
    (pod,) = big_pods(1)
    daemons = replace(node("ip-2", pod), daemons=pod.spec.requests)
    assert vain([*EMPTY[:2], daemons])


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("shop/web-7d4b9c6f5-x2b4c", "shop/web-7d4b9c6f5"),
        ("shop/job-x2b4c", "shop/job"),
        ("shop/database-0", "shop/database-0"),
        ("shop/alone", "shop/alone"),
    ],
)
def test_a_workload_is_the_name_without_its_generated_end(pod: str, workload: str) -> None:
    assert workload_of(pod) == workload
