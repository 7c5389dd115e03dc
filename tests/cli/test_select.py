"""`leeway select`: the nodes for pods, and a reason for every pod that fits nowhere."""

import json
from pathlib import Path
from typing import Any

import pytest
from leeway_cli import main
from leeway_cli.selection.input_warnings import missing_references
from leeway_cli.selection.sources import sandbox_catalog

USERS = Path(__file__).parents[1] / "manifests" / "users"
SPOT = (USERS / "provisioner-spot.yaml").read_text()
GPU = (USERS / "provisioner-gpu.yaml").read_text()
OLD_GPUS = '"p2.xlarge", "p3.2xlarge", "p3.8xlarge", "p3.16xlarge"'
NOTEBOOK = """
apiVersion: v1
kind: Pod
metadata: {name: test-0, namespace: kubeflow-user}
spec:
  containers:
    - name: notebook
      image: x
      resources:
        requests: {cpu: 665m, memory: 1184Mi, nvidia.com/gpu: 1}
        limits: {cpu: 2600m, memory: 3167538380800m, nvidia.com/gpu: 1}
"""
INFLATE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: inflate}
spec:
  replicas: 0
  selector: {matchLabels: {app: inflate}}
  template:
    metadata: {labels: {app: inflate}}
    spec:
      containers:
        - {name: inflate, image: x, resources: {requests: {cpu: 1}}}
"""


@pytest.fixture
def select(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command on texts; returns what it printed as JSON."""

    def run(pool: str, pods: str = "", nodes: str = "", *more: str) -> Any:
        arguments = ["select", "-f", str(written(tmp_path, "pool.yaml", pool)), "--sandbox"]
        if pods:
            arguments += ["--pods", str(written(tmp_path, "pods.yaml", pods))]
        if nodes:
            arguments += ["--nodes", str(written(tmp_path, "nodes.json", nodes))]
        code = main.run([*arguments, "-o", "json", *more])
        plan = json.loads(capsys.readouterr().out)
        assert code == (1 if plan["unschedulable"] else 0)
        return plan

    return run


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def cheapest_spot(cpu: int, names: set[str] | None = None, families: str = "cmr") -> float:
    """The least Spot price of a type with so many millicores for pods, by the catalog itself."""
    from leeway.selection.offers.allocatable import NodeClass

    return min(
        offering.price
        for kind in sandbox_catalog().for_node_class(NodeClass()).types()
        if (kind.name in names if names else kind.name[0] in families)
        and not kind.name.endswith("metal")
        and kind.labels["kubernetes.io/arch"] == "amd64"
        and kind.allocatable.of("cpu") >= cpu
        for offering in kind.offerings
        if offering.capacity_type == "spot" and offering.price is not None and offering.available
    )


@pytest.mark.parametrize("types", [OLD_GPUS, "g4dn.xlarge, g5.xlarge, g5.2xlarge"])
def test_a_gpu_pod_gets_the_cheapest_spot_type_of_its_pool(types: str, select: Any) -> None:
    plan = select(GPU.replace(OLD_GPUS, types), NOTEBOOK)
    names = set(types.replace('"', "").split(", "))
    (launch,) = plan["launches"]
    assert launch["capacityType"] == "spot"
    assert launch["pods"] == ["kubeflow-user/test-0"]
    assert launch["requests"]["nvidia.com/gpu"] == "1"
    assert set(launch["instanceTypes"]) <= names
    assert launch["pricePerHour"] == cheapest_spot(665, names)
    assert plan["unschedulable"] == []


def test_a_pool_without_offerings_is_reported(select: Any) -> None:
    plan = select(GPU, NOTEBOOK, "", "--region", "eu-north-1")
    assert plan["launches"] == []
    (miss,) = plan["unschedulable"]
    assert miss["pod"] == "kubeflow-user/test-0"
    assert "eu-north-1 offers none of them" in miss["reason"]["message"]


def test_five_replicas_get_the_cheapest_spot_type_that_fits_them(select: Any) -> None:
    plan = select(SPOT, INFLATE, "", "--replicas", "inflate=5")
    (launch,) = plan["launches"]
    assert launch["pods"] == [f"default/inflate-{i}" for i in range(5)]
    assert launch["pricePerHour"] == plan["pricePerHour"] == cheapest_spot(5000)
    assert launch["zones"]
    assert 0 < plan["lowerBoundPerHour"] <= plan["pricePerHour"]
    assert set(plan) == {
        "formatVersion",
        "launches",
        "existing",
        "unschedulable",
        "pricePerHour",
        "lowerBoundPerHour",
    }


def test_the_nodes_that_kubectl_lists_are_filled_first(select: Any) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "here", "labels": {"topology.kubernetes.io/zone": "us-east-1a"}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "3", "memory": "8Gi", "pods": "9"},
            "capacity": {"cpu": "4"},
        },
    }
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    bound = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bound", "namespace": "default"},
        "spec": {"nodeName": "here", "containers": [container]},
    }
    waiting = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"waits-{i}", "namespace": "default"},
            "spec": {"containers": [container]},
        }
        for i in range(3)
    ]
    items = [node, bound, *waiting]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    plan = select(SPOT, "", listed)
    assert plan["existing"] == [{"node": "here", "pods": ["default/waits-0", "default/waits-1"]}]
    assert [launch["pods"] for launch in plan["launches"]] == [["default/waits-2"]]


def test_the_table_shows_launches_and_unschedulable_pods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = written(tmp_path, "pool.yaml", SPOT)
    pods = written(tmp_path, "pods.yaml", INFLATE + "---" + NOTEBOOK)
    arguments = ["--sandbox", "--replicas", "inflate=1"]
    assert main.run(["select", "-f", str(pool), "--pods", str(pods), *arguments]) == 1
    printed = capsys.readouterr().out
    assert "default/inflate-0" in printed
    assert "kubeflow-user/test-0 is unschedulable: " in printed
    assert "1 node to launch" in printed


@pytest.mark.parametrize(
    ("pods", "more", "words"),
    [
        (
            (
                "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{resources: {requests: "
                "{cpu: lots}}}]}\n"
            ),
            [],
            "Pod x: spec.containers[0].resources.requests.cpu: expected a quantity",
        ),
        (INFLATE, ["--replicas", "inflate=many"], "--replicas: expected NAME=N"),
        (
            INFLATE,
            ["--replicas", "deflate=1"],
            "--replicas: expected a workload of the files, got deflate",
        ),
        (INFLATE.replace("replicas: 0", "replicas: -1"), [], "spec.replicas: expected 0 to"),
        (INFLATE, ["--region", "mars-1"], "--region: expected one of"),
    ],
)
def test_bad_input_is_one_line_that_names_the_place(
    pods: str,
    more: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool = written(tmp_path, "pool.yaml", SPOT.partition("---")[0])
    path = written(tmp_path, "pods.yaml", pods)
    assert main.run(["select", "-f", str(pool), "--pods", str(path), "--sandbox", *more]) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if not line.startswith("warning:")]
    assert len(lines) == 1
    assert words in lines[0]
    assert captured.out == ""


def test_an_invalid_node_is_reported_with_its_own_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = written(tmp_path, "pool.yaml", SPOT.partition("---")[0])
    pods = written(tmp_path, "pods.yaml", NOTEBOOK)
    bound = "kind: Pod\nmetadata: {name: x}\nspec: {nodeName: n, containers: [{resources: 3}]}\n"
    nodes = written(tmp_path, "nodes.yaml", "kind: Node\nmetadata: {name: n}\n---\n" + bound)
    arguments = ["select", "-f", str(pool), "--pods", str(pods), "--nodes", str(nodes)]
    assert main.run([*arguments, "--sandbox"]) == 2
    assert (
        "nodes.yaml:6: Pod x: spec.containers[0].resources: expected a mapping, got 3"
        in capsys.readouterr().err
    )


def test_a_very_large_request_is_reported_as_unschedulable(select: Any) -> None:
    (miss,) = select(SPOT, NOTEBOOK.replace("cpu: 665m", "cpu: 9E"))["unschedulable"]
    assert "the pod requests 9E of cpu" in miss["reason"]["message"]


def test_select_without_pods_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = written(tmp_path, "pool.yaml", SPOT)
    assert main.run(["select", "-f", str(pool), "--sandbox"]) == 2
    assert "--pods: expected a file of pods" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pods", "printed"),
    [
        (
            INFLATE,
            "warning: no pod is pending; set the replicas of inflate with --replicas inflate=N\n",
        ),
        (NOTEBOOK + "status: {phase: Succeeded}\n", "warning: no pod is pending\n"),
    ],
)
def test_select_without_pending_pods_prints_a_warning(
    pods: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["-f", str(written(tmp_path, "pool.yaml", SPOT))]
    files += ["--pods", str(written(tmp_path, "pods.yaml", pods))]
    assert main.run(["select", "--sandbox", *files, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert err.endswith(printed)
    assert json.loads(out)["launches"] == []


def test_the_output_of_kubectl_get_for_a_whole_cluster_is_accepted(select: Any) -> None:
    others = ("CronJob", "Service", "EndpointSlice", "Lease", "Event", "CSIDriver")
    items = [{"kind": kind, "metadata": {"name": "x"}} for kind in others]
    room = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    items.append(
        {
            "kind": "Node",
            "metadata": {"name": "here", "labels": {"kubernetes.io/arch": "amd64"}},
            "status": {"allocatable": room, "capacity": room},
        }
    )
    drivers = [{"name": "ebs.csi.aws.com", "allocatable": {"count": 25}}]
    items.append({"kind": "CSINode", "metadata": {"name": "here"}, "spec": {"drivers": drivers}})
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    items.append({"kind": "Pod", "metadata": {"name": "web"}, "spec": spec})
    plan = select(SPOT, "", json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    assert plan["existing"] == [{"node": "here", "pods": ["default/web"]}]


BESIDE = """
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      containers: [{name: c}]
      nodeSelector: {zone: us-east-1a}
      volumes:
        - name: data
          persistentVolumeClaim: {claimName: data}
---
kind: LimitRange
metadata: {name: usual, namespace: shop}
spec: {limits: [{type: Container, defaultRequest: {cpu: 200m}}]}
---
kind: ServiceMonitor
metadata: {name: web}
---
kind: CustomResourceDefinition
metadata: {name: x}
---
kind: MutatingWebhookConfiguration
metadata: {name: x}
---
kind: RuntimeClass
metadata: {name: gvisor}
handler: runsc
---
kind: Rollout
metadata: {name: other}
"""


def test_other_objects_are_ignored_and_unknown_kinds_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["-f", str(written(tmp_path, "pool.yaml", SPOT.partition("---")[0]))]
    pods = written(tmp_path, "pods.yaml", BESIDE)
    assert main.run(["select", "--sandbox", *files, "--pods", str(pods), "-o", "json"]) == 1
    out, err = capsys.readouterr()
    assert f"warning: {pods}:30: kind: Rollout is ignored: Leeway reads no pods from it\n" in err
    field = "spec.template.spec.volumes[0].persistentVolumeClaim.claimName"
    printed = (
        f"warning: {pods}:11: Deployment web: {field}: PersistentVolumeClaim shop/data is in no"
    )
    assert printed in err
    (miss,) = json.loads(out)["unschedulable"]
    assert "did you mean topology.kubernetes.io/zone?" in miss["reason"]["message"]


def pod(name: str, *volumes: dict[str, Any], **spec: Any) -> dict[str, Any]:
    found = {"containers": [{"name": "c"}], "volumes": list(volumes), **spec}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": found}


CLAIMED = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def claim(**spec: Any) -> dict[str, Any]:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


def reported(*objects: dict[str, Any]) -> list[str]:
    return [each.message.partition(" is in no file")[0] for each in missing_references(objects)]


def test_a_missing_claim_is_reported_once_with_its_path() -> None:
    (found,) = missing_references([pod("a"), pod("b", CLAIMED), pod("c", CLAIMED)])
    assert found.path == (1, "spec", "volumes", 0, "persistentVolumeClaim", "claimName")
    assert found.message == (
        "PersistentVolumeClaim default/data is in no file: selection assumes that "
        "it allows every zone and every node"
    )


def test_missing_references_of_a_claim_are_reported() -> None:
    web = pod("web", CLAIMED)
    assert reported(web, claim(volumeName="pv")) == [
        "PersistentVolume pv of the claim default/data"
    ]
    assert reported(web, claim(storageClassName="gp3")) == ["StorageClass gp3"]
    assert reported(web, claim()) == ["a default StorageClass"]
    assert reported(web, claim(storageClassName="")) == []
    storage = {"kind": "StorageClass", "metadata": {"name": "gp3"}}
    assert reported(web, claim(storageClassName="gp3"), storage) == []


def test_missing_classes_of_stateful_sets_and_ephemeral_volumes_are_reported() -> None:
    volumes = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]
    template = {"spec": {"containers": [{"name": "c"}]}}
    db = {
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {"template": template, "volumeClaimTemplates": volumes},
    }
    ephemeral = {"volumeClaimTemplate": {"spec": {"storageClassName": "slow"}}}
    assert reported(db, pod("web", {"name": "x", "ephemeral": ephemeral})) == [
        "StorageClass fast",
        "StorageClass slow",
    ]


def test_references_of_running_pods_are_ignored() -> None:
    assert reported(pod("web", CLAIMED, nodeName="n")) == []
