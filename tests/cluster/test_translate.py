"""What is read from Kubernetes objects."""

import pytest
from leeway.cluster.translate import to_node
from lightkube.models.core_v1 import NodeCondition, NodeStatus
from lightkube.resources.core_v1 import Node


@pytest.mark.parametrize(
    ("status", "ready", "heard"),
    [
        ("True", True, True),
        ("False", False, True),
        ("Unknown", False, False),
        (None, False, False),
    ],
)
def test_a_node_is_heard_of_until_its_kubelet_falls_silent(
    status: str | None, ready: bool, heard: bool
) -> None:
    conditions = [NodeCondition(status="False", type="DiskPressure")]
    if status is not None:
        conditions.append(NodeCondition(status=status, type="Ready"))
    node = to_node(Node(status=NodeStatus(conditions=conditions)))
    assert (node.ready, node.heard) == (ready, heard)
