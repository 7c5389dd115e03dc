"""Which Node stands for which instance, and what of Leeway is taken away from a Node again."""

from typing import Any

from leeway_sandbox.real_cluster.guests import undone
from leeway_sandbox.real_cluster.observer import Links

EC2 = {
    "metadata": {"name": "ip-10-0-0-1", "labels": {"zone": "a", "type": "m5.large"}},
    "spec": {"providerID": "aws:///us-east-1a/i-1"},
}


def node(name: str = "kind-worker", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"zone": "own"}}
    return {"metadata": metadata, "spec": {"providerID": "kind://docker/kind/1", **spec}}


def test_instances_get_the_nodes_in_order_and_later_ones_none() -> None:
    links = Links(["a", "b"])
    assert [links.take(one, EC2) for one in ("i-1", "i-2", "i-3")] == ["a", "b", None]
    assert (links.node_of("i-2"), links.instance_of("a")) == ("b", "i-1")
    assert (links.node_of("i-3"), links.instance_of("c")) == (None, None)


def test_a_linked_node_shows_its_instance_and_the_labels_that_it_lacks() -> None:
    links = Links(["kind-worker"])
    links.take("i-1", EC2)
    found = node(taints=[])
    shown = links.shown(found)
    assert shown["spec"] == {"providerID": "aws:///us-east-1a/i-1", "taints": []}
    assert shown["metadata"]["labels"] == {"zone": "own", "type": "m5.large"}
    assert found == node(taints=[]), "the object itself stays"


def test_other_objects_are_shown_as_they_are() -> None:
    links = Links(["kind-worker"])
    links.take("i-1", EC2)
    bookmark = {"kind": "Node", "metadata": {"resourceVersion": "7"}}
    for other in (node("kind-worker2"), bookmark, {"kind": "Status"}):
        assert links.shown(other) is other


def test_a_node_without_its_instance_is_shown_as_it_is() -> None:
    links = Links(["kind-worker"])
    links.take("i-1", EC2)
    links.unlink("kind-worker")
    assert links.shown(node()) == node()
    assert links.node_of("i-1") is None


def test_only_marks_of_leeway_are_taken_from_a_node() -> None:
    before = node()
    after = node(
        unschedulable=True,
        taints=[
            {"key": "leeway.sh/retiring", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            {"key": "somebodys", "effect": "NoExecute"},
        ],
    )
    after["metadata"]["annotations"] = {"leeway.sh/retirement": "1", "own": "2"}
    assert undone(after, before) == {
        "metadata": {"annotations": {"leeway.sh/retirement": None}},
        "spec": {"taints": [{"key": "somebodys", "effect": "NoExecute"}], "unschedulable": None},
    }


def test_a_node_that_was_cordoned_before_stays_cordoned() -> None:
    before = node(unschedulable=True)
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    assert undone(node(unschedulable=True, taints=[taint]), before) == {}
