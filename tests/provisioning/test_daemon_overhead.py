"""What DaemonSets use of a new node: the requests of their newest pod where these are larger than
the template (karpenter issue 799), and what pods hold that are resized in place."""

from typing import Any

import pytest
from leeway.provisioning.kept_objects import KeptObjects
from leeway.selection.reading.pod_objects import requests_of, resizing

from tests.provisioning.cluster_documents import CREATED, daemon_set, node, pod
from tests.provisioning.test_kept_objects import NOW, kept_of, put, state_of

AGENT = "uid-agent"


def of_agent(
    name: str, cpu: str, second: int = 0, on: str = "n-1", controller: str = AGENT
) -> dict[str, Any]:
    """A pod of the DaemonSet `agent`."""
    found = pod(name, on)
    owner = {"kind": "DaemonSet", "name": "agent", "uid": controller, "controller": True}
    found["metadata"] |= {
        "ownerReferences": [owner],
        "creationTimestamp": CREATED.format(second),
    }
    found["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return found


def overhead(kept: KeptObjects) -> list[int]:
    return [one.requests.of("cpu") for one in kept.state(NOW).daemons]


def agents(*pods: dict[str, Any], cpu: str = "100m") -> KeptObjects:
    return kept_of(
        ("Node", node("n-1")),
        ("DaemonSet", daemon_set("agent", cpu)),
        *(("Pod", one) for one in pods),
    )


def test_a_new_node_keeps_room_for_what_the_newest_pod_requests() -> None:
    assert overhead(agents()) == [100]
    assert overhead(agents(of_agent("a", "300m"))) == [300]
    assert overhead(agents(of_agent("a", "900m", 1), of_agent("b", "300m", 2))) == [300]
    assert overhead(agents(of_agent("b", "300m", 2), of_agent("a", "900m", 1))) == [300]


def test_a_smaller_pod_does_not_reduce_the_template() -> None:
    assert overhead(agents(of_agent("a", "50m"))) == [100]


def test_the_newest_pod_is_found_again_when_it_goes_or_changes() -> None:
    kept = agents(of_agent("a", "300m", 1), of_agent("b", "500m", 2))
    assert overhead(kept) == [500]
    kept.remove("Pod", "shop/b")
    assert overhead(kept) == [300]
    put(kept, "Pod", of_agent("c", "700m", 3))
    assert overhead(kept) == [700]
    ended = of_agent("c", "700m", 3)
    ended["status"]["phase"] = "Failed"
    put(kept, "Pod", ended)
    assert overhead(kept) == [300]
    going = of_agent("a", "300m", 1)
    going["metadata"]["deletionTimestamp"] = CREATED.format(9)
    put(kept, "Pod", going)
    assert overhead(kept) == [100]


def test_the_next_autoscaled_pod_counts_although_the_daemonset_did_not_change() -> None:
    kept = agents(of_agent("a", "300m", 1))
    assert overhead(kept) == [300]
    put(kept, "Pod", of_agent("a", "800m", 1))
    assert overhead(kept) == [800]


@pytest.mark.parametrize(
    "stranger",
    [
        of_agent("a", "30", controller="uid-another"),
        of_agent("a", "30", controller=""),
        of_agent("a", "30", on=""),
    ],
)
def test_pods_that_only_claim_to_be_of_a_daemonset_do_not_count(stranger: dict[str, Any]) -> None:
    assert overhead(agents(stranger)) == [100]


def test_a_changed_readiness_of_a_daemon_pod_changes_nothing() -> None:
    kept = agents(of_agent("a", "300m"))
    before = kept.state(NOW).daemons
    ready = of_agent("a", "300m")
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    put(kept, "Pod", ready)
    assert kept.state(NOW).daemons is before


def resized(
    spec: str, actual: str | None, allocated: str | None, *, why: str = "", sidecar: bool = False
) -> dict[str, Any]:
    """A pod that is resized in place: its request, what is in effect, what the kubelet allocated,
    and why the kubelet does not resize it now."""
    found = pod("web", "n-1")
    container = {"name": "c", "resources": {"requests": {"cpu": spec}}}
    found["spec"]["containers"] = [container]
    kind = "containerStatuses"
    if sidecar:
        found["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"cpu": "1m"}}}]
        found["spec"]["initContainers"] = [{**container, "restartPolicy": "Always"}]
        kind = "initContainerStatuses"
    one: dict[str, Any] = {"name": "c"}
    if actual is not None:
        one["resources"] = {"requests": {"cpu": actual}}
    if allocated is not None:
        one["allocatedResources"] = {"cpu": allocated}
    found["status"][kind] = [one]
    if why:
        condition = {"type": "PodResizePending", "status": "True", "reason": why}
        found["status"]["conditions"] = [condition]
    return found


@pytest.mark.parametrize(
    ("document", "cpu"),
    [
        (resized("1", "1", "1"), 1000),
        (resized("1", "4", "1"), 4000),  # shrinks: what is in effect counts
        (resized("1", "1", "4"), 4000),
        (resized("4", "1", "1", why="Deferred"), 4000),  # grows: what is requested counts
        (resized("64", "2", "1", why="Infeasible"), 2000),
        (resized("1", None, "4"), 1000),  # as kube-scheduler: nothing is known to be in effect
        (resized("1", "3", "1", sidecar=True), 3001),
    ],
)
def test_a_pod_that_is_resized_in_place_counts_as_kube_scheduler_counts_it(
    document: dict[str, Any], cpu: int
) -> None:
    state = state_of(("Node", node("n-1")), ("Pod", document))
    assert [one.requests.of("cpu") for one in state.nodes[0].pods] == [cpu]
    assert [one.spec.requests.of("cpu") for one in state.movable["n-1"]] == [cpu]
    assert requests_of(document["spec"], resizing(document)).of("cpu") == cpu


def test_a_pod_shares_its_spec_again_when_its_resize_is_done() -> None:
    kept = kept_of(("Node", node("n-1")), ("Pod", resized("1", "1", "1")))
    put(kept, "Pod", {**resized("1", "4", "4"), "metadata": pod("other", "n-1")["metadata"]})
    one, other = kept.state(NOW).nodes[0].pods
    assert {one.requests.of("cpu"), other.requests.of("cpu")} == {1000, 4000}
    put(kept, "Pod", {**resized("1", "1", "1"), "metadata": pod("other", "n-1")["metadata"]})
    one, other = kept.state(NOW).nodes[0].pods
    assert one is other


def test_a_daemon_pod_that_grew_in_place_counts_for_new_nodes() -> None:
    grown = of_agent("a", "100m")
    grown["status"]["containerStatuses"] = [
        {"name": "c", "resources": {"requests": {"cpu": "600m"}}}
    ]
    assert overhead(agents(grown)) == [600]


def test_an_amount_in_a_status_that_is_no_quantity_hides_no_other_pod() -> None:
    state = state_of(
        ("Node", node("n-1")),
        ("Pod", resized("1", "much", "1")),
        ("Pod", pod("fine", "n-1")),
    )
    assert [one.name for one in state.unreadable] == ["shop/web"]
    assert sorted(one.requests.of("cpu") for one in state.nodes[0].pods) == [100, 1000]
