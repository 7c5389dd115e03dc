"""`leeway explain node` and `leeway explain cluster` on the output of kubectl: what is kept, what
goes, and what it costs."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.disruption.explain import GroupSize, SpareInGroup
from leeway_cli import main
from leeway_cli.explain.capacity import warn_of_catalog
from leeway_cli.explain.cluster_view import commands, group_lines
from leeway_cli.selection.sources import Offers, sandbox_catalog

from tests.launch.pools import node_class, pool

GIB = 2**30
MANY = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}

type Run = Callable[..., tuple[int, dict[str, Any], str]]


def node(name: str, kind: str = "m5.2xlarge", cpu: str = "8", **labels: str) -> dict[str, Any]:
    """A Node of pool `general` that has been Ready for a long time."""
    amounts = {"cpu": cpu, "memory": "30Gi", "pods": "58"}
    number = sum(ord(one) << 3 * at for at, one in enumerate(name))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "topology.kubernetes.io/zone": "us-east-1a",
                "node.kubernetes.io/instance-type": kind,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "karpenter.sh/capacity-type": "on-demand",
                "karpenter.sh/nodepool": "general",
                "karpenter.sh/initialized": "true",
                "karpenter.k8s.aws/ec2nodeclass": "default",
                "karpenter.k8s.aws/instance-category": "m",
                "karpenter.k8s.aws/instance-generation": "5",
                **labels,
            },
        },
        "spec": {"providerID": f"aws:///us-east-1a/i-{number % 16**17:017x}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
            ],
        },
    }


def pod(name: str, on: str, cpu: str = "1", **metadata: Any) -> dict[str, Any]:
    """A pod of a ReplicaSet on a node."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "creationTimestamp": "2026-01-02T00:00:00Z",
            "ownerReferences": [{**owner, "controller": True}],
            **metadata,
        },
        "spec": {
            "nodeName": on,
            "containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}},
            ],
        },
        "status": {"phase": "Running", "startTime": "2026-01-02T00:00:00Z"},
    }


def budget(name: str, app: str) -> dict[str, Any]:
    """A PodDisruptionBudget that allows nothing now."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 0},
        "status": {"disruptionsAllowed": 0},
    }


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on objects: its exit code, its JSON document, and stderr."""

    def explain(
        words: str, *objects: dict[str, Any], pools: list[dict[str, Any]] | None = None
    ) -> tuple[int, dict[str, Any], str]:
        general = pool("general", ["on-demand"], disruption=MANY, template={"expireAfter": "Never"})
        documents = pools if pools is not None else [general, node_class()]
        (tmp_path / "pools.yaml").write_text(yaml.dump_all(documents, Dumper=yaml.CSafeDumper))
        cluster = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        (tmp_path / "cluster.json").write_text(json.dumps(cluster))
        given = ["-f", str(tmp_path / "pools.yaml"), "--nodes", str(tmp_path / "cluster.json")]
        code = main.run(["explain", *words.split(), *given, "--sandbox", "-o", "json"])
        printed = capsys.readouterr()
        return code, json.loads(printed.out), printed.err

    return explain


def test_the_next_step_of_a_cluster_is_priced_and_the_rest_follows(run: Run) -> None:
    objects = [
        node("a"),
        node("b"),
        node("c"),
        pod("p1", "a"),
        pod("p2", "b", "5"),
        pod("p3", "c", "7", labels={"app": "db"}),
        budget("db", "db"),
    ]
    code, found, err = run("cluster", *objects)
    assert code == 0, err
    assert found["next"]["nodes"] == ["a"]
    assert (found["next"]["cause"], found["next"]["allowedNow"]) == ("Underutilized", True)
    saving = found["next"]["savingPerHour"]
    assert found["next"]["savingPerMonth"] == pytest.approx(saving * 730, abs=0.01)
    cost, end = found["cost"]["leeway"], found["afterAllSteps"]
    assert cost["nodes"] == 3
    saved = sum(step["savingPerHour"] for step in found["steps"])
    assert end["pricePerHour"] == pytest.approx(cost["pricePerHour"] - saved)
    assert 0 < found["lowerBoundPerHour"] <= end["pricePerHour"]
    blocked = next(one for one in found["kept"] if one["reason"]["code"] == "PodIsBlocked")
    assert blocked["names"] == ["c"]
    assert found["complete"] is True


def test_nodes_of_a_static_pool_are_kept_and_what_is_too_much_goes(run: Run) -> None:
    static = pool("general", ["on-demand"], replicas=2, template={"expireAfter": "Never"})
    objects = [node("a"), node("b"), pod("p1", "a")]
    code, found, err = run("cluster", *objects, pools=[static, node_class()])
    assert code == 0, err
    (kept,) = found["kept"]
    assert (kept["reason"]["code"], found["next"]) == ("PoolIsStatic", None)
    static["spec"]["replicas"] = 1
    _, found, _ = run("cluster", *objects, pools=[static, node_class()])
    assert (found["next"]["nodes"], found["next"]["cause"]) == (["b"], "ScaledDown")
    _, found, _ = run("node a", *objects, pools=[static, node_class()])
    assert (found["decision"], found["reason"]["code"]) == ("kept", "PoolIsStatic")


def test_a_node_is_kept_by_its_budget_and_the_pods_that_it_has_are_listed(run: Run) -> None:
    objects = [
        node("c"),
        pod("p3", "c", "7", labels={"app": "db"}),
        budget("db", "db"),
        budget("other", "web"),
    ]
    _, found, _ = run("node c", *objects)
    assert (found["decision"], found["reason"]["code"]) == ("kept", "PodIsBlocked")
    assert [one["pod"] for one in found["pods"]] == ["shop/p3"]
    assert found["pods"][0]["blockedBy"] == ["db"]
    assert found["pricePerMonth"] == pytest.approx(found["pricePerHour"] * 730, abs=0.01)
    assert [one["reason"]["code"] for one in found["blockers"]] == ["PodIsBlocked"]
    (launch,) = found["instead"]["launches"]
    assert launch["pods"] == ["shop/p3"]


def test_a_drifted_node_is_said_to_differ_also_while_a_budget_keeps_it(run: Run) -> None:
    objects = [
        node("c", **{"karpenter.k8s.aws/instance-category": "c"}),
        pod("p3", "c", "7", labels={"app": "db"}),
        budget("db", "db"),
    ]
    _, found, _ = run("node c", *objects)
    assert (found["decision"], found["reason"]["code"]) == ("kept", "PodIsBlocked")
    assert [one[:9] for one in found["drift"]] == ["Its label"]
    _, found, _ = run("node c", *objects[:2])
    assert (found["decision"], found["reason"]["code"]) == ("goes", "NodeDrifted")


@pytest.mark.parametrize("given", ["node/empty", "nodes/empty", "empty", "instance"])
def test_a_node_is_found_by_its_name_or_its_instance(run: Run, given: str) -> None:
    empty = node("empty")
    instance = empty["spec"]["providerID"].rpartition("/")[2]
    _, found, _ = run(f"node {instance if given == 'instance' else given}", empty)
    assert (found["node"], found["decision"]) == ("empty", "goes")
    assert found["step"]["savingPerHour"] == found["pricePerHour"]


def test_an_unknown_node_is_an_error_with_the_names_that_are_near(run: Run) -> None:
    names = ["ip-10-0-0-1.ec2.internal", "ip-10-0-0-2.ec2.internal"]
    code, found, err = run("node ip-10-0-0-1.ec2.internl", *map(node, names))
    assert (code, "The cluster has no node" in found["error"]["message"]) == (1, True)
    assert f"did you mean {names[0]}" in found["error"]["message"]
    assert "\nleeway: The cluster has no node " in f"\n{err}"


@pytest.mark.parametrize(
    ("labels", "kind", "name"),
    [
        ({"karpenter.sh/nodepool": "theirs"}, "karpenter", "theirs"),
        ({"eks.amazonaws.com/nodegroup": "web"}, "managed-node-group", "web"),
        ({"karpenter.sh/nodepool": ""}, "none", ""),
    ],
)
def test_a_node_of_another_owner_is_named_with_what_could_be_saved(
    run: Run, labels: dict[str, str], kind: str, name: str
) -> None:
    other = node("other", **{"karpenter.sh/nodepool": "", **labels})
    _, found, _ = run("node other", other, node("ours"), pod("p", "other"))
    assert found["owner"] == {"kind": kind, "name": name}
    assert found["decision"] == "spare"
    assert found["instead"]["existing"] == [{"node": "ours", "pods": ["shop/p"]}]
    _, found, _ = run("cluster", other, node("ours"), pod("p", "ours", "7"))
    assert found["cost"]["otherOwners"][kind]["nodes"] == 1


def test_a_cluster_without_pools_is_said_to_keep_its_nodes(run: Run) -> None:
    code, found, err = run("cluster", node("here"), pools=[node_class()])
    assert code == 0
    assert "there is no NodePool" in err
    assert (found["lowerBoundPerHour"], found["next"], found["steps"]) == (None, None, [])


def test_a_type_without_a_price_is_counted_and_its_node_is_kept(run: Run) -> None:
    unknown = node("here", kind="m5.unheard")
    _, found, _ = run("node here", unknown, pod("p", "here"))
    assert found["pricePerHour"] is None
    assert "NodeWithoutPrice" in [one["reason"]["code"] for one in found["blockers"]]
    _, found, _ = run("cluster", unknown, pod("p", "here"))
    assert found["cost"]["leeway"]["nodesWithoutPrice"] == 1


def test_a_node_that_names_no_instance_is_explained(run: Run) -> None:
    bare = node("bare", **{"karpenter.sh/nodepool": ""})
    del bare["spec"]["providerID"]
    _, found, _ = run("node bare", bare)
    assert (found["instance"], found["reason"]["code"]) == (None, "NodeNotOfLeeway")


def test_a_paused_cluster_is_said_to_give_nothing_back(run: Run) -> None:
    paused = {
        "apiVersion": "leeway.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": "prod"},
        "spec": {"paused": True, "dryRun": True},
    }
    pools = [pool("general", disruption=MANY), node_class(), paused]
    _, _, err = run("cluster", node("here"), pools=pools)
    assert "the cluster is paused" in err
    assert "dryRun" in err


def test_the_text_names_the_verdict_the_pods_and_the_price(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("cluster", node("a"), node("b"), pod("p1", "a"), pod("p2", "b", "5"))
    given = ["-f", str(tmp_path / "pools.yaml"), "--nodes", str(tmp_path / "cluster.json")]
    assert main.run(["explain", "node", "a", *given, "--sandbox"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("node/a is given back now: it saves 0.")
    assert "    - shop/p1 (cpu 1, memory 0)\n  instead   1 pod on node b\n" in out
    assert main.run(["explain", "cluster", *given, "--sandbox"]) == 0
    out = capsys.readouterr().out
    assert "  next step           NodeNotNeeded: " in out
    assert "\nSTEP  WHEN  CAUSE " in out


def group(name: str, minimum: int) -> SpareInGroup:
    return SpareInGroup(name, ("n-1", "n-2"), 0.2, size=GroupSize(minimum, desired=3))


def test_the_commands_that_make_a_group_smaller_are_printed_quoted() -> None:
    assert commands(group("a b;c", 2), "prod") == [
        "aws autoscaling update-auto-scaling-group --auto-scaling-group-name='a b;c' --min-size 1",
        "leeway terminate n-1 n-2 --ignore-daemonsets --decrement --cluster prod",
    ]
    terminate = "leeway terminate n-1 n-2 --ignore-daemonsets --decrement"
    assert commands(group("web", 1), "") == [terminate], "the cluster has no name"
    first = next(group_lines(group("web", 1), ""))
    assert "could be smaller by 2 (n-1, n-2): saves 0.2000 USD per hour, 146.00 a month" in first
    assert "its minimum is 1, its desired capacity 3. Leeway changes nothing there." in first


@pytest.mark.parametrize("name", ["web\x1b]0;x\x07", "a\nrm -rf /", "\u202eweb"])
def test_no_command_is_printed_for_a_name_with_control_characters(name: str) -> None:
    hostile = group(name, 2)
    assert commands(hostile, "prod") == []
    lines = list(group_lines(hostile, "prod"))
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_an_old_catalog_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    catalog = sandbox_catalog()
    warn_of_catalog(Offers(catalog, read_at=now - timedelta(hours=24)), now)
    assert capsys.readouterr().err == ""
    warn_of_catalog(Offers(catalog, read_at=now - timedelta(hours=30, minutes=5)), now)
    assert "the catalog is 30h old" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["cluster"], ["node", "a"], ["pod", "x"]])
def test_without_files_and_without_a_cluster_the_option_is_named(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LEEWAY_CLUSTER", raising=False)
    assert main.run(["explain", *asked, "--sandbox"]) == 2
    assert "--cluster: expected the name of a cluster" in capsys.readouterr().err
