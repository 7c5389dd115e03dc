"""The JSON documents of commands have one version, and docs/json.md lists them."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from leeway_cli import main
from leeway_cli.output import FORMAT_VERSION, print_json

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`leeway .+?) \| (.+) \|$", PAGE, re.MULTILINE)
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c}]}\n"
NOT_STABLE = {"demo", "sandbox"}
OTHER_VERSIONS = {"get", "schema", "diff"}


def documents() -> Iterator[str]:
    """The commands that can print JSON, such as `explain pod`."""
    top: Any = typer.main.get_command(main.app)
    pending = [(name, top.commands[name]) for name in top.commands]
    while pending:
        name, command = pending.pop()
        inner = getattr(command, "commands", {})
        pending += [(f"{name} {one}", each) for one, each in inner.items()]
        if any("--output" in one.opts for one in command.params):
            yield name


def test_the_page_names_every_command_that_prints_json() -> None:
    found = {name for name in documents() if name.split()[0] not in NOT_STABLE | OTHER_VERSIONS}
    assert {"status", "explain pod", "doctor"} <= found
    named = " ".join(command for command, _ in ROWS)
    words = set(re.findall(r"[a-z]+", named))
    assert [name for name in sorted(found) if not set(name.split()) <= words] == []


def test_a_document_has_the_version_first(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "web"})
    assert list(json.loads(capsys.readouterr().out).items()) == [
        ("formatVersion", FORMAT_VERSION),
        ("name", "web"),
    ]


def test_a_manifest_has_only_its_own_version(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"apiVersion": "v1", "kind": "List", "items": []})
    assert "formatVersion" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("types", [[], [{"name": "a"}], [{"name": "a"}, {"name": "b"}]])
def test_rows_have_a_line_for_each(
    capsys: pytest.CaptureFixture[str], types: list[dict[str, str]]
) -> None:
    print_json({"types": types}, rows="types")
    out = capsys.readouterr().out
    assert json.loads(out) == {"formatVersion": FORMAT_VERSION, "types": types}
    assert sum(line.startswith('{"name"') for line in out.splitlines()) == len(types)


def test_only_one_function_prints_json() -> None:
    """`leeway schema` prints JSON Schemas, which have $schema."""
    printing = set()
    for path in (ROOT / "cli").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "json.dumps" in text else ():
            prints = isinstance(node, ast.Call) and "stdout" in ast.unparse(node.func)
            if prints and "json.dumps" in ast.unparse(node):
                printing.add(path.name)
    assert printing == {"output.py"}


@pytest.mark.parametrize("command", ["reasons", "types", "select"])
def test_a_document_has_the_fields_that_the_page_names(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "pool.yaml").write_text(POOL)
    pods = ["-f", str(tmp_path / "pool.yaml"), "--pods", str(tmp_path / "pod.yaml")]
    arguments = {"types": ["--sandbox"], "select": ["--sandbox", *pods]}.get(command, [])
    assert main.run([command, *arguments, "-o", "json"]) == 0
    (fields,) = [said for commands, said in ROWS if f"`leeway {command}`" in commands]
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("formatVersion") == FORMAT_VERSION
    assert set(printed) == set(re.findall(r"`(\w+)`", fields))


def test_an_error_has_the_version_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["reasons", "Nothing", "-o", "json"]) == 2
    printed = json.loads(capsys.readouterr().out)
    assert (printed["formatVersion"], set(printed["error"])) == (FORMAT_VERSION, {"message"})


POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: web}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec: {amiSelectorTerms: [{alias: al2023@latest}], role: nodes}
"""
