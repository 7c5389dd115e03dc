"""Kubernetes objects are converted to the pods and nodes of packing."""

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from leeway.selection.labels import HOSTNAME, NODEPOOL, ZONE
from leeway.selection.pods import HostPort, PodSpec, Taint
from leeway.selection.reading.cluster_objects import daemons_of, existing_nodes, pending_pods
from leeway.selection.reading.objects import BadObject
from leeway.selection.reading.pod_objects import pod_spec
from leeway.selection.resources import Resources
from leeway_cli.selection.input_warnings import unknown_kinds

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod(name: str = "web", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels or {"app": "web"}},
        "spec": {"containers": containers, **spec},
    }


def web(namespace: str = "shop", **labels: str) -> PodSpec:
    return PodSpec(namespace=namespace, labels=labels)


def test_a_pod_requests_one_of_the_resource_pods() -> None:
    assert pod_spec(pod()).requests.printed() == {"cpu": "100m", "pods": "1"}


def test_each_term_of_node_affinity_holds_together_with_the_node_selector() -> None:
    terms = [
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n-1"]}]},
    ]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    first, second = pod_spec(pod(nodeSelector={"b": "2"}, affinity=affinity)).terms
    assert first.admits({"a": "1", "b": "2"})
    assert not first.admits({"a": "1"})
    assert second.admits({HOSTNAME: "n-1", "b": "2"})


def test_a_pod_without_any_requirement_has_no_terms() -> None:
    assert pod_spec(pod()).terms == ()


def needs(count: int) -> dict[str, dict[str, Any]]:
    """Parts of a pod's spec by what they have this many of."""
    key = {"key": "a", "operator": "Exists"}
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": ZONE}
    preferred = [{"weight": 1, "podAffinityTerm": term}] * count
    several = [{**key, "key": f"k-{n}"} for n in range(count)]
    of_nodes = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [one]} for one in several]}}
    values = {"key": "a", "operator": "In", "values": [f"v-{n}" for n in range(count)]}
    names = {f"example.com/r-{n}": "1" for n in range(count - 1)}  # one is `pods`
    return {
        "preferences": {"affinity": {"podAntiAffinity": {PREFERRED: preferred}}},
        "terms of affinity and topology spread": {"affinity": {"nodeAffinity": of_nodes}},
        "topology keys": {
            "topologySpreadConstraints": [{"topologyKey": f"k-{n}"} for n in range(count)]
        },
        "expressions in its terms of affinity and topology spread": {
            "topologySpreadConstraints": [
                {"topologyKey": ZONE, "labelSelector": {"matchExpressions": several}}
            ]
        },
        "values in these expressions": {
            "affinity": {
                "nodeAffinity": {
                    PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [values]}}]
                }
            }
        },
        "tolerations": {"tolerations": [{**key, "key": f"k-{n}"} for n in range(count)]},
        "host ports": {
            "hostNetwork": True,
            "containers": [{"ports": [{"containerPort": 1 + n} for n in range(count)]}],
        },
        "requested resources": {"containers": [{"resources": {"requests": names}}]},
    }


@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("preferences", 100),
        ("terms of affinity and topology spread", 250),
        ("topology keys", 25),
        ("expressions in its terms of affinity and topology spread", 2_500),
        ("values in these expressions", 25_000),
        ("tolerations", 250),
        ("host ports", 1_000),
        ("requested resources", 100),
    ],
)
def test_a_pod_with_too_much_to_plan_with_gets_no_node(what: str, most: int) -> None:
    assert pod_spec(pod(**needs(most)[what])).unmet is None
    found = pod_spec(pod(**needs(most + 1)[what]))
    assert found.unmet is not None
    assert found.unmet.message == (
        f"The pod has {most + 1} {what}, and Leeway plans nodes only for pods with at most {most}."
    )
    left = PodSpec("shop", {"app": "web"}, found.requests, unmet=found.unmet)
    assert replace(found, pod_anti_affinity=()) == left


@pytest.mark.parametrize(("terms", "labels"), [(1_500, 1_500), (200, 10_000)])
def test_too_many_terms_and_labels_of_nodes_are_not_combined(terms: int, labels: int) -> None:
    """1.5 MiB hold 10,000 of both, which would be 100 million expressions."""
    spec = needs(terms)["terms of affinity and topology spread"]
    document = pod(**spec, nodeSelector={f"label-{n}": "x" for n in range(labels)})
    tracemalloc.start()
    try:
        found = pod_spec(document)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.unmet is not None
    assert found.unmet.code == "PodTooComplex"
    assert peak < 20_000_000  # bytes


def test_a_pod_that_is_too_complex_keeps_other_pods_off_its_node_if_it_may() -> None:
    here = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": HOSTNAME}
    many = pod_spec(pod(affinity={"podAntiAffinity": {REQUIRED: [here] * 251}}))
    (term,) = many.pod_anti_affinity
    assert term.topology == HOSTNAME
    assert term.selects(web("anywhere", app="any"))
    assert pod_spec(pod(**needs(1_001)["host ports"])).pod_anti_affinity == (term,)
    assert not pod_spec(pod(**needs(251)["tolerations"])).pod_anti_affinity


def test_a_pod_term_selects_only_the_pods_own_namespace_by_default() -> None:
    selector = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": ZONE}
    terms = [selector, {**selector, "namespaces": ["x"]}, {**selector, "namespaceSelector": {}}]
    own, named, every = pod_spec(pod(affinity={"podAffinity": {REQUIRED: terms}})).pod_affinity
    assert own.selects(web(app="db"))
    assert not own.selects(web("x", app="db"))
    assert named.selects(web("x", app="db"))
    assert not named.selects(web(app="db"))
    assert every.selects(web("anywhere", app="db"))


def test_a_namespace_selector_by_name_means_the_namespaces_of_these_names() -> None:
    def term(selector: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"labelSelector": {}, "topologyKey": ZONE, "namespaceSelector": selector, **more}

    name = "kubernetes.io/metadata.name"
    terms = [
        term({"matchLabels": {name: "x"}}),
        term({"matchExpressions": [{"key": name, "operator": "In", "values": ["x", "y"]}]}),
        term({"matchLabels": {name: "x"}}, namespaces=["z"]),
        term({"matchLabels": {"team": "a"}}),
    ]
    found = pod_spec(pod(affinity={"podAffinity": {REQUIRED: terms}})).pod_affinity
    assert [each.namespaces for each in found] == [{"x"}, {"x", "y"}, {"x", "z"}, None]


def test_match_label_keys_require_the_pods_own_values() -> None:
    spread = {
        "maxSkew": 2,
        "minDomains": 3,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["pod-template-hash"],
    }
    labels = {"app": "web", "pod-template-hash": "1"}
    (found,) = pod_spec(pod(labels=labels, topologySpreadConstraints=[spread])).spreads
    assert (found.max_skew, found.min_domains, found.required) == (2, 3, False)
    assert found.pods.selects(web(**labels))
    assert not found.pods.selects(web(**{**labels, "pod-template-hash": "2"}))


def test_an_older_name_of_a_topology_is_the_same_topology() -> None:
    older = {"labelSelector": {}, "topologyKey": "failure-domain.beta.kubernetes.io/zone"}
    found = pod_spec(pod(affinity={"podAffinity": {REQUIRED: [older]}}))
    assert found.pod_affinity[0].topology == ZONE
    assert pod_spec(pod(topologySpreadConstraints=[older])).spreads[0].pods.topology == ZONE


def test_a_spread_honors_affinity_and_ignores_taints_by_default() -> None:
    usual = {"topologyKey": ZONE, "labelSelector": {}}
    other = {**usual, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    found = pod_spec(pod(topologySpreadConstraints=[usual, other])).spreads
    assert [(s.honors_affinity, s.honors_taints) for s in found] == [(True, False), (False, True)]


def test_a_term_without_a_selector_selects_no_pod_and_an_empty_one_selects_all() -> None:
    terms = [{"topologyKey": ZONE}, {"topologyKey": ZONE, "labelSelector": {}}]
    nobody, everybody = pod_spec(
        pod(affinity={"podAntiAffinity": {REQUIRED: terms}})
    ).pod_anti_affinity
    assert not nobody.selects(web(app="web"))
    assert everybody.selects(web(app="web"))


def test_preferences_come_with_their_weights() -> None:
    near = {"weight": 7, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": {}}}
    node = {
        "weight": 3,
        "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
    }
    affinity = {"podAffinity": {PREFERRED: [near]}, "nodeAffinity": {PREFERRED: [node]}}
    found = pod_spec(pod(affinity=affinity))
    assert [w.weight for w in (*found.preferred_pod_affinity, *found.preferred_terms)] == [7, 3]


def test_container_ports_on_the_host_network_are_host_ports() -> None:
    every = "0.0.0.0"  # noqa: S104 - read, not bound
    ports = [{"containerPort": 80, "hostPort": 8080, "hostIP": every}, {"containerPort": 81}]
    container = {"name": "c", "ports": ports}
    assert pod_spec(pod(containers=[container])).ports == {HostPort(8080)}
    found = pod_spec(pod(containers=[container], hostNetwork=True)).ports
    assert found == {HostPort(8080), HostPort(81)}


def test_a_priority_is_the_pods_own_or_its_classes() -> None:
    assert pod_spec(pod(priority=5, priorityClassName="x")).priority == 5
    assert pod_spec(pod(priorityClassName="x"), priorities={"x": 9}).priority == 9
    assert pod_spec(pod(priorityClassName="system-node-critical")).priority > 10**9


@pytest.mark.parametrize(
    ("kind", "spec", "names"),
    [
        ("Deployment", {"replicas": 2}, ["shop/web-0", "shop/web-1"]),
        ("StatefulSet", {}, ["shop/web-0"]),
        ("Job", {"parallelism": 5, "completions": 2}, ["shop/web-0", "shop/web-1"]),
    ],
)
def test_workloads_are_expanded_to_pods(kind: str, spec: dict[str, Any], names: list[str]) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    metadata = {"name": "web", "namespace": "shop"}
    workload = {"kind": kind, "metadata": metadata, "spec": {**spec, "template": template}}
    assert [p.name for p in pending_pods([workload], {})] == names
    assert len(pending_pods([workload], {"web": 7})) == 7


def test_running_finished_and_gated_pods_are_not_pending() -> None:
    done = {**pod("done"), "status": {"phase": "Succeeded"}}
    held = pod("held", schedulingGates=[{"name": "x"}])
    found = pending_pods([pod("bound", nodeName="n"), done, held, pod("waits")], {})
    assert [p.name for p in found] == ["shop/waits"]


def test_nodes_have_their_pods_taints_and_pool() -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {NODEPOOL: "spot"}},
        "spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoExecute"}]},
        "status": {"allocatable": {"cpu": "2"}, "capacity": {"cpu": "3"}},
    }
    (found,) = existing_nodes([node, pod(nodeName="n"), pod(nodeName="other")])
    assert found.pool == "spot"
    assert found.capacity.of("cpu") == 3000
    assert len(found.pods) == 1
    assert found.taints[0] == Taint("a", "", "NoExecute")
    assert found.taints[1].key == "node.kubernetes.io/unschedulable"


def test_daemonset_pods_are_read_from_the_daemonset_or_from_an_owned_pod() -> None:
    template = {"spec": pod()["spec"]}
    given = {
        "kind": "DaemonSet",
        "metadata": {"name": "logs", "namespace": "shop"},
        "spec": {"template": template},
    }
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    owned = pod(nodeName="n", affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})
    for name in ("logs", "proxy"):
        owners = [{"kind": "DaemonSet", "name": name}]
        owned = {**owned, "metadata": {**owned["metadata"], "ownerReferences": owners}}
        assert len(daemons_of([given, owned])) == (1 if name == "logs" else 2)
    assert daemons_of([owned])[0].terms == ()


def test_other_kinds_are_ignored_if_there_are_kinds_that_are_read() -> None:
    service, monitor, rollout = (
        {"kind": kind, "metadata": {"name": "x"}} for kind in ("Service", "PodMonitor", "Rollout")
    )
    assert not unknown_kinds([workload("Deployment"), service, monitor])
    assert unknown_kinds([workload("Deployment"), service, rollout, rollout]) == {"Rollout": 2}
    with pytest.raises(BadObject, match="expected Pod, List, Deployment") as refused:
        unknown_kinds([service])
    assert refused.value.path == (0, "kind")


@pytest.mark.parametrize(
    ("kind", "meant"), [("Deploymet", "Deployment"), ("Pods", "Pod"), ("statefulSet", "Stateful")]
)
def test_a_misspelled_kind_is_rejected(kind: str, meant: str) -> None:
    with pytest.raises(BadObject, match=f"got {kind}; did you mean {meant}") as refused:
        unknown_kinds([pod(), {"kind": kind, "metadata": {"name": "x"}}])
    assert refused.value.path == (1, "kind")


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": ["all"]},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"nodeSelector": {"not a label": "x"}, "affinity": {"nodeAffinity": {REQUIRED: 3}}},
    ],
)
def test_an_invalid_pod_is_rejected_with_its_path(spec: dict[str, Any]) -> None:
    with pytest.raises(BadObject) as refused:
        pending_pods([pod(), pod(**spec)], {})
    assert refused.value.path[0] == 1
    assert str(refused.value)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"containers": [{"resources": {"requests": {"cpu": "-1"}}}]}, "not negative"),
        ({"resources": {"requests": {"memory": "-1Gi"}}}, "not negative"),
        ({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": ZONE}]}, "maxSkew"),
        ({"topologySpreadConstraints": [{"maxSkew": "a", "topologyKey": ZONE}]}, "maxSkew"),
        ({"tolerations": [{"operator": "Equals"}]}, "operator: expected '', 'Equal' or 'Exists'"),
        ({"tolerations": [{"effect": "NoRun"}]}, "effect: expected '', 'NoSchedule'"),
        ({"containers": [{"ports": [{"hostPort": "http"}]}]}, "hostPort"),
        ({"containers": [{"ports": [{"hostPort": 70000}]}]}, "hostPort"),
        (
            {"affinity": {"podAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": {}}]}}},
            "weight",
        ),
    ],
)
def test_values_that_are_invalid_in_kubernetes_are_rejected(
    spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadObject) as refused:
        pod_spec(pod(**spec))
    assert words in f"{'.'.join(map(str, refused.value.path))}: {refused.value}"


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"kind": "Pod", "metadata": "web"}, (1, "metadata")),
        ({"kind": "Pod", "metadata": {"name": "web"}, "spec": [1]}, (1, "spec")),
        ({"kind": "Pod", "metadata": {}}, (1, "metadata", "name")),
    ],
)
def test_an_invalid_object_is_rejected_with_its_path(
    document: dict[str, Any], path: tuple[object, ...]
) -> None:
    for reading in (lambda of: pending_pods(of, {}), existing_nodes, daemons_of):
        with pytest.raises(BadObject) as refused:
            reading([pod(), document])
        assert refused.value.path == path


def test_required_node_affinity_with_only_empty_terms_matches_no_node() -> None:
    (term,) = pod_spec(
        pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}})
    ).terms
    assert not term.admits({HOSTNAME: "n"})
    assert not term.admits({})


def owned(name: str, kind: str, by: str, **spec: Any) -> dict[str, Any]:
    found = pod(name, **spec)
    owners = [{"kind": kind, "name": by, "controller": True}]
    return {**found, "metadata": {**found["metadata"], "ownerReferences": owners}}


def ending(document: dict[str, Any]) -> dict[str, Any]:
    metadata = {**document["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return {**document, "metadata": metadata}


HERE = {
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "2"}, "capacity": {"cpu": "2"}},
}


def test_pods_that_need_no_new_node_are_not_pending() -> None:
    nominated = {**pod("nominated"), "status": {"nominatedNodeName": "n"}}
    lost = {**pod("lost"), "status": {"nominatedNodeName": "gone"}}
    daemon = owned("daemon", "DaemonSet", "logs")
    found = pending_pods([HERE, nominated, lost, daemon, ending(pod("ends"))], {})
    assert [p.name for p in found] == ["shop/lost"]


def test_a_terminating_node_is_excluded_and_nominated_pods_are_on_their_node() -> None:
    nominated = {**pod("nominated"), "status": {"nominatedNodeName": "n"}}
    (found,) = existing_nodes([HERE, nominated])
    assert len(found.pods) == 1
    assert existing_nodes([ending(HERE)]) == ()


def test_a_terminating_pod_uses_room_and_is_not_counted() -> None:
    (found,) = existing_nodes([HERE, ending(pod(nodeName="n"))])
    assert found.pods == ()
    assert found.terminating.printed() == {"cpu": "100m", "pods": "1"}


def test_a_terminating_pod_holds_its_ports_and_its_anti_affinity() -> None:
    containers = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    selector = {"matchLabels": {"app": "web"}}
    apart = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]
    on_node = [
        ending(pod(nodeName="n", containers=containers)),
        ending(pod(nodeName="n", affinity={"podAntiAffinity": {REQUIRED: apart}})),
        ending(pod(nodeName="n")),
    ]
    (found,) = existing_nodes([HERE, *on_node])
    assert found.pods == ()
    with_port, kept_apart = found.terminating_pods
    assert with_port.ports == {HostPort(80)}
    assert [one.topology for one in kept_apart.pod_anti_affinity] == [HOSTNAME]
    assert kept_apart.requests == Resources()
    assert found.closed().present == ()


def test_the_requests_of_daemonset_pods_on_a_node_are_summed() -> None:
    (found,) = existing_nodes(
        [HERE, pod(nodeName="n"), owned("d", "DaemonSet", "logs", nodeName="n")]
    )
    assert found.daemons.of("cpu") == 100
    assert len(found.pods) == 2


def workload(kind: str, name: str = "web", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    metadata = {"name": name, "namespace": "shop"}
    return {"kind": kind, "metadata": metadata, "spec": {**spec, "template": template}}


def test_a_suspended_job_has_no_pods_and_a_workload_without_replicas_has_one() -> None:
    assert pending_pods([workload("Job", parallelism=3, suspend=True)], {}) == ()
    assert len(pending_pods([workload("Deployment", replicas=None)], {})) == 1


def test_the_ordinals_of_a_stateful_set_start_where_it_specifies() -> None:
    found = pending_pods([workload("StatefulSet", replicas=2, ordinals={"start": 5})], {})
    assert [p.name for p in found] == ["shop/web-5", "shop/web-6"]


def test_a_workload_whose_pods_are_given_is_not_counted_twice() -> None:
    whole = workload("Deployment", replicas=3)
    of_it = owned("web-7d9-x", "ReplicaSet", "web-7d9")
    found = pending_pods([whole, of_it, workload("Deployment", "other", replicas=1)], {})
    assert [p.name for p in found] == ["shop/web-7d9-x", "shop/other-0"]
