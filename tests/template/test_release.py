"""The template of a release: code in S3, by parameters; everything else as in template.yaml."""

import difflib
import re
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

from tests.template.translation import CODE
from tools.bundle import ROOT, bundle, coded_resources, joined, packaged

SOURCE = (ROOT / "template.yaml").read_text()
PARAMETERS = {"ArtifactBucket": "archives-of-mine", "ArtifactPrefix": "leeway/0.1/"}


@cache
def translated(version: str = "1") -> dict[str, Any]:
    text = packaged(SOURCE, {name: f"{name}-{version}.zip" for name in CODE})
    translator = Translator(None, Parser(), [], boto3.Session(region_name="us-east-1"))
    found: dict[str, Any] = translator.translate(
        yaml_parse(text), PARAMETERS, get_managed_policy_map=dict
    )
    return found


def test_every_resource_with_code_is_found() -> None:
    assert sorted(coded_resources(SOURCE)) == sorted(CODE)


def test_code_comes_from_the_bucket_of_the_parameters() -> None:
    found = {
        logical_id: resource["Properties"].get("Code") or resource["Properties"].get("Content")
        for logical_id, resource in translated()["Resources"].items()
        if resource["Type"] in {"AWS::Lambda::Function", "AWS::Lambda::LayerVersion"}
    }
    assert len(found) == len(CODE)
    for logical_id, code in found.items():
        name = next(one for one in CODE if logical_id.startswith(one))
        # SAM resolves parameters in a function with versions, and CloudFormation in the others.
        assert code["S3Bucket"] in (PARAMETERS["ArtifactBucket"], {"Ref": "ArtifactBucket"})
        key = code["S3Key"]["Fn::Sub"]
        placed = key.replace("${ArtifactPrefix}", PARAMETERS["ArtifactPrefix"])
        assert placed == f"leeway/0.1/{name}-1.zip"


def test_other_code_is_published_as_a_version() -> None:
    def versions(of: dict[str, Any]) -> set[str]:
        kinds = {"AWS::Lambda::Version", "AWS::Lambda::LayerVersion"}
        return {name for name, one in of["Resources"].items() if one["Type"] in kinds}

    assert versions(translated("1")) & versions(translated("2")) == set()
    assert len(versions(translated("1"))) > 1


def test_nothing_else_of_the_template_changes() -> None:
    text = packaged(SOURCE, dict.fromkeys(CODE, "x.zip"))
    changed = [
        line
        for line in difflib.ndiff(SOURCE.splitlines(), text.splitlines())
        if line[0] in "+-" and "Uri: " not in line
    ]
    assert [line for line in changed if line.startswith("-")] == []
    added = yaml.safe_load("\n".join(line[2:] for line in changed[2:]))
    assert added.keys() == {"ArtifactBucket", "ArtifactPrefix"}
    declared = yaml_parse(text)["Parameters"]
    assert declared.keys() - yaml_parse(SOURCE)["Parameters"].keys() == added.keys()


@pytest.mark.parametrize(
    ("parameter", "right", "wrong"),
    [
        ("ArtifactBucket", ["a-b.c1", "abc"], ["", "A", "s3://abc", "ab/c", "-ab"]),
        ("ArtifactPrefix", ["", "leeway/", "a/b-1_2.3/"], ["leeway", "/", "a//", "a b/", "../$/"]),
    ],
)
def test_a_wrong_place_is_refused_before_the_deployment(
    parameter: str, right: list[str], wrong: list[str]
) -> None:
    pattern = re.compile(translated()["Parameters"][parameter]["AllowedPattern"])
    assert all(pattern.search(one) for one in right)
    assert not [one for one in wrong if pattern.search(one)]


@pytest.mark.parametrize("folder", ["rbac", "crds"])
def test_the_objects_of_a_folder_are_in_one_file(folder: str, tmp_path: Path) -> None:
    found = [*yaml.safe_load_all(joined(ROOT / folder))]
    files = sorted((ROOT / folder).glob("*.yaml"))
    assert found == [one for file in files for one in yaml.safe_load_all(file.read_text())]
    assert None not in found
    of_crds = [one["kind"] == "CustomResourceDefinition" for one in found]
    assert of_crds == [folder == "crds"] * len(found)
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(f"---\nkind: {name}\n")
    assert joined(tmp_path) == "kind: a\n---\nkind: b\n"


def test_terraform_keeps_the_archives_until_the_stack_is_updated() -> None:
    """CloudFormation rolls back to the old ones if the update fails."""
    text = (ROOT / "docs" / "install.md").read_text()
    resource = text.partition('resource "aws_s3_object" "archive" {')[2].partition("\n}\n")[0]
    assert "lifecycle { create_before_destroy = true }" in resource


def test_without_a_build_there_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run `make build`"):
        bundle(tmp_path / "nothing", tmp_path / "dist")
