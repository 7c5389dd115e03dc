"""What the API server adds to pods: defaults of LimitRanges, and what RuntimeClasses say."""

from typing import Any

import pytest
from leeway.selection.pods import PodSpec, Toleration
from leeway.selection.reading.cluster_objects import daemons_of, existing_nodes, pending_pods
from leeway.selection.reading.missing_references import missing_references
from leeway.selection.reading.objects import BadObject


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


def waits(*objects: dict[str, Any]) -> PodSpec:
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
def test_a_container_that_says_nothing_asks_for_what_its_namespace_gives(
    resources: dict[str, Any], limit: dict[str, Any], cpu: int
) -> None:
    assert waits(pod(resources), limits(**limit)).requests.of("cpu") == cpu


def test_init_containers_get_the_defaults_too() -> None:
    document = pod({"requests": {"cpu": "10m"}}, initContainers=[{"name": "i"}])
    assert waits(document, limits(defaultRequest={"cpu": "2"})).requests.of("cpu") == 2000


def test_another_namespace_gives_nothing_and_of_two_limit_ranges_the_first_by_name_does() -> None:
    elsewhere = limits(namespace="other", default={"cpu": "1"})
    assert waits(pod(), elsewhere).requests.of("cpu") == 0
    both = [limits("b", default={"cpu": "2"}), limits("a", default={"cpu": "1"})]
    assert waits(pod(), *both).requests.of("cpu") == 1000


def test_a_pod_that_the_server_keeps_already_is_as_it_was_admitted() -> None:
    kept = pod(metadata={"uid": "1"}, runtimeClassName="gvisor")
    overhead = runtime(overhead={"podFixed": {"cpu": "250m"}})
    assert waits(kept, limits(default={"cpu": "1"}), overhead).requests.of("cpu") == 0


def test_pods_of_workloads_and_daemons_are_admitted_too() -> None:
    given = limits(defaultRequest={"cpu": "200m"})
    for kind in ("Deployment", "StatefulSet", "Job"):
        whole = {
            "kind": kind,
            "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
            "spec": {"template": {"spec": pod()["spec"]}},
        }
        assert waits(whole, given).requests.of("cpu") == 200
    whole["kind"] = "DaemonSet"
    (daemon,) = daemons_of([whole], [given])
    assert daemon.requests.of("cpu") == 200


def test_pods_that_stand_on_a_node_are_admitted_too() -> None:
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}
    (found,) = existing_nodes([node, pod(nodeName="n")], [limits(default={"cpu": "1"})])
    assert [each.requests.of("cpu") for each in found.pods] == [1000]


def test_a_runtime_class_costs_its_overhead_and_says_where_it_is() -> None:
    given = runtime(
        overhead={"podFixed": {"cpu": "250m"}},
        scheduling={
            "nodeSelector": {"runtime": "gvisor"},
            "tolerations": [{"key": "gvisor", "operator": "Exists"}],
        },
    )
    found = waits(pod({"requests": {"cpu": "1"}}, runtimeClassName="gvisor"), given)
    assert found.requests.of("cpu") == 1250
    assert [str(term) for term in found.terms] == ["runtime In [gvisor]"]
    assert found.tolerations == (Toleration("gvisor", "Exists"),)
    other = waits(pod({"requests": {"cpu": "1"}}), given)
    assert (other.requests.of("cpu"), other.terms) == (1000, ())


def test_an_overhead_of_its_own_is_not_added_to() -> None:
    document = pod(runtimeClassName="gvisor", overhead={"cpu": "10m"})
    given = runtime(overhead={"podFixed": {"cpu": "250m"}})
    assert waits(document, given).requests.of("cpu") == 10


def test_a_node_selector_against_that_of_the_runtime_class_is_refused() -> None:
    given = runtime(scheduling={"nodeSelector": {"runtime": "gvisor"}})
    document = pod(runtimeClassName="gvisor", nodeSelector={"runtime": "kata"})
    with pytest.raises(BadObject, match="expected gvisor, as the RuntimeClass says") as refused:
        waits(document, given)
    assert refused.value.path == (0, "spec", "nodeSelector", "runtime")


def test_a_runtime_class_that_is_in_no_file_is_told() -> None:
    document = pod(runtimeClassName="gvisor")
    (found,) = missing_references([document])
    assert found.path == (0, "spec", "runtimeClassName")
    assert "RuntimeClass gvisor is in no file" in found.message
    assert missing_references([document], [runtime()]) == ()
