"""The record of a page: what it keeps, and what is said of a file that is no record."""

from pathlib import Path

import msgspec
import pytest
from leeway_cli import main
from leeway_cli.errors import BadInputError
from leeway_cli.view.picture import Change, applied
from leeway_cli.view.recording import First, Recording, read_recording

from tests.view.pictures import PICTURE, later, node


def test_a_record_leads_to_the_last_picture(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    last = later(PICTURE, 10, nodes={"new": node()}, pods={})
    with Recording(file) as recording:
        for one in (PICTURE, later(PICTURE, 5, problem="no answer"), last):
            recording.add(one)
    assert file.stat().st_mode & 0o077 == 0, "only the owner reads it"
    first, *changes = read_recording(file).splitlines()
    found = msgspec.json.decode(first, type=First).picture
    for change in changes:
        found = applied(found, msgspec.json.decode(change, type=Change))
    assert found == last


def test_a_record_keeps_the_last_hour(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    with Recording(file) as recording:
        for minute in range(180):
            picture = later(PICTURE, minute * 60, pods={}, prices=((PICTURE.at, float(minute)),))
            recording.add(picture)
    first, *changes = read_recording(file).splitlines()
    begins = msgspec.json.decode(first, type=First).picture
    assert 60 <= (picture.at - begins.at) / 60 <= 70
    assert len(changes) == (picture.at - begins.at) / 60
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_a_part_of_a_last_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    with Recording(file) as recording:
        recording.add(PICTURE)
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"at": 1.0, "no')
    assert read_recording(file) == whole


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(BadInputError, match=r"expected a new file, but .* exists"):
        Recording(file)
    assert file.read_text() == "mine"


FIRST = msgspec.json.encode(First(1, PICTURE)) + b"\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "line 1: expected a record of `leeway view --record`: the file is empty."),
        (b"\xff\xfe\x00\n", "line 1: expected a record"),
        (b'{"kind": "Pod"}\n', "line 1: expected a record"),
        (b"[" * 100_000, "line 1: expected a record"),
        (FIRST + b'{"at": "noon"}\n', "Expected `float`, got `str` - at `$.at`"),
        (FIRST + b'{"at": 1.0}\n', "line 2: expected a record of `leeway view --record`: its time"),
        (FIRST + b'{"at": 1e999}\n', "line 2: expected a record"),
        (FIRST + b'{"at": 2e9, "nodes": {"a": {"owner": 1}}}\n', "line 2: expected a record"),
        (FIRST.replace(b'"leewayView":1', b'"leewayView":2'), "line 1: expected a record"),
    ],
)
def test_a_file_with_garbage_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, problem: str
) -> None:
    file = tmp_path / "record.jsonl"
    file.write_bytes(content)
    assert main.run(["view", "--play", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert str(file) in printed.err
    assert problem in printed.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--play", "none.jsonl"), "none.jsonl: No such file or directory."),
        (("--play", "a", "--record", "b"), "--play: expected no other option than --port"),
        (("--play", "a", "--sandbox"), "other option than --port, got --sandbox."),
        (("--play", "a", "--cluster", "prod"), "got --cluster."),
        (("--stack", "leeway", "--play", "a"), "got --stack."),
        (("--play", "a", "--every", "5s"), "got --every."),
        (("--play", "a", "-f", "b"), "got --filename."),
        (("--every", "0s"), "--every: expected at least 1s, got 0s."),
        (("--every", "soon"), "--every: "),
        (("--port", "70000"), "less than or equal to 65535"),
    ],
)
def test_options_that_do_not_fit_get_one_line(
    words: tuple[str, ...],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEEWAY_CLUSTER", "prod")
    assert main.run(["view", *words]) == 2
    printed = capsys.readouterr().err
    assert problem in printed
    assert printed.count("\n") == 1
