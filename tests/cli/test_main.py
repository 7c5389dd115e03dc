"""The common behaviour of all commands: exit codes, and one line for an error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from leeway_cli import main

EVENT = {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "detail": {}}


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return stderr, which is one line; stdout is empty."""
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("leeway: ")
    assert output.err.endswith((".\n", "?\n"))
    assert "?." not in output.err
    assert output.err.count("\n") == 1
    return output.err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("leeway ")


@pytest.mark.parametrize("command", [*main.COMMANDS, "sandbox up", "sandbox faults"])
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*command.split(), "-h"]) == 0
    assert f"Usage: leeway {command} " in capsys.readouterr().out


def test_help_wraps_paragraphs_at_the_width_of_the_terminal_and_keeps_examples(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main.run(["drain", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (refuses,) = [line for line in lines if line.startswith("Refuses the same pods as")]
    assert refuses.endswith("A refused node is not cordoned.")
    assert "leeway drain -l pool=old --ignore-daemonsets --timeout 1h" in lines


def test_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sandbox", "--help"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("up", "down", "status", "send", "interrupt", "faults"))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["demmo"], "Did you mean 'demo'"),
        ([""], "leeway: expected a value after it, got an empty text."),
        (["status", "--cluster", ""], "--cluster: expected a value after it, got an empty text."),
        (["logs", "--pool=", "--follow"], "--pool: expected a value after it"),
        (["drain", "-l", " "], "-l: expected a value after it"),
        (["nodes", "--region", "us-east-1", "--region", ""], "--region: expected a value after"),
        (["demo", "--colour"], "--colour"),
        (["demo", "--nodes", "many"], "--nodes"),
        (["demo", "--nodes", "2"], "--nodes: expected 3 to 200, got 2"),
        (["demo", "--nodes", "5", "--interruptions", "5"], "--interruptions: expected 1 to 4"),
        (["demo", "--interruptions", "0"], "--interruptions: expected 1 to 19"),
        (["demo", "--scenario", "calm"], "'calm' is not one of 'storm', 'scale-up'"),
        (["demo", "--replicas", "50"], "--replicas: expected --scenario scale-up with it"),
        (
            ["demo", "--scenario", "scale-down", "--view"],
            "--view: expected --scenario storm, scale-up or",
        ),
        (
            ["demo", "--scenario", "scale-up", "--nodes", "5"],
            "--nodes: expected --scenario storm with it",
        ),
        (
            ["demo", "--scenario", "scale-up", "--replicas", "10"],
            "--replicas: expected 11 to 2000, got 10",
        ),
        (["demo", "--report", "no/such/folder/r.html"], "no/such/folder is no folder"),
        (["demo", "-o", "yaml"], "'--output' / '-o': 'yaml' is not one of 'table', 'json'"),
        (["sandbox", "up", "--nodes", "0"], "--nodes: expected 3 to 1000, got 0"),
        (["sandbox", "up", "--env-file", "no/such/env.json"], "no/such is no folder"),
        (["sandbox", "send"], "EVENT.json"),
        (["sandbox", "send", "no-such.json"], "no-such.json: No such file or directory"),
        (["sandbox", "interrupt", "i-1", "--late", "-3"], "--late"),
        (["sandbox", "faults"], "FAULT: expected at least one fault, or --clear to remove all."),
        (["sandbox", "faults", "azure"], "The fault 'azure' is invalid: expected a form that"),
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
def test_an_invalid_event_is_refused_with_file_and_field(
    content: str, names: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = tmp_path / "event.json"
    event.write_text(content)
    code = main.run(["sandbox", "send", str(event), "--state-dir", str(tmp_path)])

    line = one_line(capsys)
    if names is None:
        # The event is valid, but no sandbox runs.
        assert code == 1
    else:
        assert code == 2
        assert f"{event}: {names}" in line


def test_the_commands_of_a_sandbox_fail_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["status"], ["down"], ["interrupt", "i-1"]):
        assert main.run(["sandbox", *command, "--state-dir", str(tmp_path)]) == 1, command
        assert f"No sandbox runs with its state in {tmp_path}" in one_line(capsys)


def breaks() -> None:
    """A command with a bug."""
    raise RuntimeError("the file\nis locked")


def test_an_unexpected_error_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(main.COMMANDS, "breaks", f"{__name__}:breaks")

    assert main.run(["breaks"]) == 1
    assert one_line(capsys) == (
        "leeway: RuntimeError: the file is locked. Set LEEWAY_DEBUG=1 to see the traceback.\n"
    )
    monkeypatch.setenv("LEEWAY_DEBUG", "1")
    assert main.run(["breaks"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_error_with_json_output_is_one_json_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    errors: list[tuple[list[str], int, str]] = [
        (["demo", "--nodes", "2", "-o", "json"], 2, "--nodes: expected"),
        (["demo", "--nodes", "many", "--output=json"], 2, "Invalid value for '--nodes'"),
        (["sandbox", "up", "--state-dir", "/proc/no", "-ojson"], 1, "/proc/no cannot be created"),
        (["cost", "--days", "0", "-o", "json"], 2, "'--days': expected a number greater than or"),
        (["drain", "-ojson"], 2, "NODE: expected"),
        (
            ["explain", "no-such.json", "--output", "json"],
            2,
            "no-such.json: No such file or directory.",
        ),
        (["sandbox", "status", "--state-dir", "no-such", "-o", "json"], 1, "sandbox"),
    ]
    for arguments, exit_code, said in errors:
        assert main.run(arguments) == exit_code, arguments
        output = capsys.readouterr()
        document = json.loads(output.out)
        assert document.keys() == {"formatVersion", "error"}
        assert document["error"].keys() == {"message"}
        assert said in document["error"]["message"]
        assert output.err == f"leeway: {document['error']['message']}\n"


def test_the_start_of_the_command_line_imports_no_large_library() -> None:
    program = (
        "import sys; from leeway_cli.main import run; run(['demo', '--nodes', '0']);"
        "print([m for m in ('boto3', 'lightkube', 'jinja2', 'urllib3') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
