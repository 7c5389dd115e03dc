"""The answers of a real API server that are stricter or odder than one expects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from leeway_sandbox.kubernetes import schema
from leeway_sandbox.kubernetes.registry import KINDS

from tests.sandbox.kubernetes.live import BUDGETS, Live, budget
from tests.sandbox.kubernetes.recorded import Exchange, differences, exchanges

_STRICT = exchanges("strict-reading")
_ANSWERED = [one for one in _STRICT if "watch=1" not in one.path]
"""In the order of the recording: the lists are empty before anything is applied."""


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return the cluster of the recording: three nodes, and nothing else."""
    live.add_nodes(1, 2, 3)
    return live


def send(cluster: Live, exchange: Exchange) -> Any:
    headers = {"Accept": exchange.accept}
    if exchange.content_type:
        headers["Content-Type"] = exchange.content_type
    path, content = exchange.path, exchange.content
    return cluster.api.request(exchange.method, path, content=content, headers=headers)


@pytest.mark.parametrize("exchange", _ANSWERED, ids=lambda one: one.label)
def test_a_request_is_answered_as_recorded(cluster: Live, exchange: Exchange) -> None:
    response = send(cluster, exchange)
    assert response.status_code in {exchange.status, 200}
    assert response.headers["Content-Type"] == exchange.answer_type
    assert differences(exchange.answer, response.json()) == []


def test_no_stored_object_has_a_value_that_the_server_omits(cluster: Live) -> None:
    cluster.deploy("omits", 2)
    cluster.create(BUDGETS, budget("o", "omits"))
    found = []
    for kind in KINDS.values():
        root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        for one in cluster.api.get(f"{root}/{kind.plural}").json()["items"]:
            kept = json.loads(json.dumps(one))
            schema.omit_zeros(kind, kept)
            if kept != one:
                found.append((kind.kind, one["metadata"]["name"], set(one) - set(kept), one))
    assert found == []


def test_a_watch_of_metadata_sends_metadata(cluster: Live) -> None:
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    params = {"watch": "1", "timeoutSeconds": "1"}

    with cluster.api.stream(
        "GET", "/api/v1/nodes", params=params, headers={"Accept": accept}
    ) as response:
        [first, *_] = [json.loads(line) for line in response.iter_lines()]

    assert first["type"] == "ADDED"
    assert first["object"].keys() == {"kind", "apiVersion", "metadata"}
    assert first["object"]["kind"] == "PartialObjectMetadata"
