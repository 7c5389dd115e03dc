"""What a rehearsal finds, and the lines that change it."""

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest
from leeway_cli.rehearse.cluster import Pace
from leeway_cli.rehearse.findings import Finding, find

from tests.rehearse.documents import (
    PACE,
    Object,
    budget,
    node,
    pod,
    read,
    storm_of,
    workload,
)

THREE = (node("a"), node("b"), node("c"))


def found(*objects: Object, lost: str = "a", pace: Pace = PACE) -> dict[str, Finding]:
    """The findings of one round by code."""
    cluster, storm = read(*objects, pace=pace), storm_of(*objects, lost=lost, pace=pace)
    return {one.code: one for one in find(cluster, [storm], pace, {})}


def patch_of(command: str) -> Any:
    return json.loads(shlex.split(command)[-1])


def test_a_cluster_that_loses_nothing_has_no_findings() -> None:
    pods = [pod(f"web-{on}", on) for on in "abc"]

    assert not found(*THREE, *pods, workload("Deployment", "web", 3), budget(maxUnavailable=1))


def test_a_long_grace_period_names_the_line_of_the_deployment() -> None:
    objects = [
        *THREE,
        pod("web-1", "a", grace=300),
        pod("web-2", "b"),
        workload("Deployment", "web", 2),
    ]
    one = found(*objects, pace=Pace(pod_stop=None))["GraceExceedsNotice"]

    assert one.change.object == "Deployment shop/web"
    assert one.change.line == "spec.template.spec.terminationGracePeriodSeconds: 110"
    assert one.message == (
        "Pods of Deployment shop/web may take 300 s to end and get 114 s before the deadline."
    )
    assert one.pods == ("shop/web-1",)
    spec = patch_of(one.change.command)["spec"]["template"]["spec"]
    assert spec == {"terminationGracePeriodSeconds": 110}


def test_a_budget_that_never_allows_names_its_line() -> None:
    pods = [pod("web-1", "a"), pod("web-2", "b")]
    one = found(*THREE, *pods, workload("Deployment", "web", 2), budget(minAvailable=2))[
        "BudgetNeverAllows"
    ]

    assert one.change.line == "spec.maxUnavailable: 1"
    assert one.change.object == "PodDisruptionBudget shop/web"
    assert patch_of(one.change.command) == {"spec": {"minAvailable": None, "maxUnavailable": 1}}


def test_a_budget_of_one_replica_also_names_the_replicas() -> None:
    objects = [*THREE, pod("web-1", "a"), workload("Deployment", "web", 1), budget(minAvailable=1)]
    codes = found(*objects)

    assert codes["BudgetNeverAllows"].change.value.endswith(
        "spec.replicas: 2 of Deployment shop/web"
    )
    assert codes["SingleReplica"].change.line == "spec.replicas: 2"
    assert "not Ready for 5 s" in codes["SingleReplica"].message


def test_a_budget_that_allows_too_few_evictions_in_time() -> None:
    pods = [pod(f"web-{n}", "a") for n in range(4)]
    slow = Pace(pod_start=50.0, pod_stop=2.0)
    objects = [*THREE, *pods, workload("Deployment", "web", 4), budget(maxUnavailable=1)]
    one = found(*objects, pace=slow)["BudgetAllowsTooLate"]

    assert one.change.line == "spec.maxUnavailable: 3"
    assert len(one.pods) == 2


def test_all_replicas_on_lost_nodes_should_be_spread() -> None:
    pods = [pod("web-1", "a"), pod("web-2", "a")]
    one = found(*THREE, *pods, workload("Deployment", "web", 2))["AllReplicasLost"]

    assert one.change.field == "spec.template.spec.topologySpreadConstraints"
    assert one.change.command == "kubectl --namespace shop edit deployment web"


def test_a_command_selects_the_cluster_that_was_read() -> None:
    pods = [pod("web-1", "a"), pod("web-2", "a"), pod("by-hand", "a", owner="")]
    objects = [*THREE, *pods, workload("Deployment", "web", 2)]
    cluster = replace(read(*objects), kubectl=("--context", "of prod"))
    storms = [storm_of(*objects, lost="a")]
    codes = {one.code: one.change for one in find(cluster, storms, PACE, {})}

    edit = "kubectl --namespace shop edit deployment web --context 'of prod'"
    assert codes["AllReplicasLost"].command == edit
    assert codes["NoController"].command == ""


def job(cron: str = "") -> Object:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": cron, "uid": "cron"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "ownerReferences": [owner | {"controller": True}] if cron else [],
        },
        "spec": {"parallelism": 2, "completions": 2, "template": template},
    }


@pytest.mark.parametrize("cron", ["", "nightly"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_job_gets_no_replicas(cron: str, count: int) -> None:
    pods = [pod(f"web-{number}", "a", owner="Job") for number in range(count)]
    codes = found(*THREE, *pods, job(cron), budget(minAvailable=count))

    assert not {"SingleReplica", "AllReplicasLost"} & codes.keys()
    change = codes["BudgetNeverAllows"].change
    assert change.line == f"spec.minAvailable: {count - 1}", "a Job has no scale"
    spec = {"maxUnavailable": None, "minAvailable": count - 1}
    assert patch_of(change.command) == {"spec": spec}


def test_a_budget_of_a_job_has_to_allow_what_is_lost() -> None:
    pods = [pod(f"web-{number}", "a", owner="Job") for number in range(3)]
    slow = Pace(pod_start=200.0, pod_stop=2.0)
    one = found(*THREE, *pods, job(), budget(minAvailable=1), pace=slow)["BelowBudget"]

    assert one.change.object == "PodDisruptionBudget shop/web"
    assert one.change.line == "spec.minAvailable: 0"


@pytest.mark.parametrize(
    ("cron", "command"),
    [("", ""), ("nightly", "kubectl --namespace shop edit cronjob nightly")],
)
def test_the_template_of_a_job_is_not_edited(cron: str, command: str) -> None:
    stubborn = pod("web-1", "a", owner="Job", tolerations=[{"operator": "Exists"}])

    assert found(*THREE, stubborn, job(cron))["ReturnsToNode"].change.command == command


def test_the_number_of_pods_of_an_unknown_kind_is_in_an_unknown_field() -> None:
    one = found(*THREE, pod("web-1", "a", owner="Kafka"))["SingleReplica"]

    assert one.change.line == "spec: 2 pods, in the field that Kafka has for their number"
    assert one.change.command == ""


def test_a_pod_without_a_controller_and_a_pod_that_tolerates_everything() -> None:
    stubborn = pod("web-1", "a", tolerations=[{"operator": "Exists"}])
    objects = [*THREE, pod("by-hand", "a", owner=""), stubborn, workload("Deployment", "web", 2)]
    codes = found(*objects)

    assert codes["NoController"].change.object == "Pod shop/by-hand"
    assert codes["ReturnsToNode"].change.field == "spec.template.spec.tolerations"


def test_finalizers_and_several_budgets() -> None:
    kept = pod("web-1", "a", metadata={"finalizers": ["example.com/keep"]})
    two = [budget(maxUnavailable=1), budget(name="again", maxUnavailable=1)]
    codes = found(*THREE, kept, pod("web-2", "b"), workload("Deployment", "web", 2), *two)

    assert "example.com/keep" in codes["FinalizersKeepObject"].message
    assert codes["PodHasSeveralBudgets"].change.command == (
        "kubectl --namespace shop delete pdb web"
    )


@pytest.mark.parametrize("bound", [True, False])
def test_a_pod_without_a_place_says_whether_its_volume_binds_it(bound: bool) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]}
    terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    volumes = [
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "shop"},
            "spec": {"volumeName": "pv"},
        },
        {"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"nodeAffinity": terms}},
    ]
    more: Any = {"volumes": [claim]} if bound else {}
    big = pod("web-1", "a", cpu="5" if not bound else "3", **more)
    full = pod("full", "c", cpu="3", app="other")
    nodes = [node("a"), node("b", zone="us-east-1b"), node("c")]
    cluster = read(*nodes, big, full, *volumes)
    storm = storm_of(*nodes, big, full, *volumes, lost="a c")
    codes = {one.code for one in find(cluster, [storm], PACE, {})}

    # The node that replaces `a` is in its zone: it has room for 3 cores, not for 5.
    assert ("NoRoom" in codes) is not bound


def test_the_nodes_of_another_controller_are_named() -> None:
    managed = node("a", **{"eks.amazonaws.com/nodegroup": "blue"})
    one = found(managed, node("b"), pod("web-1", "a"))["OwnerDrainsNode"]

    assert one.change.line == "spec.takes: [managed-node-group]"
    assert "managed node group blue" in one.message


def test_a_node_that_leeway_launched_is_not_karpenters() -> None:
    labels = {"karpenter.sh/nodepool": "web"}
    of_karpenter, of_leeway = (
        node("a", **labels),
        node("a", **labels, **{"leeway.sh/launched": "true"}),
    )
    assert "OwnerDrainsNode" in found(of_karpenter, node("b"), pod("web-1", "a"))
    assert "OwnerDrainsNode" not in found(of_leeway, node("b"), pod("web-1", "a"))


def test_the_tool_that_writes_an_object_is_named() -> None:
    owner = workload("Deployment", "web", 1)
    owner["metadata"]["annotations"] = {"meta.helm.sh/release-name": "web"}
    one = found(*THREE, pod("web-1", "a"), owner)["SingleReplica"]
    assert one.change.manager == "Helm release web"

    del owner["metadata"]["annotations"]
    owner["metadata"]["managedFields"] = [
        {"manager": "old", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}},
        {"manager": "kubectl-apply", "time": "2026-02-01T00:00:00Z", "fieldsV1": {"f:spec": {}}},
        {"manager": "kcm", "subresource": "status", "fieldsV1": {"f:spec": {}}},
    ]
    assert (
        found(*THREE, pod("web-1", "a"), owner)["SingleReplica"].change.manager == "kubectl-apply"
    )


def test_a_name_that_kubernetes_does_not_accept_gets_into_no_command() -> None:
    owner = workload("Deployment", "web; rm -rf ~", 1)
    hostile = pod("web-1", "a")
    reference = {"apiVersion": "apps/v1", "uid": "x", "controller": True}
    hostile["metadata"]["ownerReferences"] = [
        {"kind": "Deployment", "name": "web; rm -rf ~", **reference}
    ]
    one = found(*THREE, hostile, owner)["SingleReplica"]

    assert one.change.command == ""


def test_findings_of_many_rounds_keep_the_worst_and_count_the_rounds() -> None:
    pods = [pod("web-1", "a"), pod("web-2", "b")]
    objects = [*THREE, *pods, workload("Deployment", "web", 2), budget(minAvailable=2)]
    storms = [storm_of(*objects, lost=lost) for lost in ("a", "a b", "c")]
    codes = {one.code: one for one in find(read(*objects), storms, PACE, {})}

    assert codes["BudgetNeverAllows"].rounds == 2
    assert len(codes["BudgetNeverAllows"].pods) == 2
    assert codes["AllReplicasLost"].rounds == 1
