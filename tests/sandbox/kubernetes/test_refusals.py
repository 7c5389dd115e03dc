"""Invalid requests are refused with a reason and never stop the server."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_LIST, _WATCH = "/api/v1/pods?", "/api/v1/pods?watch=1&"


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        (f"{_LIST}limit=abc", 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        (f"{_WATCH}timeoutSeconds=soon", 400, 'parsing "soon"'),
        (f"{_LIST}resourceVersion=abc", 422, "resourceVersion: Invalid value"),
        (f"{_LIST}resourceVersion=99999999", 504, "Too large resource version: 99999999"),
        (f"{_LIST}labelSelector=a in (b", 400, "unable to parse requirement"),
        (f"{_LIST}fieldSelector=metadata.name", 400, "invalid selector"),
    ],
)
def test_a_malformed_read_is_refused(live: Live, path: str, code: int, text: str) -> None:
    refused = live.api.get(path)

    assert refused.status_code == code
    assert text in refused.json()["message"]


@pytest.mark.parametrize(
    ("sent", "code", "text"),
    [
        ({"gracePeriodSeconds": "x"}, 400, "cannot unmarshal string"),
        ({"propagationPolicy": "Upwards"}, 422, 'Unsupported value: "Upwards"'),
    ],
)
def test_malformed_options_of_a_deletion_are_refused(
    live: Live, sent: dict[str, Any], code: int, text: str
) -> None:
    live.api.post(PODS, json=bare_pod("kept"))

    refused = live.api.request("DELETE", f"{PODS}/kept", json=sent)
    by_query = live.api.delete(f"{PODS}/kept", params={"gracePeriodSeconds": "x"})
    evicted = live.evict("kept", gracePeriodSeconds="x")

    assert refused.status_code == code
    assert text in refused.json()["message"]
    assert (by_query.status_code, evicted.status_code) == (400, 400)
    assert live.api.get(f"{PODS}/kept").status_code == 200


@pytest.mark.parametrize(
    ("metadata", "resources", "code", "text"),
    [
        ({"labels": {"a": 1}}, {}, 400, "cannot unmarshal number"),
        ({"labels": {"bad key!": "x"}}, {}, 422, "name part must consist of"),
        ({}, {"requests": {"cpu": "lots"}}, 400, "quantities must match"),
    ],
)
def test_an_invalid_pod_is_refused(
    live: Live, metadata: dict[str, Any], resources: dict[str, Any], code: int, text: str
) -> None:
    pod = bare_pod("odd")
    pod["metadata"] |= metadata
    pod["spec"]["containers"][0]["resources"] = resources

    refused = live.api.post(PODS, json=pod)

    assert refused.status_code == code
    assert text in refused.json()["message"]


def test_a_name_cannot_be_changed(live: Live) -> None:
    refused = live.patch("/api/v1/namespaces/default", {"metadata": {"name": "other"}})

    assert refused.status_code == 400
    assert "does not match the name on the URL (default)" in refused.json()["message"]


def test_only_the_dry_run_value_all_is_supported(live: Live) -> None:
    refused = live.api.post(PODS, json=bare_pod("dry"), params={"dryRun": "Some"})

    assert refused.status_code == 422
    assert live.api.get(f"{PODS}/dry").status_code == 404


def test_a_priority_above_the_limit_of_users_is_refused(live: Live) -> None:
    refused = live.api.post(_CLASSES, json={"metadata": {"name": "high"}, "value": 2_000_000_000})
    without = live.api.post(_CLASSES, json={"metadata": {"name": "none"}})

    assert refused.status_code == 422
    assert "maximum allowed value" in refused.json()["message"]
    assert without.json()["value"] == 0


def test_a_page_of_an_expired_list_is_refused_with_a_new_token(live: Live) -> None:
    first = live.api.get("/api/v1/namespaces", params={"limit": 1}).json()["metadata"]["continue"]
    text = json.loads(base64.urlsafe_b64decode(first + "=" * (-len(first) % 4)))
    old = base64.urlsafe_b64encode(json.dumps({**text, "rv": 1}).encode()).decode()

    refused = live.api.get("/api/v1/namespaces", params={"continue": old.rstrip("=")})
    again = refused.json()["metadata"]["continue"]
    rest = live.api.get("/api/v1/namespaces", params={"continue": again})

    assert (refused.status_code, refused.json()["reason"]) == (410, "Expired")
    assert rest.json()["items"][0]["metadata"]["name"] == "kube-node-lease"
