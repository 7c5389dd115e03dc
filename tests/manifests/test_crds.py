"""The CRDs: current, structural, and as strict as Karpenter's."""

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.manifests.reading import Kind, interpret
from leeway_cli import main
from leeway_cli.manifests.crds import crd_file, crd_of, crd_text, defined_kinds
from leeway_sandbox.kubernetes.custom_resources import CustomSchema, check_definition

from tests.manifests.crd_cases import (
    CLASS,
    CLASSES_ACCEPTED,
    CLASSES_REFUSED,
    POOL,
    POOL_CHANGES_REFUSED,
    POOLS_ACCEPTED,
    POOLS_REFUSED,
    REMOVED,
    Change,
    changed,
)

FOLDER = Path(__file__).parents[2] / "crds"
KINDS = {kind.name: kind for kind in defined_kinds()}


def schema_of(kind: str) -> CustomSchema:
    version = crd_of(KINDS[kind])["spec"]["versions"][-1]
    return CustomSchema(version["schema"]["openAPIV3Schema"])


SCHEMAS = {name: schema_of(name) for name in KINDS}


def refusals(manifest: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    """Write a manifest as the API server does; return why it is refused."""
    schema, given = SCHEMAS[manifest["kind"]], copy.deepcopy(manifest)
    unknown = schema.prune(given)
    schema.fill(given)
    return unknown + [str(cause) for cause in schema.causes(given, old)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_shipped_crd_is_current_and_structural(kind: Kind) -> None:
    """To update it, run `make manifests`."""
    assert (FOLDER / crd_file(kind)).read_text() == crd_text(kind)
    assert list(check_definition(crd_of(kind))) == []


def test_each_file_belongs_to_a_kind() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {crd_file(one) for one in KINDS.values()}


def wrongly_refused(base: dict[str, Any], changes: Iterable[Change]) -> dict[str, list[str]]:
    """Return the changes that are refused, or that Leeway's model does not read with the defaults
    that the CRD adds, with the reasons."""
    found = {}
    for change in changes:
        stored = changed(base, change)
        SCHEMAS[stored["kind"]].fill(stored)
        unread = [str(problem) for problem in interpret(stored, "").problems]
        found[str(change)] = [*refusals(changed(base, change)), *unread]
    return {change: why for change, why in found.items() if why}


def wrongly_accepted(base: dict[str, Any], changes: Iterable[Change]) -> list[Change]:
    return [change for change in changes if not refusals(changed(base, change))]


def test_a_pool_that_karpenter_accepts_is_accepted_and_read() -> None:
    assert wrongly_refused(POOL, POOLS_ACCEPTED) == {}


def test_a_pool_that_karpenter_refuses_is_refused() -> None:
    assert wrongly_accepted(POOL, POOLS_REFUSED) == []


@pytest.mark.parametrize(("before", "after"), POOL_CHANGES_REFUSED, ids=str)
def test_a_pool_stays_static_or_not(before: Change, after: Change) -> None:
    assert refusals(changed(POOL, after), changed(POOL, before))
    assert refusals(changed(POOL, before), changed(POOL, before)) == []


def test_a_class_that_karpenter_accepts_is_accepted_and_read() -> None:
    assert wrongly_refused(CLASS, CLASSES_ACCEPTED) == {}


def test_a_class_that_karpenter_refuses_is_refused() -> None:
    assert wrongly_accepted(CLASS, CLASSES_REFUSED) == []


def test_the_api_server_adds_the_defaults_of_karpenter() -> None:
    pool = copy.deepcopy(POOL)
    SCHEMAS["NodePool"].fill(pool)
    assert pool["spec"]["disruption"] == {
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "10%"}],
    }
    assert pool["spec"]["template"]["spec"]["expireAfter"] == "720h"
    node_class = copy.deepcopy(CLASS)
    SCHEMAS["EC2NodeClass"].fill(node_class)
    assert node_class["spec"]["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }


CLUSTER = {
    "apiVersion": "leeway.sh/v1",
    "kind": "Cluster",
    "metadata": {"name": "prod"},
    "spec": {
        "churn": {"within": "1h30m"},
        "notices": {"rebalance": {"action": "cordon"}, "spot-interruption": {"deadline": "90s"}},
        "defaults": {"subnetSelectorTerms": [{"tags": {"team": "a"}}]},
    },
}
HEADROOM = {
    "apiVersion": "leeway.sh/v1",
    "kind": "Headroom",
    "metadata": {"name": "spare"},
    "spec": {
        "buffers": [
            {
                "name": "web",
                "pod": {"requests": {"cpu": 2, "memory": "1Gi"}, "affinity": {"any": {}}},
                "ladder": {"coresToReplicas": [[1, 1], [64, 3]]},
            }
        ]
    },
}
BUFFER = {
    "apiVersion": "autoscaling.x-k8s.io/v1beta1",
    "kind": "CapacityBuffer",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"podTemplateRef": {"name": "web"}, "replicas": 3},
}


@pytest.mark.parametrize("manifest", [CLUSTER, HEADROOM, BUFFER], ids=lambda one: str(one["kind"]))
def test_the_other_kinds_are_accepted_without_stored_defaults(manifest: dict[str, Any]) -> None:
    assert refusals(manifest) == []
    filled = copy.deepcopy(manifest)
    SCHEMAS[manifest["kind"]].fill(filled)
    if manifest is not BUFFER:
        assert filled == manifest


@pytest.mark.parametrize(
    ("manifest", "change"),
    [
        (CLUSTER, {"spec.notices.rebalance.action": "drain"}),
        (CLUSTER, {"spec.churn.within": "soon"}),
        (CLUSTER, {"spec.defaults.subnetSelectorTerms": [{}]}),
        (HEADROOM, {"spec.buffers": []}),
        (HEADROOM, {"spec.buffers": [{"name": "web", "pod": {"requests": {"cpu": "1"}}}]}),
        (BUFFER, {"spec.scalableRef": {"kind": "Deployment", "name": "web"}}),
        (BUFFER, {"spec.replicas": REMOVED}),
    ],
    ids=str,
)
def test_the_other_kinds_are_checked(manifest: dict[str, Any], change: Change) -> None:
    assert refusals(changed(manifest, change))


def test_the_command_prints_the_crds_that_kubectl_applies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main.run(["schema", "--crd"]) == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["metadata"]["name"] for one in printed] == [
        "clusters.leeway.sh",
        "headrooms.leeway.sh",
        "nodepools.karpenter.sh",
        "ec2nodeclasses.karpenter.k8s.aws",
        "nodeoverlays.karpenter.sh",
        "capacitybuffers.autoscaling.x-k8s.io",
    ]
    assert main.run(["schema", "nodepool", "--crd", "--directory", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["karpenter.sh_nodepools.yaml"]
    assert main.run(["schema", "scaledobject", "--crd"]) == 2
    assert main.run(["schema", "nodepool", "--crd", "-o", "json"]) == 2
    assert "Leeway has no CRD of scaledobject" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rule", "value", "holds"),
    [
        ("self.split('@')[0] in ['al2', 'al2023']", "al2023@latest", True),
        ("self.split('@')[0] in ['al2', 'al2023']", "al3@latest", False),
        ("self.find('^[^@]+') == 'al2023'", "al2023@latest", True),
        ("self.find('^[0-9]+') == ''", "al2023", True),
        ("!self.find('^([^/]+)').endsWith('karpenter.sh')", "node.karpenter.sh/x", False),
    ],
)
def test_the_sandbox_decides_the_rules_of_karpenters_own_crds(
    rule: str, value: str, holds: bool
) -> None:
    """A user of the sandbox may install them. Leeway's own CRDs use neither function."""
    checked = {"type": "string", "x-kubernetes-validations": [{"rule": rule, "message": "wrong"}]}
    schema = CustomSchema({"type": "object", "properties": {"spec": checked}})
    causes = [one["message"] for one in schema.causes({"spec": value}, None)]
    assert any("wrong" in one for one in causes) is not holds, causes
