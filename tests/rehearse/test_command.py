"""`leeway rehearse` on files and on a cluster: tables, JSON, the page, and bad input."""

import json
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway_cli import main

from tests.cli.conftest import drop_clients
from tests.launch.pools import node_class
from tests.launch.pools import pool as node_pool
from tests.rehearse.documents import Object, budget, node, pod, workload
from tests.sandbox.kubernetes.live import Live

type Run = Callable[..., tuple[int, str, str]]

POOL = "karpenter.sh/nodepool"
PROVISIONER = Path(__file__).parents[1] / "manifests" / "users" / "provisioner-spot.yaml"


@pytest.fixture(autouse=True)
def without_account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No AWS credentials and no region."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    drop_clients()
    yield
    drop_clients()


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command on a file with these objects: its exit code, stdout and stderr."""

    def rehearse(objects: Sequence[Object] | str, *more: str) -> tuple[int, str, str]:
        path = tmp_path / "cluster.json"
        text = objects if isinstance(objects, str) else json.dumps(listed(objects))
        path.write_text(text)
        code = main.run(["rehearse", "--objects", str(path), *more])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return rehearse


def listed(objects: Sequence[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def shop() -> list[Object]:
    pods = [pod("web-1", "a", grace=300), pod("web-2", "b", grace=300)]
    owner = workload("Deployment", "web", 2)
    return [
        node("a"),
        node("b", zone="us-east-1b"),
        node("c"),
        *pods,
        owner,
        budget(minAvailable=2),
    ]


def test_the_page_counts_the_pods_that_it_does_not_list(run: Run, tmp_path: Path) -> None:
    pods = [pod(f"web-{number}", "a") for number in range(403)]
    page = tmp_path / "page.html"

    code, _, err = run(
        [node("a"), node("b"), *pods, workload("Deployment", "web", 403)],
        *("--lose", "a", "--html", str(page)),
    )

    assert code == 0, err
    assert "and 3 more pods: -o json lists all" in page.read_text()


def test_a_share_is_rehearsed_in_rounds_with_the_same_result_for_a_seed(run: Run) -> None:
    results = [run(shop(), "--lose", "30%", "--rounds", "20", "-o", "json") for _ in range(2)]
    code, out, _ = results[0]
    found = json.loads(out)

    assert code == 0
    assert results[0][1] == results[1][1]
    assert (found["nodes"], found["rounds"], found["seed"]) == (3, 20, 0)
    assert len(found["worstRound"]["lost"]) == 1
    assert [one["workload"] for one in found["workloads"]] == ["Deployment shop/web"]
    assert found["workloads"][0]["lost"] == {"median": 1, "worst": 1}
    assert {one["code"] for one in found["findings"]} == {
        "BudgetNeverAllows",
        "GraceExceedsNotice",
    }
    assert all(0 < one["rounds"] < 20 for one in found["findings"])


def test_the_table_names_each_finding_its_line_and_its_command(run: Run) -> None:
    code, out, err = run(shop(), "--lose", "zone/us-east-1b")

    assert code == 0
    assert "Lost: zone/us-east-1b, which is 1 of 3 nodes" in out
    assert "spec.template.spec.terminationGracePeriodSeconds: 110" in out
    assert "kubectl --namespace shop patch pdb web --type merge" in out
    assert "price unknown" in out
    assert "prices are unknown, because no AWS credentials and region are set" in err


def test_the_prices_of_the_sandbox_are_known(run: Run) -> None:
    spot = {"karpenter.sh/capacity-type": "spot"}
    objects = [node("a", **spot), node("b", **spot), pod("web-1", "a")]
    _, out, err = run(objects, "--lose", "a", "--sandbox", "-o", "json")
    (launch,) = json.loads(out)["worstRound"]["launches"]

    assert (launch["insteadOf"], launch["instanceTypes"]) == ("a", ["m5.large"])
    assert launch["pricePerHour"] > 0
    assert not err


def test_a_provisioner_of_a_user_launches_too(run: Run) -> None:
    objects = [node("a", **{"karpenter.sh/provisioner-name": "default"}), pod("web-1", "a")]
    _, out, _ = run(objects, "--lose", "a", "-f", str(PROVISIONER), "--sandbox", "-o", "json")
    (launch,) = json.loads(out)["worstRound"]["launches"]

    assert (launch["pool"], launch["capacityType"]) == ("default", "spot")


def test_a_pool_launches_for_the_pods_that_have_no_room(run: Run, tmp_path: Path) -> None:
    manifests = tmp_path / "pools.yaml"
    manifests.write_text(yaml.safe_dump_all([node_pool("general"), node_class()]))
    objects = [node("a", **{POOL: "general"}), pod("web-1", "a", cpu="3")]
    code, out, _ = run(objects, "--lose", "a", "-f", str(manifests), "--sandbox", "-o", "json")
    (launch,) = json.loads(out)["worstRound"]["launches"]

    assert code == 0
    assert (launch["pool"], launch["insteadOf"]) == ("general", None)
    assert launch["pods"] == ["shop/web-1"]
    assert json.loads(out)["worstRound"]["pods"][0]["readyAt"] == 100


def test_the_policy_of_a_cluster_manifest_applies(run: Run, tmp_path: Path) -> None:
    manifest = tmp_path / "cluster.yaml"
    policy = {"spot-interruption": {"onBlocked": "wait"}}
    body = {"apiVersion": "leeway.sh/v1", "kind": "Cluster", "metadata": {"name": "prod"}}
    manifest.write_text(yaml.safe_dump({**body, "spec": {"notices": policy}}))
    code, out, err = run(shop(), "--lose", "a", "-f", str(manifest), "-o", "json")

    assert code == 0, err
    codes = {one["code"] for one in json.loads(out)["findings"]}
    assert "PodRunsUntilTheEnd" in codes


class Tags(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)


def test_the_page_escapes_what_the_cluster_says(run: Run, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J"
    owned = pod("web-1", "a", grace=300)
    owned["metadata"]["ownerReferences"][0] |= {"kind": hostile, "name": hostile}
    kept = pod("web-2", "a", metadata={"finalizers": [hostile]})
    page = tmp_path / "page.html"
    code, out, _ = run([node("a"), node("b"), owned, kept], "--lose", "a", "--html", str(page))
    parser = Tags()
    parser.feed(page.read_text())

    assert code == 0
    assert "script" not in parser.tags
    assert "svg" in parser.tags
    assert "\x1b" not in out + page.read_text()
    assert "&lt;script&gt;" in page.read_text()


def test_an_object_of_another_shape_is_reported_and_not_read(run: Run) -> None:
    broken = pod("web-2", "a")
    broken["spec"]["terminationGracePeriodSeconds"] = "soon"
    odd = workload("Deployment", "odd", 1)
    odd["spec"]["selector"] = ["web"]
    code, out, err = run([*shop(), broken, odd], "--lose", "a", "-o", "json")

    assert code == 0
    assert "Pod shop/web-2 is not read" in err
    assert "Deployment shop/odd is not read" in err
    assert [one["pod"] for one in json.loads(out)["worstRound"]["pods"]] == ["shop/web-1"]


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ('{"apiVersion": "v1", "kind": "List", "items": []}', 2, "found no node"),
        ('{"a": 1}', 2, "expected"),
        ("[]", 2, "expected a Kubernetes object"),
        ("{", 2, "expected"),
        ("", 2, "found no node"),
        (json.dumps(listed([pod("web-1", "a")])), 2, "found no node"),
    ],
)
def test_a_file_that_is_no_cluster(run: Run, text: str, code: int, expected: str) -> None:
    found, out, err = run(text, "--lose", "30%")

    assert (found, out) == (code, "")
    assert expected in err
    assert len(err.splitlines()) == 1


def test_a_file_without_pods_is_rehearsed_with_a_warning(run: Run) -> None:
    code, out, err = run([node("a"), node("b")], "--lose", "a")

    assert code == 0
    assert "has no pod" in err
    assert "Nothing to change" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--lose", "zone/eu-west-1a"], "(us-east-1a, us-east-1b), got zone/eu-west-1a"),
        (["--lose", "0%"], "--lose: expected a share above 0% and up to 100%"),
        (["--lose", "30%", "--rounds", "0"], "--rounds: expected 1 to 10000"),
        (["--lose", "30%", "--node-start", "soon"], "--node-start"),
        (["--lose", "30%", "--pod-start", "2h"], "--pod-start: expected at most 1h"),
        (["--lose", "30%", "--html", "/nowhere/page.html"], "--html: expected a file in a folder"),
        (["--lose", "30%", "--context", "x"], "--objects: expected no --kubeconfig"),
        ([], "Missing option '--lose'"),
    ],
)
def test_bad_options(run: Run, arguments: list[str], expected: str) -> None:
    code, out, err = run(shop(), *arguments)

    assert (code, out) == (2, "")
    assert expected in err


@pytest.fixture(scope="module")
def live(live: Live) -> Live:
    """A cluster with two nodes and a Deployment."""
    live.kubeconfig()
    live.add_nodes(1, 2)
    live.deploy("web", 2)
    return live


@pytest.fixture
def on_cluster(live: Live, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run the command on the cluster, without faults at the end."""

    def rehearse(*more: str) -> tuple[int, str, str]:
        kubeconfig = str(live.folder / "kubeconfig")
        code = main.run(["rehearse", "--kubeconfig", kubeconfig, *more])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    yield rehearse
    live.control.put("/_sandbox/faults", json={"faults": []}).raise_for_status()


def forbid(live: Live, *resources: str) -> None:
    faults = [{"verb": "list", "resource": one, "status": 403} for one in resources]
    live.control.put("/_sandbox/faults", json={"faults": faults}).raise_for_status()


def test_a_cluster_is_read_and_not_changed(live: Live, on_cluster: Run) -> None:
    before = live.pods("app=web")
    code, out, err = on_cluster("--lose", "50%", "-o", "json")
    found = json.loads(out)

    assert code == 0, err
    assert (found["nodes"], found["pods"]) == (2, 2)
    assert found["counts"]["notReadyAgain"]["worst"] == 0
    assert found["workloads"][0]["workload"] == "Deployment default/web"
    assert live.pods("app=web") == before


def test_a_surge_of_a_planned_retirement_is_foreseen(
    live: Live, on_cluster: Run, tmp_path: Path
) -> None:
    selector = {"matchLabels": {"app": "web"}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 2, "selector": selector}
    live.create(budgets, {"metadata": {"name": "web"}, "spec": spec})
    live.until(lambda: live.api.get(f"{budgets}/web").json()["status"].get("currentHealthy") == 2)
    policy = tmp_path / "cluster.yaml"
    kind = "apiVersion: leeway.sh/v1\nkind: Cluster\nmetadata: {name: prod}\n"
    policy.write_text(f"{kind}spec: {{surge: true}}\n")

    def message(*more: str) -> str:
        code, out, err = on_cluster("--lose", "50%", "-o", "json", *more)
        assert code == 0, err
        return str(
            next(one["message"] for one in json.loads(out)["findings"] if "udget" in one["code"])
        )

    assert "planned retirement" not in message()
    assert "In a planned retirement Deployment default/web gets one more pod" in message(
        "-f", str(policy)
    )
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    live.create(
        scalers, {"metadata": {"name": "web"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}}
    )
    assert "HorizontalPodAutoscaler web sets its size" in message("-f", str(policy))
    live.api.delete(f"{budgets}/web")
    live.api.delete(f"{scalers}/web")


def test_a_surge_is_not_known_from_files(run: Run, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    kind = "apiVersion: leeway.sh/v1\nkind: Cluster\nmetadata: {name: prod}\n"
    policy.write_text(f"{kind}spec: {{surge: true}}\n")
    _, out, _ = run(shop(), "--lose", "a", "-f", str(policy))
    assert "adds a pod first is not known from files" in out


def test_missing_rights_are_named_together(live: Live, on_cluster: Run) -> None:
    forbid(live, "pods", "poddisruptionbudgets", "replicasets")
    code, _, err = on_cluster("--lose", "50%")

    assert code == 1
    assert "The user of the kubeconfig may not list" in err
    assert "may not list pods, poddisruptionbudgets." in err


def test_a_right_that_is_not_needed_is_a_warning(live: Live, on_cluster: Run) -> None:
    forbid(live, "deployments", "persistentvolumes")
    code, out, err = on_cluster("--lose", "50%", "-o", "json")

    assert code == 0
    assert "may not list deployments: they are not considered" in err
    assert "may not list persistentvolumes" in err
    assert json.loads(out)["workloads"][0]["workload"] == "Deployment default/web"
