"""What every command has in common: exit codes, and one clear line when something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli import main

EVENT = {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "detail": {}}


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on stderr, which is one line; stdout stays empty."""
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("leeway: ")
    assert said.err.count("\n") == 1
    return said.err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("leeway ")


@pytest.mark.parametrize("command", [*main.COMMANDS, "sandbox up", "sandbox faults"])
def test_every_command_has_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*command.split(), "-h"]) == 0
    assert f"Usage: leeway {command} " in capsys.readouterr().out


def test_help_breaks_its_lines_where_the_terminal_ends_and_leaves_examples_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main.run(["drain", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (refuses,) = [line for line in lines if line.startswith("Refuses what `kubectl drain`")]
    assert refuses.endswith("is not even cordoned.")
    assert "leeway drain -l pool=old --ignore-daemonsets --timeout 1h" in lines


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sandbox", "--help"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("up", "down", "status", "send", "interrupt", "faults"))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["demmo"], "Did you mean 'demo'"),
        (["demo", "--colour"], "--colour"),
        (["demo", "--nodes", "many"], "--nodes"),
        (["demo", "--nodes", "2"], "--nodes: expected 3 to 200, got 2"),
        (["demo", "--nodes", "5", "--interruptions", "5"], "--interruptions: expected 1 to 4"),
        (["demo", "--interruptions", "0"], "--interruptions: expected 1 to 19"),
        (["demo", "--report", "no/such/folder/r.html"], "no/such/folder is no folder"),
        (["demo", "-o", "yaml"], "'--output' / '-o': 'yaml' is not one of 'table', 'json'"),
        (["sandbox", "up", "--nodes", "0"], "--nodes: expected 3 to 1000, got 0"),
        (["sandbox", "up", "--env-file", "no/such/env.json"], "no/such is no folder"),
        (["sandbox", "send"], "EVENT.json"),
        (["sandbox", "send", "no-such.json"], "no-such.json: No such file or directory"),
        (["sandbox", "interrupt", "i-1", "--late", "-3"], "--late"),
        (["sandbox", "faults", "azure"], "fault 'azure': expected a form that"),
    ],
)
def test_bad_input_is_one_line_that_names_the_place(
    arguments: list[str], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2
    assert names in one_line(capsys)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("{", "expected JSON"),
        ("\x00", "expected JSON"),
        ("[]", "expected a JSON object"),
        (json.dumps({**EVENT, "detail": None} | {"source": 1}), None),
        (json.dumps({key: EVENT[key] for key in ("source", "detail")}), "detail-type: missing"),
    ],
)
def test_an_event_that_is_none_is_refused_with_file_and_field(
    content: str, names: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = tmp_path / "event.json"
    event.write_text(content)
    code = main.run(["sandbox", "send", str(event), "--state-dir", str(tmp_path)])

    line = one_line(capsys)
    if names is None:
        # It is an event; that no sandbox runs is another matter.
        assert code == 1
    else:
        assert code == 2
        assert f"{event}: {names}" in line


@pytest.mark.parametrize("command", [["status"], ["down"], ["interrupt", "i-1"]])
def test_without_a_sandbox_its_commands_cannot_be_done(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["sandbox", *command, "--state-dir", str(tmp_path)]) == 1
    assert f"No sandbox runs with its state in {tmp_path}" in one_line(capsys)


def breaks() -> None:
    """A command with a bug."""
    raise RuntimeError("the wheel\ncame off")


def test_a_bug_is_one_line_that_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(main.COMMANDS, "breaks", f"{__name__}:breaks")

    assert main.run(["breaks"]) == 1
    assert one_line(capsys) == (
        "leeway: RuntimeError: the wheel came off (LEEWAY_DEBUG=1 shows where it came from)\n"
    )
    monkeypatch.setenv("LEEWAY_DEBUG", "1")
    assert main.run(["breaks"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_starting_the_command_line_imports_nothing_heavy() -> None:
    program = (
        "import sys; from cli.main import run; run(['demo', '--nodes', '0']);"
        "print([m for m in ('boto3', 'lightkube', 'jinja2', 'urllib3') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
