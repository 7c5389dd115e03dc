"""Schemas and pages of the kinds: up to date with the models."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from leeway.manifests.reading import KINDS, Kind, read_manifests
from leeway.notices import NoticeKind
from leeway_cli import main
from leeway_cli.manifests.json_schema import file_of, schema_of
from leeway_cli.manifests.reference_page import page_of

DOCS = Path(__file__).parents[2] / "docs"
TITLES = [f"{kind.name} {kind.api_version}" for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=TITLES)
def test_the_shipped_schema_and_page_are_current(kind: Kind) -> None:
    """To update them, run `make manifests`."""
    schema = json.loads((DOCS / "schemas" / file_of(kind, ".json")).read_text())
    assert schema == schema_of(kind)
    assert (DOCS / "manifests" / file_of(kind, ".md")).read_text() == page_of(kind)


def test_each_schema_and_page_belongs_to_a_kind() -> None:
    for folder, suffix in (("schemas", ".json"), ("manifests", ".md")):
        found = {str(p.relative_to(DOCS / folder)) for p in (DOCS / folder).rglob(f"*{suffix}")}
        assert found == {file_of(kind, suffix) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=TITLES)
def test_every_field_is_described(kind: Kind) -> None:
    rows = [line for line in page_of(kind).splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == []


def test_a_default_duration_is_written_as_in_a_manifest() -> None:
    (kind,) = [
        kind for kind in KINDS if kind.name == "NodePool" and kind.api_version.endswith("v1")
    ]
    spec = schema_of(kind)["$defs"]["TemplateSpec"]["properties"]
    assert spec["expireAfter"]["default"] == "720h"


GOOD = """\
apiVersion: leeway.sh/v1
kind: Cluster
metadata: {name: prod_1}
spec:
  churn: {within: 1h30m}
  takes: [karpenter]
  notices: {rebalance: {action: cordon}, spot-interruption: {deadline: 90s}}
  defaults: {subnetSelectorTerms: [{tags: {team: a}}]}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("1h30m", "soon"),
        ("[karpenter]", "[fargate]"),
        ("cordon", "drain"),
        ("rebalance", "rebalancing"),
        ("prod_1", "-"),
        ("{team: a}", "{team: 1}"),
        ("name:", "names:"),
    ],
)
def test_the_schema_accepts_the_same_manifests_as_the_model(old: str, new: str) -> None:
    text = GOOD.replace(old, f"'{new}'" if new == "-" else new)
    (schema,) = [schema_of(kind) for kind in KINDS if kind.name == "Cluster"]
    refused = bool(list(Draft202012Validator(schema).iter_errors(yaml.safe_load(text))))
    assert refused == bool(read_manifests(text, "f.yaml").problems)
    assert refused == (old != "")


def test_each_kind_of_event_except_test_notifications_has_a_policy() -> None:
    (schema,) = [schema_of(kind) for kind in KINDS if kind.name == "Cluster"]
    assert set(schema["$defs"]["Notices"]["properties"]) == set(NoticeKind) - {
        NoticeKind.TEST_NOTIFICATION,
        NoticeKind.CAPACITY_RETURN,
    }


def test_the_command_prints_one_schema_or_writes_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["schema", "cluster"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Cluster of leeway.sh/v1"
    assert main.run(["schema", "--directory", str(tmp_path)]) == 0
    assert (tmp_path / "leeway.sh" / "cluster_v1.json").exists()
    assert main.run(["schema"]) == 2
    assert main.run(["schema", "clutser"]) == 2
    assert "did you mean cluster?" in capsys.readouterr().err
