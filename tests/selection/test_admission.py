"""The changes of the API server to pods: defaults of LimitRanges, and RuntimeClasses."""

from typing import Any

import pytest
from leeway.selection.pods import PodSpec, Toleration
from leeway.selection.reading.cluster_objects import daemons_of, existing_nodes, pending_pods
from leeway.selection.reading.objects import BadObject
from leeway_cli.selection.input_warnings import missing_references


def pod(resources: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", **more.pop("metadata", {})}
    containers = [{"name": "c", "resources": resources or {}}]
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **more}}


def limits(name: str = "usual", namespace: str = "shop", **limit: Any) -> dict[str, Any]:
    return {
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"limits": [{"type": "Container", **limit}]},
    }


def runtime(**more: Any) -> dict[str, Any]:
    return {"kind": "RuntimeClass", "metadata": {"name": "gvisor"}, "handler": "runsc", **more}


def pending(*objects: dict[str, Any]) -> PodSpec:
    """The one pod that waits."""
    (found,) = pending_pods(objects, {})
    return found.spec


@pytest.mark.parametrize(
    ("resources", "limit", "cpu"),
    [
        ({}, {"defaultRequest": {"cpu": "200m"}}, 200),
        ({}, {"default": {"cpu": "500m"}}, 500),
        ({}, {"default": {"cpu": "500m"}, "defaultRequest": {"cpu": "200m"}}, 200),
        ({}, {"max": {"cpu": 2}}, 2000),
        ({}, {"min": {"cpu": "50m"}}, 50),
        ({"requests": {"cpu": "100m"}}, {"defaultRequest": {"cpu": "200m"}}, 100),
        ({"limits": {"cpu": "300m"}}, {"defaultRequest": {"cpu": "200m"}}, 300),
        ({}, {"type": "Pod", "max": {"cpu": 2}}, 0),
    ],
)
def test_a_container_without_requests_gets_the_defaults_of_its_namespace(
    resources: dict[str, Any], limit: dict[str, Any], cpu: int
) -> None:
    assert pending(pod(resources), limits(**limit)).requests.of("cpu") == cpu


def test_init_containers_get_the_defaults_too() -> None:
    document = pod({"requests": {"cpu": "10m"}}, initContainers=[{"name": "i"}])
    assert pending(document, limits(defaultRequest={"cpu": "2"})).requests.of("cpu") == 2000


def test_limit_ranges_of_other_namespaces_are_ignored_and_the_first_by_name_applies() -> None:
    elsewhere = limits(namespace="other", default={"cpu": "1"})
    assert pending(pod(), elsewhere).requests.of("cpu") == 0
    both = [limits("b", default={"cpu": "2"}), limits("a", default={"cpu": "1"})]
    assert pending(pod(), *both).requests.of("cpu") == 1000


def test_a_stored_pod_is_not_changed() -> None:
    kept = pod(metadata={"uid": "1"}, runtimeClassName="gvisor")
    overhead = runtime(overhead={"podFixed": {"cpu": "250m"}})
    assert pending(kept, limits(default={"cpu": "1"}), overhead).requests.of("cpu") == 0


def test_pods_of_workloads_and_daemons_are_admitted_too() -> None:
    given = limits(defaultRequest={"cpu": "200m"})
    for kind in ("Deployment", "StatefulSet", "Job"):
        whole = {
            "kind": kind,
            "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
            "spec": {"template": {"spec": pod()["spec"]}},
        }
        assert pending(whole, given).requests.of("cpu") == 200
    whole["kind"] = "DaemonSet"
    (daemon,) = daemons_of([whole], [given])
    assert daemon.requests.of("cpu") == 200


def test_pods_on_a_node_are_admitted_too() -> None:
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}
    (found,) = existing_nodes([node, pod(nodeName="n")], [limits(default={"cpu": "1"})])
    assert [each.requests.of("cpu") for each in found.pods] == [1000]


def test_a_runtime_class_adds_its_overhead_and_its_node_selector() -> None:
    given = runtime(
        overhead={"podFixed": {"cpu": "250m"}},
        scheduling={
            "nodeSelector": {"runtime": "gvisor"},
            "tolerations": [{"key": "gvisor", "operator": "Exists"}],
        },
    )
    found = pending(pod({"requests": {"cpu": "1"}}, runtimeClassName="gvisor"), given)
    assert found.requests.of("cpu") == 1250
    assert [str(term) for term in found.terms] == ["runtime In [gvisor]"]
    assert found.tolerations == (Toleration("gvisor", "Exists"),)
    other = pending(pod({"requests": {"cpu": "1"}}), given)
    assert (other.requests.of("cpu"), other.terms) == (1000, ())


def test_the_overhead_of_a_pod_is_not_changed() -> None:
    document = pod(runtimeClassName="gvisor", overhead={"cpu": "10m"})
    given = runtime(overhead={"podFixed": {"cpu": "250m"}})
    assert pending(document, given).requests.of("cpu") == 10


def test_a_node_selector_that_conflicts_with_the_runtime_class_is_rejected() -> None:
    given = runtime(scheduling={"nodeSelector": {"runtime": "gvisor"}})
    document = pod(runtimeClassName="gvisor", nodeSelector={"runtime": "kata"})
    with pytest.raises(BadObject, match="expected gvisor, as the RuntimeClass says") as refused:
        pending(document, given)
    assert refused.value.path == (0, "spec", "nodeSelector", "runtime")


def test_a_missing_runtime_class_is_reported() -> None:
    document = pod(runtimeClassName="gvisor")
    (found,) = missing_references([document])
    assert found.path == (0, "spec", "runtimeClassName")
    assert "RuntimeClass gvisor is in no file" in found.message
    assert missing_references([document], [runtime()]) == ()
