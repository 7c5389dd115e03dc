"""Events about pods that get no node, in a living cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway.kubernetes.pod_events import HttpPodEvents
from leeway.ports.kubernetes import ClusterRefused
from leeway.provisioning.ports import PodEvent

from tests.sandbox.kubernetes.live import Live


@pytest.fixture
def events(kubeconfig: Path) -> Iterator[HttpPodEvents]:
    connection = kubeconfig_connection(kubeconfig)
    yield HttpPodEvents(connection)
    connection.close()


def test_an_event_is_written_once_and_says_which_pod(live: Live, events: HttpPodEvents) -> None:
    container = {"name": "c", "image": "x"}
    pod = live.create(
        "/api/v1/namespaces/default/pods",
        {"metadata": {"name": "lonely"}, "spec": {"containers": [container]}},
    )
    event = PodEvent(
        "lonely.0011", "default", "lonely", pod["metadata"]["uid"], "RequestTooLarge", "m" * 5000
    )
    events.write(event)
    events.write(event)
    listed = live.api.get("/api/v1/namespaces/default/events").json()["items"]
    (found,) = [one for one in listed if one["reason"] == "RequestTooLarge"]
    assert found["involvedObject"]["uid"] == pod["metadata"]["uid"]
    assert found["type"] == "Warning"
    assert len(found["message"]) == 1024


def test_an_event_in_a_namespace_that_has_gone_is_no_error(events: HttpPodEvents) -> None:
    events.write(PodEvent("x.0011", "gone", "x", "uid", "NoNodePool", "no"))


def test_a_namespace_that_is_no_name_is_refused(events: HttpPodEvents) -> None:
    with pytest.raises(ClusterRefused):
        events.write(PodEvent("x.0011", "a/../b", "x", "uid", "NoNodePool", "no"))
