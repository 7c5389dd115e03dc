"""The writes that the admission policies of rbac/ allow each group, in a running cluster."""

import copy
import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from leeway.headroom.pause_pods import (
    IMAGE,
    PausePods,
    deployment_object,
    priority_class_object,
)
from leeway.manifests.node_pool import check_annotation
from leeway_cli.adopt.plan import read_objects
from leeway_cli.adopt.settings.objects import is_limited
from leeway_sandbox.karpenter import CLAIMS, FINALIZER, NODECLAIMS

from tests.sandbox.kubernetes.live import DEPLOYMENTS, Live, deployment, running_cluster
from tests.sandbox.kubernetes.test_access import eks_token, grant

RBAC = Path(__file__).parents[2] / "rbac"
OWN = "/apis/apps/v1/namespaces/leeway-headroom/deployments"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
APPLY = {"fieldManager": "leeway", "force": "true"}
NUMBERS = count(1)
PAUSE = deployment_object(PausePods("warm", "leeway-headroom", {"cpu": "1"}), 1)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running_cluster(tmp_path_factory.mktemp("guarded"), "--rbac", str(RBAC)) as cluster:
        groups = {one: [f"leeway:{one}"] for one in ("drain", "capacity", "headroom")}
        grant(cluster, **groups, person=sorted({g for one in groups.values() for g in one}))
        yield cluster


@pytest.fixture(scope="module")
def headroom(live: Live) -> Iterator[httpx.Client]:
    with live.client(eks_token("headroom")) as client:
        yield client


def apply(client: httpx.Client, path: str, body: object) -> httpx.Response:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    return client.patch(path, params=APPLY, content=json.dumps(body), headers=headers)


def merge(client: httpx.Client, path: str, body: object) -> httpx.Response:
    headers = {"Content-Type": "application/merge-patch+json"}
    return client.patch(path, content=json.dumps(body), headers=headers)


def adopt(live: Live, role: str) -> None:
    """Bind a role in the namespace `default`, as docs/headroom.md describes."""
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "leeway:headroom"}
    reference = {"apiGroup": group["apiGroup"], "kind": "ClusterRole", "name": role}
    body = {"metadata": {"name": role}, "roleRef": reference, "subjects": [group]}
    assert live.api.post(BINDINGS, json=body).status_code in (201, 409)


def denied(answer: httpx.Response, policy: str) -> bool:
    text = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request"
    return answer.status_code == 422 and text in answer.json()["message"]


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return a copy with one field set; a number in the path is an index."""
    result = copy.deepcopy(document)
    *parts, last = path.split(".")
    place: Any = result
    for part in parts:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    if isinstance(place, list):
        place[int(last) :] = [value]
    else:
        place[last] = value
    return result


POD = "spec.template.spec"
SECRET = {"name": "s", "secret": {"secretName": "s"}}
# A kubelet sends it from its node's network, to any host.
PROBE = {"httpGet": {"host": "169.254.169.254", "port": 80, "path": "/"}}
MIRROR = "registry.example.com:5000/mirror"
DIGEST = IMAGE.partition("@")[2]


def kept_away(rule: str = "required", **term: Any) -> dict[str, Any]:
    """Anti-affinity to all pods of its own namespace on its node, except for some fields."""
    one: Any = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, **term}
    if rule == "preferred":
        one = {"weight": 1, "podAffinityTerm": one}
    return {"podAntiAffinity": {f"{rule}DuringSchedulingIgnoredDuringExecution": [one]}}


WIDE: tuple[dict[str, Any], ...] = (
    {"topologyKey": "topology.kubernetes.io/zone"},
    {"namespaceSelector": {}},
    {"namespaces": ["kube-system"]},
)


NO_PAUSE_PODS: list[tuple[str, Any]] = [
    (f"{POD}.containers.0.image", "docker.io/library/bash:5"),
    (f"{POD}.containers.0.image", "pause.example.com/bash"),
    (f"{POD}.containers.0.image", "evil.example.com/pause:latest"),
    (f"{POD}.containers.0.image", "registry.k8s.io.example.com/pause:3.10"),
    (f"{POD}.containers.0.image", "registry.k8s.io/pause"),
    (f"{POD}.containers.0.image", f"{MIRROR}/pause:3.10"),
    (f"{POD}.containers.0.image", f"{MIRROR}/pause@sha256:{'0' * 64}"),
    (f"{POD}.containers.0.image", f"{MIRROR}/bash@{DIGEST}"),
    ("spec.template.metadata.labels.app", "web"),
    ("spec.template.metadata.annotations", {"karpenter.sh/do-not-disrupt": "true"}),
    *((f"{POD}.affinity", kept_away(**term)) for term in WIDE),
    *((f"{POD}.affinity", kept_away("preferred", **term)) for term in WIDE),
    *(
        (f"{POD}.tolerations", [{"operator": "Exists", **key}])
        for key in (
            {},
            {"key": "leeway.sh/retiring"},
            {"key": "karpenter.sh/disrupted"},
            {"key": "node.kubernetes.io/unschedulable"},
            {"key": "node.cloudprovider.kubernetes.io/uninitialized"},
            {"key": "node-role.kubernetes.io/control-plane"},
            {"key": "ToBeDeletedByClusterAutoscaler"},
        )
    ),
    (f"{POD}.resourceClaims", [{"name": "gpu", "resourceClaimName": "theirs"}]),
    (f"{POD}.containers.0.command", ["/bin/sh"]),
    (f"{POD}.containers.0.args", ["x"]),
    (f"{POD}.containers.0.env", [{"name": "LD_PRELOAD", "value": "/x"}]),
    (f"{POD}.containers.0.envFrom", [{"secretRef": {"name": "s"}}]),
    (f"{POD}.containers.0.ports", [{"containerPort": 80, "hostPort": 80}]),
    (f"{POD}.containers.0.livenessProbe", PROBE),
    (f"{POD}.containers.0.readinessProbe", PROBE),
    (f"{POD}.containers.0.startupProbe", PROBE),
    (f"{POD}.containers.0.securityContext.procMount", "Unmasked"),
    (f"{POD}.containers.0.securityContext.privileged", True),
    (f"{POD}.containers.0.securityContext.runAsUser", 0),
    (f"{POD}.containers.0.securityContext.runAsNonRoot", False),
    (f"{POD}.containers.0.securityContext.allowPrivilegeEscalation", True),
    (f"{POD}.containers.0.securityContext.capabilities.add", ["SYS_ADMIN"]),
    (f"{POD}.containers.0.securityContext.capabilities.drop", []),
    (f"{POD}.containers.1", {"name": "more", "image": "pause"}),
    (f"{POD}.initContainers", [{"name": "init", "image": "pause"}]),
    (f"{POD}.volumes", [{"name": "host", "hostPath": {"path": "/"}}]),
    (f"{POD}.volumes", [SECRET]),
    (f"{POD}.hostNetwork", True),
    (f"{POD}.hostPID", True),
    (f"{POD}.hostIPC", True),
    (f"{POD}.nodeName", "node-1"),
    (f"{POD}.automountServiceAccountToken", True),
    (f"{POD}.serviceAccountName", "admin"),
    (f"{POD}.imagePullSecrets", [{"name": "s"}]),
    (f"{POD}.securityContext.runAsNonRoot", False),
    (f"{POD}.priorityClassName", "system-node-critical"),
    (f"{POD}.priorityClassName", ""),
]
"""Fields that Leeway may not give a Deployment."""


def test_headroom_may_create_pause_pods_only(live: Live, headroom: httpx.Client) -> None:
    """Neither when a Deployment is created, nor later."""
    apply(headroom, f"{CLASSES}/leeway-headroom--10", priority_class_object(-10))
    for exists in (False, True):
        if exists:
            assert apply(headroom, f"{OWN}/warm", PAUSE).status_code == 201
        for path, value in NO_PAUSE_PODS:
            written = apply(headroom, f"{OWN}/warm", changed(PAUSE, path, value))
            assert denied(written, "leeway-headroom-deployments"), (path, value, written.text)
    assert live.api.delete(f"{OWN}/warm").status_code == 200


ALL_PAUSE_PODS: list[tuple[str, Any]] = [
    (f"{POD}.containers.0.image", "registry.k8s.io/pause:3.9"),
    (f"{POD}.containers.0.image", f"{MIRROR}/pause:3.10@{DIGEST}"),
    (f"{POD}.containers.0.securityContext.procMount", "Default"),
    (f"{POD}.nodeSelector", {"karpenter.sh/nodepool": "gpu"}),
    (f"{POD}.tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}]),
    (f"{POD}.affinity", kept_away()),
]


def test_pause_pods_may_run_on_every_pool(headroom: httpx.Client) -> None:
    for path, value in ALL_PAUSE_PODS:
        written = apply(headroom, f"{OWN}/warm", changed(PAUSE, path, value))
        assert written.status_code == 201, (path, value, written.text)
        assert headroom.request("DELETE", f"{OWN}/warm").status_code == 200


def test_a_label_that_somebody_else_sets_on_pause_pods_stays(
    live: Live, headroom: httpx.Client
) -> None:
    assert apply(headroom, f"{OWN}/warm", PAUSE).status_code == 201
    labelled = {"spec": {"template": {"metadata": {"labels": {"cost-center": "12"}}}}}
    assert merge(live.api, f"{OWN}/warm", labelled).status_code == 200
    assert apply(headroom, f"{OWN}/warm", PAUSE).status_code == 200
    kept = live.api.get(f"{OWN}/warm").json()["spec"]["template"]["metadata"]["labels"]
    assert kept["cost-center"] == "12"
    assert headroom.request("DELETE", f"{OWN}/warm").status_code == 200


def test_headroom_has_no_rights_on_deployments_of_other_namespaces(
    headroom: httpx.Client,
) -> None:
    path = "/apis/apps/v1/namespaces/kube-system/deployments"
    assert apply(headroom, f"{path}/warm", PAUSE).status_code == 403
    assert headroom.get(path).status_code == 403
    assert merge(headroom, f"{path}/web/scale", {"spec": {"replicas": 0}}).status_code == 403
    assert merge(headroom, "/api/v1/namespaces/default", {}).status_code == 403
    assert headroom.post("/api/v1/namespaces", json={"metadata": {"name": "x"}}).status_code == 403


def test_headroom_may_write_only_the_scale_of_adopted_targets(
    live: Live, headroom: httpx.Client
) -> None:
    adopt(live, "leeway-headroom-target")
    name = f"target-{next(NUMBERS)}"
    live.create(DEPLOYMENTS, deployment(name, 1))
    path = f"{DEPLOYMENTS}/{name}"
    assert merge(headroom, f"{path}/scale", {"spec": {"replicas": 3}}).status_code == 200
    assert live.api.get(path).json()["spec"]["replicas"] == 3
    assert merge(headroom, path, {"metadata": {"annotations": {"a": "b"}}}).status_code == 403
    assert headroom.request("DELETE", path).status_code == 403


def test_headroom_may_not_change_users_deployments_in_namespaces_of_buffers(
    live: Live, headroom: httpx.Client
) -> None:
    adopt(live, "leeway-headroom-buffer")
    name = f"users-{next(NUMBERS)}"
    live.create(DEPLOYMENTS, deployment(name, 1))
    path = f"{DEPLOYMENTS}/{name}"
    policy = "leeway-headroom-deployments"
    taken = deployment_object(PausePods(name, "default", {"cpu": "1"}), 1)
    del taken["spec"]["selector"]
    assert denied(apply(headroom, path, taken), policy)
    assert denied(merge(headroom, path, {"spec": {"replicas": 0}}), policy)
    assert denied(headroom.request("DELETE", path), policy)
    buffer = deployment_object(PausePods("room", "default", {"cpu": "1"}), 1)
    assert apply(headroom, f"{DEPLOYMENTS}/room", buffer).status_code == 201
    assert headroom.request("DELETE", f"{DEPLOYMENTS}/room").status_code == 200


def test_headroom_writes_priority_classes_of_its_own_only(
    live: Live, headroom: httpx.Client
) -> None:
    policy = "leeway-headroom-priorities"
    ours = priority_class_object(-3)
    path = f"{CLASSES}/leeway-headroom--3"
    for field, value in (
        ("value", 1_000_000),
        ("globalDefault", True),
        ("preemptionPolicy", "PreemptLowerPriority"),
    ):
        assert denied(apply(headroom, path, {**ours, field: value}), policy)
    other = {**ours, "metadata": {"name": "theirs"}}
    assert denied(apply(headroom, f"{CLASSES}/theirs", other), policy)
    assert denied(headroom.request("DELETE", f"{CLASSES}/system-node-critical"), policy)
    assert apply(headroom, path, ours).status_code == 201
    assert headroom.request("DELETE", path).status_code == 200


TEAM = {"key": "team", "value": "ml", "effect": "NoSchedule"}
RETIRING = {"key": "leeway.sh/retiring", "value": "rebalance", "effect": "NoSchedule"}
DOWN = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"


def spec(**fields: object) -> dict[str, Any]:
    return {"spec": fields}


def metadata(**fields: object) -> dict[str, Any]:
    return {"metadata": fields}


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}
BY_NOBODY = [
    spec(taints=[]),
    spec(taints=[{**TEAM, "value": "web"}]),
    spec(taints=[TEAM, {"key": "dedicated", "effect": "NoExecute"}]),
    metadata(labels={"team": None}),
    metadata(labels={"node-role.kubernetes.io/control-plane": ""}),
    metadata(labels={"topology.kubernetes.io/zone": "z"}),
    metadata(annotations={"volumes.kubernetes.io/controller-managed-attach-detach": "false"}),
    metadata(annotations={"theirs": None}),
    metadata(finalizers=["example.com/kept"]),
    metadata(ownerReferences=[OWNER]),
]
BY_DRAIN = [
    spec(unschedulable=True),
    spec(unschedulable=True, taints=[TEAM, RETIRING]),
    metadata(labels={"leeway.sh/retiring": "rebalance", EXCLUDE: "true"}),
    metadata(annotations={"leeway.sh/attempt": "2", "leeway.sh/cordoned": "true"}),
]
LAUNCHED = {"leeway.sh/launched": "true"}
UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
REGISTERS = {"karpenter.sh/registered": "true"}
NOTES = {"karpenter.sh/do-not-disrupt": "true", "example.com/owner": "shop"}
RESTRICTED = "node-restriction.kubernetes.io/team"
NODE_GROUP = {"eks.amazonaws.com/nodegroup": "web"}
OF_KUBERNETES = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
BY_CAPACITY = [
    spec(taints=[TEAM, DOWN]),
    metadata(annotations={"leeway.sh/out-of-service": "true"}),
]
BY_CAPACITY_ON_ITS_OWN = [
    *BY_CAPACITY,
    metadata(labels={"pool": "gpu"}),
    {
        **metadata(labels={**REGISTERS, RESTRICTED: "a"}, annotations=NOTES),
        **spec(taints=[{**TEAM, "value": "b"}, DOWN]),
    },
]
NOT_BY_DRAIN = [
    *BY_NOBODY,
    metadata(labels={"team": "web"}),
    metadata(labels={"pool": "gpu"}),
    metadata(labels=LAUNCHED),
]
NOT_BY_CAPACITY_ON_ITS_OWN = [
    *BY_NOBODY,
    spec(unschedulable=True),
    spec(taints=[TEAM, RETIRING]),
    metadata(labels={EXCLUDE: "true"}),
    metadata(labels=NODE_GROUP),
    spec(taints=[TEAM, {"key": "pool", "value": "gpu", "effect": "NoSchedule"}]),
    metadata(labels={RESTRICTED: "a"}),
    {**metadata(labels=REGISTERS), **spec(taints=[])},
    {**metadata(labels=REGISTERS), **spec(taints=[TEAM, OF_KUBERNETES])},
    metadata(labels={**REGISTERS, EXCLUDE: "true"}),
    metadata(labels={**REGISTERS, **NODE_GROUP}),
    metadata(annotations=NOTES),
    metadata(labels=REGISTERS, annotations={"node.alpha.kubernetes.io/ttl": "0"}),
    metadata(labels=REGISTERS, annotations={"theirs": None}),
]
NOT_BY_CAPACITY = [
    *NOT_BY_CAPACITY_ON_ITS_OWN,
    metadata(labels={"pool": "gpu"}),
    metadata(labels=REGISTERS),
    metadata(labels={**REGISTERS, RESTRICTED: "a"}),
    metadata(labels={**REGISTERS, **LAUNCHED}),
    metadata(labels=LAUNCHED),
    spec(taints=[TEAM, UNREGISTERED]),
    {
        **metadata(labels=REGISTERS),
        **spec(taints=[TEAM, {"key": "pool", "value": "gpu", "effect": "NoExecute"}]),
    },
]


RESERVED = {"karpenter.k8s.aws/capacity-reservation-id": "cr-1"}
RESERVATION_ENDED = metadata(
    labels={**dict.fromkeys(RESERVED), "karpenter.sh/capacity-type": "on-demand"}
)

ANNOTATIONS = (
    "karpenter.sh/do-not-consolidate",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "plain",
    "example.com/kubernetes.io",
    "mykubernetes.io/a",
    "kubernetes.io/a",
    "volumes.kubernetes.io/controller-managed-attach-detach",
    "alpha.kubernetes.io/provided-node-ip",
    "readiness.k8s.io/a",
    "eks.amazonaws.com/nodeclass-hash",
    "leeway.sh/attempt",
)


def accepted(key: str) -> bool:
    """Whether a manifest may name an annotation, or a retirement writes it."""
    try:
        return check_annotation(key) == key
    except ValueError:
        return key.startswith("leeway.sh/")


@pytest.fixture(scope="module")
def node(live: Live) -> str:
    (name,) = live.add_nodes(next(NUMBERS), team="ml")
    return f"/api/v1/nodes/{name}"


def fresh(live: Live, node: str, taints: Sequence[object] = (), **labels: str) -> None:
    """Reset the node: with the taint and annotation of a team, without those of Leeway."""
    keys = (EXCLUDE, "leeway.sh/retiring", "pool", *REGISTERS, RESTRICTED, *LAUNCHED, *NODE_GROUP)
    marks = ("leeway.sh/attempt", "leeway.sh/cordoned", "leeway.sh/out-of-service")
    notes = dict.fromkeys((*marks, *NOTES, *ANNOTATIONS))
    body = {
        **metadata(
            labels={**dict.fromkeys(keys), "team": "ml", **labels},
            annotations={**notes, "theirs": "yes"},
        ),
        **spec(taints=[TEAM, *taints], unschedulable=None),
    }
    assert live.patch(node, body).status_code == 200


@pytest.mark.parametrize(
    ("group", "labels", "allowed", "refused"),
    [
        ("drain", {}, BY_DRAIN, NOT_BY_DRAIN),
        ("drain", LAUNCHED, BY_DRAIN, [*BY_NOBODY, metadata(labels=REGISTERS)]),
        ("capacity", {}, BY_CAPACITY, NOT_BY_CAPACITY),
        ("capacity", LAUNCHED, BY_CAPACITY_ON_ITS_OWN, NOT_BY_CAPACITY_ON_ITS_OWN),
        ("capacity", {**LAUNCHED, **NODE_GROUP}, BY_CAPACITY, [metadata(labels=REGISTERS)]),
        ("person", {}, BY_DRAIN, []),
    ],
)
def test_each_group_may_change_only_the_fields_of_nodes_that_it_needs(
    live: Live,
    node: str,
    group: str,
    labels: dict[str, str],
    allowed: list[Any],
    refused: list[Any],
) -> None:
    with live.client(eks_token(group)) as client:
        for body in refused:
            fresh(live, node, **labels)
            answer = merge(client, node, body)
            assert denied(answer, f"leeway-{group}-nodes"), (body, answer.text)
        for body in allowed:
            # A cordon before it would add a taint later, which this write would remove.
            fresh(live, node, **labels)
            answer = merge(client, node, body)
            assert answer.status_code == 200, (body, answer.text)


def test_drain_may_uncordon(live: Live, node: str) -> None:
    fresh(live, node)
    with live.client(eks_token("drain")) as client:
        assert merge(client, node, spec(unschedulable=True)).status_code == 200
        assert merge(client, node, spec(unschedulable=None)).status_code == 200
    assert "unschedulable" not in live.api.get(node).json()["spec"]
    fresh(live, node)


def test_capacity_removes_only_the_labels_of_a_reservation(live: Live, node: str) -> None:
    with live.client(eks_token("capacity")) as client:
        fresh(live, node, **RESERVED)
        assert denied(merge(client, node, RESERVATION_ENDED), "leeway-capacity-nodes")
        fresh(live, node, **RESERVED, **LAUNCHED)
        assert denied(merge(client, node, metadata(labels={"team": None})), "leeway-capacity-nodes")
        assert merge(client, node, RESERVATION_ENDED).status_code == 200
    body = metadata(labels={"karpenter.sh/capacity-type": None})
    assert live.patch(node, body).status_code == 200
    fresh(live, node)


@pytest.mark.parametrize(("labels", "taints"), [(LAUNCHED, []), ({}, [UNREGISTERED])])
def test_capacity_sets_up_a_node_once(
    live: Live, node: str, labels: dict[str, str], taints: list[object]
) -> None:
    pool = {"key": "pool", "value": "gpu", "effect": "NoSchedule"}
    fresh(live, node, taints, **labels)
    with live.client(eks_token("capacity")) as client:
        first = {**metadata(labels={**REGISTERS, **LAUNCHED}), **spec(taints=[TEAM, pool])}
        assert merge(client, node, first).status_code == 200
        again = {**metadata(labels=REGISTERS), **spec(taints=[TEAM, pool, {**pool, "key": "x"}])}
        assert denied(merge(client, node, again), "leeway-capacity-nodes")
        assert denied(merge(client, node, spec(taints=[TEAM])), "leeway-capacity-nodes")
        initialized = metadata(labels={"karpenter.sh/initialized": "true"})
        assert merge(client, node, initialized).status_code == 200
    fresh(live, node)


def test_capacity_removes_only_karpenters_finalizer_of_what_is_deleted(live: Live) -> None:
    (name,) = live.add_nodes(next(NUMBERS))
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert live.api.post(definitions, json=NODECLAIMS).status_code == 201
    live.until(lambda: live.api.get(CLAIMS).status_code == 200)
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    kept = [FINALIZER, "example.com/kept"]
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "general", "finalizers": kept},
        **spec(nodeClassRef=reference, requirements=[]),
    }
    assert live.api.post(CLAIMS, json=claim).status_code == 201
    node = f"/api/v1/nodes/{name}"
    assert live.patch(node, metadata(finalizers=kept)).status_code == 200
    own = metadata(finalizers=kept[1:])
    with live.client(eks_token("capacity")) as client:
        for path, policy in (
            (node, "leeway-capacity-nodes"),
            (f"{CLAIMS}/general", "leeway-capacity-nodeclaims"),
        ):
            assert denied(merge(client, path, own), policy), "nobody has deleted it"
            assert client.delete(path).status_code == 200
            assert denied(merge(client, path, metadata(finalizers=[])), policy)
            assert denied(merge(client, path, metadata(finalizers=kept[:1])), policy)
            both = metadata(finalizers=kept[1:], labels={"a": "b"})
            assert denied(merge(client, path, both), policy)
            assert merge(client, path, own).status_code == 200
    for path in (node, f"{CLAIMS}/general"):
        assert live.patch(path, metadata(finalizers=[])).status_code == 200
    live.api.delete(f"{definitions}/nodeclaims.karpenter.sh")


def test_a_pool_may_have_the_annotations_that_the_policy_admits(live: Live, node: str) -> None:
    with live.client(eks_token("capacity")) as client:
        for key in ANNOTATIONS:
            fresh(live, node, **LAUNCHED)
            body = metadata(labels=REGISTERS, annotations={key: "true"})
            assert (merge(client, node, body).status_code == 200) is accepted(key), key
    fresh(live, node)


def test_headroom_gets_no_right_to_write_pods_without_the_policies() -> None:
    documents = list(yaml.safe_load_all((RBAC / "leeway.yaml").read_text()))
    names = [one["metadata"]["name"] for one in documents]
    granted = {
        (verb, resource)
        for one in documents
        if one["kind"] == "ClusterRole" and "headroom" in one["metadata"]["name"]
        for rule in one["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {resource for verb, resource in granted if verb not in {"get", "list"}} == {
        "deployments/scale",
        "statefulsets/scale",
    }
    # `leeway adopt` leaves out the other objects on an API server without policies.
    assert names == [one.name for one in read_objects(RBAC) if not is_limited(one)]


def test_every_policy_is_bound_and_denies() -> None:
    documents = [
        one
        for one in yaml.safe_load_all((RBAC / "admission.yaml").read_text())
        if one["apiVersion"].startswith("admissionregistration")
    ]
    policies = {d["metadata"]["name"] for d in documents if d["kind"].endswith("Policy")}
    bound = {
        d["spec"]["policyName"]: d["spec"]["validationActions"]
        for d in documents
        if d["kind"].endswith("Binding")
    }
    assert policies
    assert bound == {policy: ["Deny"] for policy in policies}
    written = [d["spec"] for d in documents if "validations" in d["spec"]]
    assert written
    assert all(policy["failurePolicy"] == "Fail" for policy in written)
