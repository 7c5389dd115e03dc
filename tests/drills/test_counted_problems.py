"""The drills of what MinorProblemsAlarm and LaunchProblemsAlarm count."""

from typing import Any

from leeway_sandbox.provisioning import create_workloads

from tests.drills.night import Night, drill
from tests.end_to_end.provisioning import CLUSTER, run

RUN = "With the next run, within a minute"


@drill("minorproblemsalarm", "headroom-is-not-applied", codes=["HeadroomRightMissing"])
def test_a_namespace_has_not_adopted_leeway(night: Night) -> None:
    night.next_run("keep-headroom")
    said = night.look(RUN)
    assert "StatefulSet default/nobody" in said
    assert "`kubectl create rolebinding leeway-headroom-target" in said


@drill("minorproblemsalarm", "a-stored-manifest-has-errors", codes=["ManifestInvalid"])
def test_a_stored_manifest_cannot_be_read(night: Night) -> None:
    # A warm run may have read the manifests in the minute before: it ends, and the next is cold.
    night.faults("lambda", {"function": "*headroom", "kill": "before"})
    night.next_run("keep-headroom")
    night.next_run("keep-headroom")
    assert "broken" in night.look(RUN)


@drill("minorproblemsalarm", "eventbridge-delivers-no-notices", codes=["EventLost"])
def test_eventbridge_loses_a_notice(night: Night) -> None:
    (instance, node) = night.env.unused_nodes(1, "plain").popitem()
    assert night.sandbox.interrupt([instance], late=40, copies=0)
    night.next_run("reconcile")
    said = night.look(RUN)
    assert f"{CLUSTER}/{instance}" in said
    assert "ENABLED" in said
    seen = night.env.wait([instance], night.begun)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("spot-interruption", "drained")
    assert not seen.died([node])
    night.next_run("reconcile")
    assert len(night.seen.outcomes(instance)) == 1, "it is retired once"


@drill("a-nodeoverlay-is-not-applied", codes=["OverlayConflict"])
def test_two_overlays_conflict(night: Night) -> None:
    run(night.sandbox)
    assert "overlaid" in night.look(RUN)


@drill("launchproblemsalarm", "launches-are-held-back", codes=["LaunchesCapped"])
def test_the_maximum_of_launches_is_reached(night: Night) -> None:
    create_workloads([waiting("waits", "healthy")], night.sandbox.write_kubeconfig())
    run(night.sandbox)
    assert "waits" in night.look(RUN)
    night.type("kubectl delete pod waits --now")


def waiting(name: str, in_pool: str) -> dict[str, Any]:
    """A pod that needs a node of a pool."""
    requests = {"cpu": "1500m"}
    spec = {
        "containers": [{"name": "c", "image": "pause", "resources": {"requests": requests}}],
        "nodeSelector": {"karpenter.sh/nodepool": in_pool},
        "tolerations": [{"operator": "Exists"}],
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
