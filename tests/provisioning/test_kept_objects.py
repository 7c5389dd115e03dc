"""Objects that are kept between reads mean the same as a list of them, after any changes."""

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from leeway.ports.kubernetes_objects import FOREVER
from leeway.provisioning.cluster_state import ClusterState, blocking
from leeway.provisioning.kept_objects import KeptObjects
from leeway.selection.pods import PodSpec
from leeway.selection.reading.cluster_objects import daemons_of, existing_nodes, pending_pods
from leeway.selection.reading.schemas import SCHEMAS

from tests.provisioning.cluster_documents import (
    Objects,
    comparable,
    key,
    lists_of,
    node,
    node_claim,
    oldest_first,
    pod,
    random_changes,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def put(kept: KeptObjects, kind: str, document: Mapping[str, Any]) -> None:
    """Put an object as the adapter does: with the fields of its schema."""
    kept.put(kind, msgspec.json.decode(msgspec.json.encode(document), type=SCHEMAS[kind]))


def kept_of(*objects: tuple[str, Mapping[str, Any]]) -> KeptObjects:
    kept = KeptObjects()
    for kind, document in objects:
        put(kept, kind, document)
    return kept


def state_of(*objects: tuple[str, Mapping[str, Any]]) -> ClusterState:
    return kept_of(*objects).state(NOW)


def state_after(objects: Objects) -> ClusterState:
    return state_of(*((kind, document) for (kind, _), document in objects.items()))


@pytest.mark.parametrize("seed", range(60))
def test_after_random_changes_the_state_equals_that_of_a_new_read_and_of_a_list(seed: int) -> None:
    kept = KeptObjects()
    objects: Objects = {}
    reads = random.Random(seed)  # noqa: S311
    for kind, document, deleted in random_changes(seed, 120):
        name = key(kind, document)
        if deleted:
            objects.pop((kind, name), None)
            kept.remove(kind, name)
        else:
            objects[kind, name] = document
            put(kept, kind, document)
        if reads.random() < 0.1:
            assert comparable(kept.state(NOW)) == comparable(state_after(objects))
    state = state_after(objects)
    assert comparable(kept.state(NOW)) == comparable(state)
    # It has the nodes and the pods of a list, too.
    own, others = lists_of(objects)
    of_daemons = [each for each in others if each["kind"] == "DaemonSet"]
    for_daemons = [each for each in others if each["kind"] == "LimitRange"]
    pods = oldest_first([each for each in own if each["kind"] == "Pod"])
    nodes = [each for each in own if each["kind"] == "Node"]
    assert list(state.nodes) == list(existing_nodes(own, others))
    # A list does not say whether a claim is stored, nor which pods a DaemonSet has.
    waiting = [replace(one.pod, spec=replace(one.pod.spec, unmet=None)) for one in state.waiting]
    assert waiting == list(pending_pods(pods, {}, [*nodes, *others]))
    of_templates = daemons_of(of_daemons, for_daemons)
    assert [one.labels for one in state.daemons] == [one.labels for one in of_templates]
    assert all(map(_holds, state.daemons, of_templates))


def _holds(daemon: PodSpec, template: PodSpec) -> bool:
    return daemon.requests == daemon.requests.most(template.requests)


def test_a_changed_status_keeps_the_same_values() -> None:
    kept = kept_of(("Node", node("n-1")), ("Pod", pod("a", "n-1")))
    (before,) = kept.state(NOW).nodes
    changed = pod("a", "n-1")
    changed["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    put(kept, "Pod", changed)
    put(kept, "Node", node("n-1"))
    (after,) = kept.state(NOW).nodes
    assert after is before


def annotated(document: dict[str, Any], key: str, value: str = "true") -> dict[str, Any]:
    document["metadata"]["annotations"] = {key: value}
    return document


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_a_pod_that_stays_with_its_node_may_forbid_to_disrupt_it(kind: str) -> None:
    found = annotated(pod("agent", "n-1"), "karpenter.sh/do-not-disrupt")
    found["metadata"]["ownerReferences"][0]["kind"] = kind
    if kind == "Node":
        found["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"
    details = state_of(("Node", node("n-1")), ("Pod", found)).details["n-1"]
    assert not details.pods
    (one,) = details.staying
    assert (one.pod.name, one.protected_until) == ("shop/agent", FOREVER)
    found["metadata"]["deletionTimestamp"] = "2026-11-22T11:00:00Z"
    assert not state_of(("Node", node("n-1")), ("Pod", found)).details["n-1"].staying


@pytest.mark.parametrize(
    ("tolerations", "asked"),
    [
        ([], True),
        ([{"key": "team", "operator": "Exists"}], True),
        ([{"operator": "Exists"}], False),
        ([{"key": "karpenter.sh/disrupted", "operator": "Exists"}], False),
    ],
)
def test_budgets_are_asked_about_pods_of_daemonsets_that_karpenter_would_evict(
    tolerations: list[dict[str, str]], asked: bool
) -> None:
    found = pod("agent", "n-1")
    found["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    found["spec"]["tolerations"] = tolerations
    details = state_of(("Node", node("n-1")), ("Pod", found)).details["n-1"]
    assert [one.pod.name for one in details.staying] == ["shop/agent"] * asked


def test_the_annotations_of_karpenters_first_api_are_read() -> None:
    kept = annotated(pod("a", "n-1"), "karpenter.sh/do-not-evict")
    other = annotated(pod("b", "n-1"), "karpenter.sh/do-not-evict", "5m")
    here = annotated(node("n-1"), "karpenter.sh/do-not-consolidate")
    details = state_of(("Node", here), ("Pod", kept), ("Pod", other)).details["n-1"]
    assert [one.protected_until for one in details.pods] == [FOREVER, None]
    assert (details.consolidated, details.protected) == (False, False)


@pytest.mark.parametrize(("text", "cost"), [("-5", -5), ("", 0), ("cheap", 0), ("1.5", 0)])
def test_the_deletion_cost_of_a_pod_is_read(text: str, cost: int) -> None:
    found = annotated(pod("web", "n-1"), "controller.kubernetes.io/pod-deletion-cost", text)
    details = state_of(("Node", node("n-1")), ("Pod", found)).details["n-1"]
    assert [one.deletion_cost for one in details.pods] == [cost]


def test_pods_of_one_template_share_their_spec() -> None:
    state = state_of(*(("Pod", pod(f"web-{n}")) for n in range(3)))
    assert len({id(one.pod.spec) for one in state.waiting}) == 1


def test_an_instance_has_joined_with_the_oldest_of_the_nodes_that_name_it() -> None:
    old, copy = node("old", 1), node("a-copy", 1)
    copy["metadata"]["creationTimestamp"] = "2026-11-22T11:00:00Z"
    state = state_of(("Node", copy), ("Node", old), ("Node", node("fargate", providerID="")))
    assert state.joined == {f"i-{1:017x}": "old"}


def test_a_node_of_another_provider_is_no_instance() -> None:
    assert not state_of(("Node", node("edge", providerID="eks-hybrid:///x/y/mi-1"))).joined


@pytest.mark.parametrize(
    ("owner", "terminating", "moves"),
    [
        ("ReplicaSet", False, True),
        ("ReplicaSet", True, False),
        ("StatefulSet", True, True),
        ("DaemonSet", False, False),
        ("", False, False),
    ],
)
def test_a_pod_that_its_controller_creates_again_needs_another_place(
    owner: str, terminating: bool, moves: bool
) -> None:
    found = pod("web", "n-1")
    found["metadata"]["ownerReferences"][0]["kind"] = owner
    if not owner:
        del found["metadata"]["ownerReferences"]
    if terminating:
        found["metadata"]["deletionTimestamp"] = "2026-11-22T11:00:00Z"
    state = state_of(("Node", node("n-1")), ("Pod", found))
    assert [one.name for one in state.movable.get("n-1", ())] == ["shop/web"] * moves


@pytest.mark.parametrize(
    ("ends_in", "held"), [(3600, True), (61, True), (60, False), (-59, False), (-60, True)]
)
def test_what_a_terminating_pod_holds_counts_as_free_if_it_ends_soon(
    ends_in: int, held: bool
) -> None:
    found = pod("web", "n-1")
    found["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    found["metadata"]["deletionTimestamp"] = (NOW + timedelta(seconds=ends_in)).isoformat()
    (there,) = state_of(("Node", node("n-1")), ("Pod", found)).nodes
    assert len(there.terminating_pods) == held
    assert there.terminating.of("cpu") == 100


def test_a_terminating_pod_is_looked_at_again_when_it_ends_soon_and_when_it_should_have() -> None:
    found = pod("web", "n-1")
    found["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    found["metadata"]["deletionTimestamp"] = (NOW + timedelta(minutes=30)).isoformat()
    kept = kept_of(("Node", node("n-1")), ("Pod", found))
    for minutes, held in ((0, 1), (28, 1), (29, 0), (30, 0), (31, 1), (90, 1)):
        (there,) = kept.state(NOW + timedelta(minutes=minutes)).nodes
        assert len(there.terminating_pods) == held, minutes


@pytest.mark.parametrize(
    ("owner", "terminating", "leaves"),
    [
        ("ReplicaSet", False, False),
        ("ReplicaSet", True, True),
        ("StatefulSet", True, False),
        ("DaemonSet", True, False),
    ],
)
def test_the_controllers_of_pods_that_terminate_are_known(
    owner: str, terminating: bool, leaves: bool
) -> None:
    found, after = pod("web-1", "n-1"), pod("web-2")
    reference = {"kind": owner, "name": "web", "uid": "u-1", "controller": True}
    found["metadata"]["ownerReferences"] = after["metadata"]["ownerReferences"] = [reference]
    if terminating:
        found["metadata"]["deletionTimestamp"] = "2026-11-22T11:00:00Z"
    state = state_of(("Node", node("n-1")), ("Pod", found), ("Pod", after))
    assert list(state.leaving.get("n-1", ())) == ["u-1"] * leaves
    if owner != "DaemonSet":
        assert [one.controller for one in state.waiting] == ["u-1"]


@pytest.mark.parametrize(("minutes", "busy"), [(4, True), (5, False)])
@pytest.mark.parametrize("owner", ["ReplicaSet", "StatefulSet"])
def test_a_pod_that_does_not_end_keeps_its_node_busy_as_long_as_a_drain_waits_for_it(
    owner: str, minutes: int, busy: bool
) -> None:
    stuck = pod("web", "n-1")
    stuck["metadata"]["ownerReferences"][0]["kind"] = owner
    stuck["metadata"]["deletionTimestamp"] = f"2026-11-22T11:{60 - minutes}:00Z"
    stuck["metadata"]["finalizers"] = ["example.com/forgotten"]
    details = state_of(("Node", node("n-1")), ("Pod", stuck)).details["n-1"]
    assert details.is_busy(NOW) is busy
    assert [one.pod.name for one in details.pods] == ["shop/web"] * (owner == "StatefulSet")


def test_a_pod_that_the_scheduler_preempts_others_for_keeps_the_node_busy() -> None:
    coming = pod("web")
    coming["status"]["nominatedNodeName"] = "n-1"
    assert state_of(("Node", node("n-1")), ("Pod", coming)).details["n-1"].is_busy(NOW)


def test_static_and_finished_pods_need_no_other_place() -> None:
    static, finished = pod("static", "n-1"), pod("finished", "n-1")
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    finished["status"]["phase"] = "Succeeded"
    state = state_of(("Node", node("n-1")), ("Pod", static), ("Pod", finished))
    assert not state.movable


def test_a_pod_of_another_scheduler_waits_once_that_scheduler_found_no_node() -> None:
    untried, tried = pod("untried", schedulerName="volcano"), pod("tried", schedulerName="volcano")
    tried["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    ]
    state = state_of(("Pod", untried), ("Pod", tried), ("Pod", pod("usual")))
    assert [one.pod.name for one in state.waiting] == ["shop/tried", "shop/usual"]


def test_a_pod_nominated_for_a_node_uses_it_until_the_node_is_gone() -> None:
    nominated = pod("urgent")
    nominated["status"]["nominatedNodeName"] = "n-1"
    kept = kept_of(("Node", node("n-1")), ("Pod", nominated))
    state = kept.state(NOW)
    assert not state.waiting
    assert len(state.nodes[0].pods) == 1
    kept.remove("Node", "n-1")
    assert [one.pod.name for one in kept.state(NOW).waiting] == ["shop/urgent"]


def test_an_invalid_pod_is_reported_and_stops_no_other_pod() -> None:
    invalid = pod("invalid", nodeSelector={"a b": "\x1b[31m"})
    kept = kept_of(("Pod", invalid), ("Pod", pod("valid")))
    state = kept.state(NOW)
    assert [one.pod.name for one in state.waiting] == ["shop/valid"]
    (unreadable,) = state.unreadable
    assert (unreadable.kind, unreadable.name) == ("Pod", "shop/invalid")
    assert unreadable.reason.code == "ObjectNotReadable"
    assert unreadable.reason.message.isprintable()
    put(kept, "Pod", pod("invalid"))
    assert not kept.state(NOW).unreadable
    kept.put_unreadable("Pod", invalid, "it is broken")
    kept.remove("Pod", "shop/invalid")
    assert not kept.state(NOW).unreadable


def test_an_invalid_pod_on_a_node_counts_with_its_requests() -> None:
    invalid = pod("invalid", "n-1", tolerations=[{"key": "a", "operator": "Lt", "value": "9"}])
    kept = kept_of(("Node", node("n-1")))
    kept.put_unreadable("Pod", invalid, "operator")
    (found,) = kept.state(NOW).nodes
    assert [one.requests.printed() for one in found.pods] == [{"cpu": "100m", "pods": "1"}]


def test_an_invalid_node_gets_no_pods_and_its_instance_has_joined() -> None:
    kept = KeptObjects()
    kept.put_unreadable("Node", node("n-1", 1), "taints")
    state = kept.state(NOW)
    assert not state.nodes
    assert state.joined == {f"i-{1:017x}": "n-1"}


def test_an_invalid_daemonset_is_reported_until_it_is_valid() -> None:
    template: dict[str, Any] = {"spec": {"containers": []}}
    empty = {"metadata": {"name": "agent", "namespace": "shop"}, "spec": {"template": template}}
    kept = kept_of(("DaemonSet", empty))
    assert [one.name for one in kept.state(NOW).unreadable] == ["shop/agent"]
    kept.remove("DaemonSet", "shop/agent")
    assert not kept.state(NOW).unreadable


def test_a_node_claim_counts_from_its_launch_until_it_is_deleted() -> None:
    kept = KeptObjects()
    kept.put("NodeClaim", node_claim("one", 1, providerID=""))
    assert kept.state(NOW).claimed == ()
    kept.put("NodeClaim", node_claim("one", 1))
    (found,) = kept.state(NOW).claimed
    assert found.instance == f"i-{1:017x}"
    assert found.startup_taints == {"example.com/agent"}
    assert (found.node.allocatable.of("cpu"), found.node.taints) == (4000, ())
    going = node_claim("one", 1)
    going["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:09Z"
    kept.put("NodeClaim", going)
    assert kept.state(NOW).claimed == ()
    kept.put("NodeClaim", node_claim("one", 1))
    kept.remove("NodeClaim", "one")
    assert kept.state(NOW).claimed == ()


def test_an_invalid_node_claim_is_reported_and_does_not_count() -> None:
    kept = KeptObjects()
    kept.put("NodeClaim", node_claim("one", 1))
    kept.put("NodeClaim", node_claim("one", 1, allocatable={"cpu": "much"}))
    state = kept.state(NOW)
    assert state.claimed == ()
    assert [(one.kind, one.name) for one in state.unreadable] == [("NodeClaim", "one")]


@pytest.mark.parametrize(
    ("policy", "healthy", "ready", "blocked"),
    [
        (None, 1, "True", True),
        (None, 1, "False", True),
        (None, 2, "False", False),
        ("IfHealthyBudget", 1, "False", True),
        ("AlwaysAllow", 1, "False", False),
        ("AlwaysAllow", 1, "True", True),
    ],
)
def test_a_budget_blocks_a_pod_that_is_not_ready_as_the_api_server_does(
    policy: str | None, healthy: int, ready: str, blocked: bool
) -> None:
    """Otherwise a pod whose container crashes again and again keeps its node for ever."""
    crashing = pod("a", "n-1")
    crashing["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    policy_of = {"unhealthyPodEvictionPolicy": policy} if policy else {}
    budget = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **policy_of},
        "status": {"disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": 2},
    }
    state = state_of(("Node", node("n-1")), ("Pod", crashing), ("PodDisruptionBudget", budget))
    ((one,),) = (details.pods for details in state.details.values())
    assert blocking(state.budgets, one.pod, one.ready) == (("web",) if blocked else ())


def test_pods_that_were_bound_in_the_last_hour_say_when_by_the_clock_of_the_api_server() -> None:
    kept = KeptObjects()
    for name, minute in (("old", -61), ("new", -59), ("ended", -1)):
        at = f"{NOW + timedelta(minutes=minute):%Y-%m-%dT%H:%M:%SZ}"
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
        document = pod(name, "n-1")
        document["status"] |= {"conditions": [{"type": "Ready", "status": "False"}, scheduled]}
        put(kept, "Pod", document)
    refused = {"type": "PodScheduled", "status": "False", "lastTransitionTime": f"{NOW:%FT%TZ}"}
    put(kept, "Pod", pod("waits") | {"status": {"phase": "Pending", "conditions": [refused]}})
    put(kept, "Pod", pod("silent", "n-1"))
    kept.remove("Pod", "shop/ended")
    for later, names in ((0, ["shop/new", "shop/ended"]), (2, ["shop/ended"]), (60, [])):
        found = kept.state(NOW + timedelta(minutes=later)).bound
        assert [one.name for one in found] == names, "a job may end within a minute"
