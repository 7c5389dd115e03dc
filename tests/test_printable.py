"""A terminal shows text from the cluster, and executes no escape sequence in it."""

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.printable import printable, printable_lines
from leeway_cli import output
from leeway_cli.terminal import Terminal
from rich.table import Table
from rich.text import Text

CLI = Path(__file__).parents[1] / "cli"
ESCAPES = "\x1b[2J\x9b31m\x07\x7f\u202e"


@given(st.text())
def test_every_control_character_is_escaped(text: str) -> None:
    for line in (printable(text), *printable_lines(text).replace("\t", "").split("\n")):
        assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", line)


@given(st.text())
def test_an_escaped_json_string_is_read_back(text: str) -> None:
    document = json.dumps({"text": text}, ensure_ascii=False, indent=1)
    assert json.loads(printable_lines(document)) == {"text": text}


def test_printable_text_is_not_changed() -> None:
    for text in ("node-1 drained", "Änderung, 変更", "a\\b [x]"):
        assert printable(text) == text


def test_a_console_shows_escape_sequences_as_text() -> None:
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=True, width=200)
    table = Table()
    table.add_column("WHY")
    table.add_row(Text(ESCAPES))
    console.print(table)
    console.print(ESCAPES, style="bold", markup=False)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert shown.count("\\u001b") == 2


def test_lines_and_json_documents_show_escape_sequences_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.write_stderr(ESCAPES)
    output.write_stdout(ESCAPES)
    output.print_json({"text": ESCAPES})
    written = capsys.readouterr()
    assert (written.out + written.err).replace("\n", "").isprintable()
    assert json.loads(written.out.partition("\n")[2]) == {"formatVersion": 1, "text": ESCAPES}


def test_the_command_line_writes_only_through_the_output_module() -> None:
    """Exceptions are fixed texts, and YAML, which escapes by itself."""
    writes = {
        f"{file.name}: {line.strip()}"
        for file in CLI.rglob("*.py")
        if file.name not in ("output.py", "terminal.py")
        for line in file.read_text().splitlines()
        if re.search(r"std(out|err)\.write|\bprint\(|\bConsole\(", line) and ".print(" not in line
    }
    assert writes == {
        "userdata.py: sys.stdout.write(data.text)",
        'completion.py: sys.stdout.write(f"{script}\\n")',
        "commands.py: sys.stdout.write(as_yaml(document))",
        "main.py: sys.stdout.write(f\"leeway {version('leeway')}\\n\")",
        "schema.py: sys.stdout.write(_rendered(kinds[-1], output))",
        'schema.py: sys.stdout.write(f"---\\n{crd_text(one)}")',
        'schema.py: sys.stdout.write(f"{path}\\n")',
    }
