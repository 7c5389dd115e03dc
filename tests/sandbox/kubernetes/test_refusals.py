"""Invalid requests and objects are refused as by a real API server, and never stop the server."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import (
    BUDGETS,
    DEPLOYMENTS,
    PODS,
    Live,
    bare_pod,
    budget,
    deployment,
)

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


_PERCENT = "a valid percent string must be a numeric string followed by an ending '%'"


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return a cluster of one node."""
    live.add_nodes(1)
    return live


def causes(answer: Any) -> list[tuple[str, str]]:
    """Return field and message of each cause of an error."""
    assert answer.status_code == 422, answer.text
    assert answer.json()["reason"] == "Invalid"
    return [(one["field"], one["message"]) for one in answer.json()["details"]["causes"]]


@pytest.mark.parametrize(
    ("bounds", "field", "reasons"),
    [
        ({"minAvailable": -1}, "spec.minAvailable", "must be greater than or equal to 0"),
        ({"maxUnavailable": "150%"}, "spec.maxUnavailable", "must not be greater than 100%"),
        ({"maxUnavailable": "5x"}, "spec.maxUnavailable", _PERCENT),
        ({"minAvailable": "-5%"}, "spec.minAvailable", _PERCENT),
        ({"minAvailable": 1, "maxUnavailable": 1}, "spec", "cannot be both set"),
        (
            {"unhealthyPodEvictionPolicy": "Sometimes"},
            "spec.unhealthyPodEvictionPolicy",
            'supported values: "AlwaysAllow", "IfHealthyBudget"',
        ),
    ],
)
def test_a_budget_with_invalid_bounds_is_refused(
    cluster: Live, bounds: dict[str, Any], field: str, reasons: str
) -> None:
    [(where, message)] = causes(cluster.api.post(BUDGETS, json=budget("wrong", "web", **bounds)))

    assert where == field
    assert reasons in message


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return a Deployment with another value at a path; None removes the field."""
    body = deployment("wrong", 1)
    *way, last = path.split(".")
    at: Any = body
    for step in way:
        at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
    if value is None:
        del at[last]
    else:
        at[last] = value
    return body


_POD = "spec.template.spec"
_CONTAINER = f"{_POD}.containers.0"


@pytest.mark.parametrize(
    ("path", "value", "field", "reasons"),
    [
        (
            "spec.strategy.rollingUpdate",
            {"maxSurge": 0, "maxUnavailable": 0},
            "spec.strategy.rollingUpdate.maxUnavailable",
            "may not be 0 when `maxSurge` is 0",
        ),
        (
            "spec.strategy",
            {"type": "Recreate", "rollingUpdate": {}},
            "spec.strategy.rollingUpdate",
            "may not be specified when strategy `type` is 'Recreate'",
        ),
        ("spec.strategy.type", "Blue", "spec.strategy.type", 'supported values: "Recreate"'),
        ("spec.replicas", -1, "spec.replicas", "greater than or equal to 0"),
        ("spec.minReadySeconds", 900, "spec.progressDeadlineSeconds", "than minReadySeconds"),
        ("spec.selector", None, "spec.selector", "Required value"),
        (f"{_CONTAINER}.name", None, f"{_POD}.containers[0].name", "Required value"),
        (f"{_CONTAINER}.image", None, f"{_POD}.containers[0].image", "Required value"),
        (
            f"{_CONTAINER}.resources",
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            f"{_POD}.containers[0].resources.requests",
            "must be less than or equal to cpu limit of 1",
        ),
        (
            f"{_CONTAINER}.resources",
            {"requests": {"memory": "-1Gi"}},
            f"{_POD}.containers[0].resources.requests[memory]",
            "must be greater than or equal to 0",
        ),
        (
            f"{_CONTAINER}.resources",
            {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}},
            f"{_POD}.containers[0].resources.requests",
            "must be equal to nvidia.com/gpu limit",
        ),
        (
            f"{_CONTAINER}.ports",
            [{"containerPort": 70000}],
            f"{_POD}.containers[0].ports[0].containerPort",
            "must be between 1 and 65535",
        ),
        (f"{_POD}.restartPolicy", "Never", f"{_POD}.restartPolicy", 'values: "Always"'),
        (
            f"{_POD}.tolerations",
            [{"operator": "Equal", "value": "x"}],
            f"{_POD}.tolerations[0].operator",
            "operator must be Exists when `key` is empty",
        ),
        (
            f"{_POD}.tolerations",
            [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}],
            f"{_POD}.tolerations[0].effect",
            "effect must be 'NoExecute'",
        ),
        (
            f"{_POD}.topologySpreadConstraints",
            [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
            f"{_POD}.topologySpreadConstraints[0].maxSkew",
            "must be greater than zero",
        ),
        (
            f"{_POD}.topologySpreadConstraints",
            [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
            f"{_POD}.topologySpreadConstraints[0].topologyKey",
            "Required value",
        ),
        (
            "spec.selector.matchExpressions",
            [{"key": "app", "operator": "Near"}],
            "spec.selector.matchExpressions[0].operator",
            "Unsupported value",
        ),
    ],
)
def test_an_invalid_deployment_is_refused(
    cluster: Live, path: str, value: Any, field: str, reasons: str
) -> None:
    [(where, message)] = causes(cluster.api.post(DEPLOYMENTS, json=changed(path, value)))

    assert where == field
    assert reasons in message


def test_a_duplicate_taint_is_refused(cluster: Live) -> None:
    taints = [{"key": "k", "value": v, "effect": "NoSchedule"} for v in ("a", "b")]
    path = "/api/v1/nodes/ip-10-0-0-1.ec2.internal"

    found = causes(cluster.patch(path, {"spec": {"taints": taints}}))

    assert {field for field, _ in found} == {"metadata.taints[1]"}
    assert "Duplicate value" in found[0][1]
    assert "taints" not in cluster.api.get(path).json()["spec"]


@pytest.mark.parametrize(
    "change",
    [
        {"terminationGracePeriodSeconds": 5},
        {"nodeSelector": {"a": "b"}},
        {"tolerations": []},
        {"hostNetwork": True},
    ],
)
def test_an_immutable_field_of_a_pod_cannot_be_changed(
    cluster: Live, change: dict[str, Any]
) -> None:
    if cluster.api.get(f"{PODS}/settled").status_code == 404:
        cluster.create(PODS, bare_pod("settled"))

    assert causes(cluster.patch(f"{PODS}/settled", {"spec": change}))


def test_mutable_fields_of_a_pod_can_be_changed(cluster: Live) -> None:
    pod = cluster.create(PODS, bare_pod("flexible"))
    tolerations = [*pod["spec"]["tolerations"], {"key": "a", "operator": "Exists"}]

    more = cluster.patch(f"{PODS}/flexible", {"spec": {"tolerations": tolerations}})
    image = [{"name": "c", "image": "pause:2"}]
    strategic = "strategic-merge-patch+json"
    other = cluster.patch(f"{PODS}/flexible", {"spec": {"containers": image}}, strategic)

    assert (more.status_code, other.status_code) == (200, 200)


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        ({}, "name in URL does not match name in Eviction object"),
        ({"metadata": {"name": "other"}}, "name in URL does not match"),
        (
            {"metadata": {"name": "evictable", "namespace": "kube-system"}},
            "the namespace of the provided object does not match",
        ),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "evictable"}},
            "the API version in the data (v1) does not match the expected API version (policy/v1)",
        ),
        (
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"},
            "not a Eviction object: *policy.PodDisruptionBudget",
        ),
        (
            {"apiVersion": "example.com/v1", "kind": "Eviction"},
            'no kind "Eviction" is registered for version "example.com/v1"',
        ),
        (
            {"metadata": {"name": "evictable"}, "deleteOptions": {"gracePeriodSeconds": "1"}},
            "cannot unmarshal string",
        ),
        ([], "no object"),
    ],
)
def test_an_eviction_with_an_invalid_body_evicts_no_pod(
    cluster: Live, body: Any, reasons: str
) -> None:
    if cluster.api.get(f"{PODS}/evictable").status_code == 404:
        cluster.create(PODS, bare_pod("evictable"))

    refused = cluster.api.post(f"{PODS}/evictable/eviction", json=body)
    empty = cluster.api.post(f"{PODS}/evictable/eviction")

    assert (refused.status_code, empty.status_code) == (400, 400)
    assert reasons in refused.json()["message"]
    assert "deletionTimestamp" not in cluster.api.get(f"{PODS}/evictable").json()["metadata"]
