"""The template of a release: code in S3, by parameters; everything else as in template.yaml."""

import difflib
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from leeway_sandbox.aws.policies import Request, refused
from leeway_sandbox.intrinsics import Resolver
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

from tests.template.translation import CODE
from tools.bundle import ROOT, bundle, coded_resources, for_stack_sets, joined, packaged

UUID = "1a2b3c4d-0000-4000-8000-1a2b3c4d5e6f"
VERSIONS = {"AWS::Lambda::Version", "AWS::Lambda::LayerVersion"}
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


@cache
def of_stack_sets() -> dict[str, Any]:
    text = for_stack_sets(packaged(SOURCE, {name: f"{name}-1.zip" for name in CODE}))
    found: dict[str, Any] = json.loads(text)
    return found


def test_the_template_of_stack_sets_has_no_macro_and_the_same_resources() -> None:
    """Its code comes from the bucket of each stack. Its names begin with a parameter."""
    found = of_stack_sets()
    text = json.dumps(found)
    for macro in ("Transform", "AWS::Serverless", "Fn::Transform", "AWS::StackName"):
        assert macro not in text, macro
    theirs_too = translated()["Parameters"].keys() - {"CodeSha256"}
    assert found["Parameters"].keys() == {*theirs_too, "NamePrefix"}
    assert found["Outputs"].keys() == translated()["Outputs"].keys()
    for one in found["Resources"].values():
        if code := one["Properties"].get("Code") or one["Properties"].get("Content"):
            assert code["S3Bucket"] == {"Ref": "ArtifactBucket"}
            assert "${ArtifactPrefix}" in code["S3Key"]["Fn::Sub"]
    values = PARAMETERS | {"ClusterNames": "dev,prod", "RetireNodeMemorySize": "2048"}
    of = {"stack": "leeway", "region": "eu-west-1", "account": "123456789012"}
    named = {**values, "NamePrefix": "leeway"}
    ours = Resolver(found, named, **of)
    theirs = Resolver(translated(), values, **of)
    kinds = {name: one["Type"] for name, one in found["Resources"].items()}
    versions = {name for name, kind in kinds.items() if kind in VERSIONS}
    # The values of ArtifactPrefix are part of the logical ids of versions.
    assert kinds.keys() - versions == {
        name for name, one in translated()["Resources"].items() if one["Type"] not in VERSIONS
    }
    for kind in ("AWS::IAM::Role", "AWS::Scheduler::Schedule", "AWS::SQS::Queue"):
        some = [name for name in kinds if kinds[name] == kind]
        assert some, kind
        for name in some:
            assert ours.properties(name) == theirs.properties(name), name
    assert ours.properties("RetireNodeFunction")["MemorySize"] == "2048"
    assert len(json.dumps(found, indent=1)) < 460_800, "the largest template of a StackSet"


@pytest.mark.parametrize("stack", [f"StackSet-leeway-{UUID}", "leeway"])
def test_every_rule_may_write_to_its_dead_letter_queue(stack: str) -> None:
    """CloudFormation names rules after the stack, in a StackSet too."""
    in_set = stack != "leeway"
    found = of_stack_sets() if in_set else translated()
    values = PARAMETERS | ({"NamePrefix": "leeway"} if in_set else {})
    resolver = Resolver(found, values, stack=stack, region="eu-west-1", account="123456789012")

    def of(kind: str) -> list[str]:
        return [name for name, one in found["Resources"].items() if one["Type"] == kind]

    (policy,) = of("AWS::SQS::QueuePolicy")
    (statement,) = resolver.properties(policy)["PolicyDocument"]["Statement"]
    assert statement.pop("Principal") == {"Service": "events.amazonaws.com"}
    rules = of("AWS::Events::Rule")
    assert rules
    for rule in rules:
        source = {
            "aws:SourceAccount": "123456789012",
            "aws:SourceArn": resolver.attribute(rule, "Arn", policy),
        }
        (target,) = resolver.properties(rule)["Targets"]
        queue = target["DeadLetterConfig"]["Arn"]
        assert not [*refused([statement], [Request("sqs:SendMessage", queue, source)])], rule


def test_a_changed_parameter_of_a_stack_set_publishes_a_version() -> None:
    """The description of a function has the values of its parameters. That of a version replaces
    it: CloudFormation replaces a version whose description changes."""
    resources = of_stack_sets()["Resources"]
    versions = [one for one in resources.values() if one["Type"] == "AWS::Lambda::Version"]
    assert len(versions) > 1
    for one in versions:
        function = resources[one["Properties"]["FunctionName"]["Ref"]]
        assert 'MemorySize"}' in json.dumps(function["Properties"]["Description"])
        assert one["Properties"]["Description"] == function["Properties"]["Description"]
        assert (one["UpdateReplacePolicy"], one["DeletionPolicy"]) == ("Retain", "Retain")


def test_the_names_of_a_stack_set_are_not_too_long() -> None:
    """A parameter that is too long is refused before anything is created."""
    found = of_stack_sets()
    pattern = re.compile(found["Parameters"]["NamePrefix"]["AllowedPattern"])
    longest = "l" * max(length for length in range(1, 129) if pattern.search("l" * length))
    resolver = Resolver(
        found,
        {**PARAMETERS, "NamePrefix": longest},
        stack=f"StackSet-{'s' * 82}-{UUID}",  # the longest name of a stack: 128 characters
        region="eu-west-1",
        account="123456789012",
    )
    lengths = {"FunctionName": 64, "Name": 64, "QueueName": 80, "LogGroupName": 512}
    named = 0
    for name, one in found["Resources"].items():
        for field, most in lengths.items():
            if not isinstance(one["Properties"].get(field), dict):
                continue
            if one["Properties"][field].keys() == {"Ref"}:
                continue  # the name of another resource
            given = resolver.properties(name)[field]
            assert given.removeprefix("/aws/lambda/").startswith(longest), name
            assert len(given) <= most, name
            named += 1
    assert named > 20
    assert len(f"{longest}-provision-nodes-stays-awake") == 64, "no shorter than it has to be"


def test_the_template_of_stack_sets_has_no_finding_of_cfn_lint(tmp_path: Path) -> None:
    template = tmp_path / "stackset.json"
    template.write_text(json.dumps(of_stack_sets()))
    lint = Path(sys.executable).with_name("cfn-lint")
    command = [str(lint), "--regions", "us-east-1", "--", str(template)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


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
