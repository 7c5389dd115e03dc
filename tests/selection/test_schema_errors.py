"""Every object is read, or rejected with its file, line and field."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from leeway.selection.reading.cluster_objects import (
    checked,
    daemons_of,
    existing_nodes,
    pending_pods,
)
from leeway.selection.reading.objects import BadObject
from leeway_cli.errors import BadInputError
from leeway_cli.selection.input_warnings import missing_references
from leeway_cli.selection.sources import KubernetesFiles

from tests.wrong_shapes import WRONG, paths, replaced
from tests.wrong_shapes import Path as Inside

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

EXPRESSION = {"key": "team", "operator": "In", "values": ["a"]}
SELECTOR = {"matchLabels": {"app": "web"}, "matchExpressions": [EXPRESSION]}
TERM = {
    "labelSelector": SELECTOR,
    "matchLabelKeys": ["app"],
    "mismatchLabelKeys": ["app"],
    "namespaces": ["shop"],
    "namespaceSelector": SELECTOR,
    "topologyKey": "kubernetes.io/hostname",
}
NODES = {
    "nodeSelectorTerms": [
        {
            "matchExpressions": [EXPRESSION],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
        }
    ]
}
CONTAINER = {
    "name": "c",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "1Gi"}},
    "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP", "hostIP": "0.0.0.0"}],  # noqa: S104
}
TOLERATION = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
SPEC = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "resources": {"requests": {"cpu": 1}},
    "overhead": {"cpu": "10m"},
    "nodeSelector": {"team": "a"},
    "affinity": {
        "nodeAffinity": {
            REQUIRED: NODES,
            PREFERRED: [{"weight": 1, "preference": NODES["nodeSelectorTerms"][0]}],
        },
        "podAffinity": {REQUIRED: [TERM], PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]},
        "podAntiAffinity": {REQUIRED: [TERM]},
    },
    "tolerations": [TOLERATION],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "minDomains": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": SELECTOR,
            "matchLabelKeys": ["app"],
            "nodeAffinityPolicy": "Honor",
            "nodeTaintsPolicy": "Ignore",
        }
    ],
    "volumes": [
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}},
        {"awsElasticBlockStore": {"volumeID": "v"}},
    ],
    "schedulingGates": [],
    "hostNetwork": True,
    "priority": 1,
    "priorityClassName": "high",
    "runtimeClassName": "gvisor",
}
OWNER = {"kind": "ReplicaSet", "name": "other-abc", "controller": True}
TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [CONTAINER], "volumes": SPEC["volumes"], "tolerations": [TOLERATION]},
}
"""Its pods are read as others are: the whole spec is in those of OBJECTS."""
OBJECTS: list[dict[str, Any]] = [
    {
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "labels": {"app": "web"},
            "ownerReferences": [OWNER],
        },
        "spec": SPEC,
        "status": {"phase": "Pending", "nominatedNodeName": ""},
    },
    {"kind": "Pod", "metadata": {"name": "bound"}, "spec": {**SPEC, "nodeName": "n"}},
    {
        "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {
            "replicas": 2,
            "template": TEMPLATE,
            "ordinals": {"start": 1},
            "volumeClaimTemplates": [
                {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}
            ],
        },
    },
    {
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {"parallelism": 2, "completions": 1, "suspend": False, "template": TEMPLATE},
    },
    {"kind": "DaemonSet", "metadata": {"name": "logs"}, "spec": {"template": TEMPLATE}},
    {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"team": "a"}},
        "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}},
    },
    {
        "kind": "CSINode",
        "metadata": {"name": "n"},
        "spec": {"drivers": [{"name": "ebs.csi.aws.com", "allocatable": {"count": 2}}]},
    },
    {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "shop"},
        "spec": {"volumeName": "v", "storageClassName": "fast"},
    },
    {
        "kind": "PersistentVolume",
        "metadata": {"name": "v"},
        "spec": {
            "nodeAffinity": {"required": NODES},
            "csi": {"driver": "ebs.csi.aws.com"},
            "awsElasticBlockStore": {"volumeID": "v"},
        },
    },
    {
        "kind": "StorageClass",
        "metadata": {
            "name": "fast",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "provisioner": "ebs.csi.aws.com",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a"]}]}],
    },
    {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5},
    {
        "kind": "LimitRange",
        "metadata": {"name": "usual", "namespace": "shop"},
        "spec": {
            "limits": [
                {
                    "type": "Container",
                    "default": {"cpu": "1"},
                    "defaultRequest": {"cpu": "1"},
                    "min": {"cpu": "1"},
                    "max": {"cpu": "1"},
                }
            ]
        },
    },
    {
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
        "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {"nodeSelector": {"runtime": "gvisor"}, "tolerations": [TOLERATION]},
    },
]

PATHS = list(paths(OBJECTS))


def refusal(objects: Any) -> BadObject | None:
    """Read everything that is read of objects; why they are refused, if they are."""
    try:
        objects = checked(objects)
        pending_pods(objects, {})
        existing_nodes(objects)
        daemons_of(objects)
        missing_references(objects)
    except BadObject as error:
        return error
    return None


def pods_of(file: Path) -> KubernetesFiles:
    """Read the pods of a file, as the command does."""
    objects = KubernetesFiles([file])
    objects.read_with(KubernetesFiles([]), lambda of, others: pending_pods(of, {}, others))
    return objects


def test_valid_objects_are_read() -> None:
    assert refusal(OBJECTS) is None
    assert {pod.name for pod in pending_pods(OBJECTS, {})} == {
        *("shop/web", "shop/db-1", "shop/db-2", "default/once-0")
    }


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_value_of_any_type_at_any_path_is_read_or_rejected_with_its_path(value: Any) -> None:
    assert PATHS
    for path in PATHS:
        error = refusal(replaced(OBJECTS, path, value))
        assert error is None or isinstance(error.path[0], int), path
        assert error is None or str(error), path


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


@given(st.lists(st.tuples(st.sampled_from(PATHS), anything), min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_several_invalid_values_are_rejected_with_a_path(
    wrong: list[tuple[Inside, Any]],
) -> None:
    changed: Any = copy.deepcopy(OBJECTS)
    for path, value in wrong:
        inside = changed
        try:
            for part in path[:-1]:
                inside = inside[part]
            inside[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # what was there is gone already
    error = refusal(changed)
    assert error is None or isinstance(error.path[0], int)


@given(st.sampled_from(PATHS), anything)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_is_read_or_rejected_with_its_line_and_field(
    tmp_path: Path, path: Inside, value: Any
) -> None:
    file = tmp_path / "pods.json"
    listed = {"kind": "List", "items": replaced(OBJECTS, path, value)}
    file.write_text(json.dumps(listed, indent=1))
    said = f"{file}:1: fine"
    try:
        objects = pods_of(file)
        objects.read_with(KubernetesFiles([]), existing_nodes)
        objects.read_with(KubernetesFiles([]), daemons_of)
    except BadInputError as error:
        said = str(error)
    assert re.match(rf"{re.escape(str(file))}:\d+: .", said), said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            (
                "kind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: c}]\n"
                "  nodeSelector:\n    team: 5\n"
            ),
            "6: Pod web: spec.nodeSelector.team: expected text, in quotes, got 5",
        ),
        ("kind: PodList\nitems: [a]\n", "2: expected a Kubernetes object"),
        ("kind: List\nitems: a\n", "2: items: expected a list"),
        (
            "kind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    metadata: x\n",
            '5: Deployment web: spec.template.metadata: expected a mapping, got "x"',
        ),
        (
            (
                "kind: StatefulSet\nmetadata: {name: db}\nspec:\n  ordinals:\n    start: '1'\n"
                "  template: {spec: {containers: [{name: c}]}}\n"
            ),
            '5: StatefulSet db: spec.ordinals.start: expected a whole number, got "1"',
        ),
        (
            (
                "kind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n"
                "  storageClassName: {name: gp3}\n"
            ),
            (
                "4: PersistentVolumeClaim data: spec.storageClassName: expected text, in quotes, "
                "got a mapping"
            ),
        ),
        (
            "kind: Node\nmetadata: {name: n}\nspec:\n  taints:\n  - effect: NoSchedule\n",
            "5: Node n: spec.taints[0].key: is missing",
        ),
        (
            "kind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec: {}\n",
            "5: Deployment web: spec.template.spec.containers: expected at least one container",
        ),
    ],
)
def test_a_schema_error_names_the_line_and_the_field(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(text)
    with pytest.raises(BadInputError) as refused:
        pods_of(file)
    assert str(refused.value) == f"{file}:{said}."
