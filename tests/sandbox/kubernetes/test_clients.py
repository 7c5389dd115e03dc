"""Stock clients: kubectl, if it is installed, and lightkube."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod, budget, deployment

type Kubectl = Callable[..., subprocess.CompletedProcess[str]]

_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return a cluster of three nodes with a DaemonSet."""
    live.add_nodes(1, 2, 3)
    template = deployment("agent", 1)["spec"]["template"]
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    daemons = "/apis/apps/v1/namespaces/default/daemonsets"
    live.create(daemons, {"metadata": {"name": "agent"}, "spec": spec})
    live.until(lambda: len(live.running("app=agent")) == 3)
    return live


@pytest.fixture
def kubectl(cluster: Live, tmp_path: Path) -> Kubectl:
    """Return a function that runs the stock kubectl."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl on the PATH")
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig()), "HOME": str(tmp_path)}

    def call(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )

    return call


def test_kubectl_drain_refuses_then_drains_around_a_budget(cluster: Live, kubectl: Kubectl) -> None:
    pod = bare_pod("lonely")
    pod["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    cluster.create(PODS, pod)
    cluster.until(lambda: cluster.api.get(f"{PODS}/lonely").json()["status"]["phase"] == "Running")
    node = cluster.api.get(f"{PODS}/lonely").json()["spec"]["nodeName"]
    here = {"nodeSelector": {"kubernetes.io/hostname": node}}
    cluster.create(PODS, bare_pod("unmanaged", **here))
    [guarded] = cluster.deploy("guarded", 1, spec=here)
    [daemon] = [one for one in cluster.running("app=agent") if one["spec"]["nodeName"] == node]
    cluster.create(_BUDGETS, budget("guarded", "guarded", minAvailable=1))

    refused = kubectl("drain", node)
    forced = ("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    blocked = kubectl(*forced, "--timeout=3s")
    cluster.api.delete(f"{_BUDGETS}/guarded")
    drained = kubectl(*forced, "--timeout=60s")
    restored = kubectl("uncordon", node)

    left, kept = (f"default/{one['metadata']['name']}" for one in (guarded, daemon))
    assert refused.returncode == 1
    assert refused.stdout == f"node/{node} cordoned\n"
    assert (
        f"cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): {kept}"
        in refused.stderr
    )
    assert (
        "cannot delete Pods with local storage (use --delete-emptydir-data to override): "
        "default/lonely" in refused.stderr
    )
    assert (
        "cannot delete Pods that declare no controller (use --force to override): "
        "default/unmanaged" in refused.stderr
    )
    assert blocked.returncode == 1
    assert (
        f'error when evicting pods/"{guarded["metadata"]["name"]}" -n "default" (will retry after '
        "5s): Cannot evict pod as it would violate the pod's disruption budget."
    ) in blocked.stderr
    assert "global timeout reached: 3s" in blocked.stderr
    # The other pods were evicted before the budget blocked.
    assert "pod/lonely evicted" in blocked.stdout
    assert f"ignoring DaemonSet-managed Pods: {kept}" in drained.stderr
    assert "deleting Pods that declare no controller: default/" in blocked.stderr
    assert drained.returncode == 0, drained.stderr
    assert f"evicting pod {left}" in drained.stdout + drained.stderr
    assert drained.stdout.endswith(
        f"pod/{guarded['metadata']['name']} evicted\nnode/{node} drained\n"
    )
    assert restored.stdout == f"node/{node} uncordoned\n"
    assert cluster.api.get(f"{PODS}/lonely").status_code == 404


def test_kubectl_cordons_once_and_a_server_dry_run_of_a_drain_changes_nothing(
    cluster: Live, kubectl: Kubectl
) -> None:
    [pod] = cluster.deploy("rehearsed", 1)
    node = pod["spec"]["nodeName"]

    rehearsed = kubectl("drain", node, "--dry-run=server", "--ignore-daemonsets", "--force")
    untouched = cluster.api.get(f"/api/v1/nodes/{node}").json()["spec"]
    cordoned, again = kubectl("cordon", node), kubectl("cordon", node)
    kubectl("uncordon", node)

    assert f"node/{node} drained (server dry run)" in rehearsed.stdout
    assert "unschedulable" not in untouched
    assert cluster.api.get(f"{PODS}/{pod['metadata']['name']}").status_code == 200
    assert cordoned.stdout == f"node/{node} cordoned\n"
    assert again.stdout == f"node/{node} already cordoned\n"


def test_kubectl_deletes_a_node_and_its_pods_are_deleted(cluster: Live, kubectl: Kubectl) -> None:
    [node] = cluster.add_nodes(9)
    cluster.until(
        lambda: [p for p in cluster.running("app=agent") if p["spec"]["nodeName"] == node]
    )

    deleted = kubectl("delete", "node", node)

    assert deleted.stdout == f'node "{node}" deleted\n'
    cluster.until(
        lambda: not [p for p in cluster.pods("app=agent") if p["spec"]["nodeName"] == node]
    )


@pytest.mark.parametrize("kind", ["namespace", "priorityclass", "deployment"])
def test_kubectl_applies_on_the_server_and_gets_the_manager_of_a_conflicting_field(
    kubectl: Kubectl, kind: str
) -> None:
    manifests: dict[str, dict[str, Any]] = {
        "namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": {"a": "1"}}},
        "priorityclass": {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {},
            "value": -10,
            "description": "1",
        },
        "deployment": deployment("", 1),
    }
    manifest = manifests[kind]
    manifest["metadata"]["name"] = f"applied-{kind}"
    field = {"namespace": ".metadata.labels.a", "priorityclass": ".description"}
    apply = ("apply", "--server-side", "-f", "-")

    created = kubectl(*apply, "--field-manager=leeway", stdin=json.dumps(manifest))
    other = json.loads(
        json.dumps(manifest).replace('"1"', '"2"').replace('replicas": 1', 'replicas": 2')
    )
    refused = kubectl(*apply, "--field-manager=other", stdin=json.dumps(other))
    forced = kubectl(*apply, "--field-manager=other", "--force-conflicts", stdin=json.dumps(other))

    assert "serverside-applied" in created.stdout
    assert refused.returncode == 1
    reasons = f'conflict with "leeway": {field.get(kind, ".spec.replicas")}'
    assert reasons in refused.stderr
    assert forced.returncode == 0, forced.stderr


def test_kubectl_shows_nodes_and_pods(cluster: Live, kubectl: Kubectl) -> None:
    nodes = kubectl("get", "nodes", "-o", "wide")
    pods = kubectl("get", "po", "-A", "-l", "app=agent")
    everything = kubectl("get", "all")
    described = kubectl("describe", "node", "ip-10-0-0-1.ec2.internal")

    assert nodes.stdout.split()[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert nodes.stdout.count(" Ready ") == 3
    assert pods.stdout.count("1/1") == 3
    assert "daemonset.apps/agent" in everything.stdout
    assert "Non-terminated Pods:" in described.stdout
    assert "providerid" in described.stdout.lower()


def test_kubectl_applies_scales_and_deletes(cluster: Live, kubectl: Kubectl) -> None:
    manifest = json.dumps(deployment("applied", 1))

    created = kubectl("apply", "-f", "-", stdin=manifest)
    again = kubectl("apply", "-f", "-", stdin=manifest)
    by_server = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
    scaled = kubectl("scale", "deployment", "applied", "--replicas=3")
    rolled = kubectl("rollout", "status", "deployment", "applied", "--timeout=60s")
    deleted = kubectl("delete", "deployment", "applied")

    assert created.stdout == "deployment.apps/applied created\n", created.stderr
    assert again.stdout == "deployment.apps/applied unchanged\n"
    assert by_server.stdout == "deployment.apps/applied serverside-applied\n", by_server.stderr
    assert scaled.stdout == "deployment.apps/applied scaled\n"
    assert "successfully rolled out" in rolled.stdout
    assert deleted.stdout == 'deployment.apps "applied" deleted\n'


def test_kubectl_finds_unknown_fields_and_bad_taints(cluster: Live, kubectl: Kubectl) -> None:
    wrong = deployment("wrong", 1)
    wrong["spec"]["replica"] = 2

    unknown = kubectl("apply", "-f", "-", stdin=json.dumps(wrong))
    tainted = kubectl("taint", "node", "ip-10-0-0-2.ec2.internal", "team=blue:NoSchedule")
    untainted = kubectl("taint", "node", "ip-10-0-0-2.ec2.internal", "team-")

    assert unknown.returncode == 1
    assert 'unknown field "spec.replica"' in unknown.stderr
    assert "tainted" in tainted.stdout
    assert "untainted" in untainted.stdout


def test_kubectl_reads_events_rights_and_resources(cluster: Live, kubectl: Kubectl) -> None:
    pod = bare_pod("nowhere", nodeSelector={"no": "where"})
    cluster.create(PODS, pod)
    cluster.until(lambda: cluster.api.get("/api/v1/events").json()["items"])

    events = kubectl("events")
    described = kubectl("describe", "pod", "nowhere")
    may = kubectl("auth", "can-i", "create", "pods", "--subresource=eviction")
    me = kubectl("auth", "whoami", "-o", "json")
    resources = kubectl("api-resources")

    assert "FailedScheduling" in events.stdout
    assert "FailedScheduling" in described.stdout
    assert may.stdout == "yes\n"
    assert json.loads(me.stdout)["status"]["userInfo"]["username"] == "admin"
    assert "poddisruptionbudgets" in resources.stdout


def test_kubectl_drains_by_deleting_where_eviction_is_disabled(
    cluster: Live, kubectl: Kubectl
) -> None:
    [pod] = cluster.deploy("deletable", 1)
    node = pod["spec"]["nodeName"]

    drained = kubectl("drain", node, "--disable-eviction", "--ignore-daemonsets", "--force")
    kubectl("uncordon", node)

    assert drained.returncode == 0, drained.stderr
    assert f"pod/{pod['metadata']['name']} deleted" in drained.stdout
