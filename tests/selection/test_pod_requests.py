"""What a pod requests in all."""

from typing import Any

from leeway.selection.reading.pod_objects import requests_of
from leeway.selection.resources import Resources


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


SIDECAR = {"restartPolicy": "Always"}


def cpu_of(**spec: Any) -> int:
    return requests_of(spec).of("cpu")


def test_containers_add_up_and_a_larger_init_container_counts_instead() -> None:
    assert cpu_of(containers=[container("100m"), container("250m")]) == 350
    assert cpu_of(containers=[container("100m")], initContainers=[container("1")]) == 1000
    assert cpu_of(containers=[container("2")], initContainers=[container("1")] * 3) == 2000


def test_a_sidecar_runs_beside_the_containers_and_the_init_containers_after_it() -> None:
    early, late = container("100m", **SIDECAR), container("300m", **SIDECAR)
    assert cpu_of(containers=[container("1")], initContainers=[early, late]) == 1400
    inits = [container("1"), early, container("1"), late]
    assert cpu_of(containers=[container("10m")], initContainers=inits) == 1100


def test_overhead_comes_on_top_and_a_limit_alone_is_a_request() -> None:
    limited = {"resources": {"limits": {"nvidia.com/gpu": 1, "cpu": 2}}}
    found = requests_of({"containers": [limited], "overhead": {"memory": "64Mi"}})
    assert found == Resources({"nvidia.com/gpu": 1, "cpu": 2000, "memory": 64 << 20})


def test_pod_level_requests_replace_those_of_the_containers() -> None:
    whole = {"requests": {"cpu": "3"}}
    found = requests_of({"containers": [container("1")], "resources": whole})
    assert found == Resources({"cpu": 3000})


def test_a_pod_level_limit_applies_if_the_containers_request_nothing() -> None:
    whole = {"limits": {"cpu": "4", "memory": "1Gi"}}
    found = requests_of({"containers": [container("1")], "resources": whole})
    assert found == Resources({"cpu": 1000, "memory": 1 << 30})


def test_a_pod_without_requests_requests_nothing() -> None:
    assert requests_of({"containers": [{"name": "c"}]}) == Resources()
