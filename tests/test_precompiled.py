"""The methods of dataclasses come from the file that the build of the layer writes."""

import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

WRITE = """
import sys
from pathlib import Path
from leeway.precompiled import write
write(Path(sys.argv[1]))
"""

# Prints the number of classes whose methods are compiled during the import of a module of Leeway.
USE = """
import sys
from pathlib import Path
from leeway.precompiled import use
use(Path(sys.argv[1]))
compiled = []
def record(event, values):
    if event == "compile" and "__create_fn__" in str(values[0]):
        compiled.append(values[0])
sys.addaudithook(record)

from dataclasses import FrozenInstanceError, dataclass, replace
from leeway.selection.pods import NodePool
print(len(compiled))

pool = NodePool("default")
assert pool == replace(pool)
assert pool != NodePool("other")
assert hash(pool) == hash(replace(pool))
assert repr(pool).startswith("NodePool(name='default', ")
try:
    pool.name = "other"
except FrozenInstanceError:
    print("frozen")

@dataclass(frozen=True)
class NotPartOfLeeway:
    number: int

assert NotPartOfLeeway(3) == NotPartOfLeeway(3)
"""


def run(code: str, file: Path) -> list[str]:
    """Run a program with the path of a file. Returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, as the build writes it."""
    file = tmp_path_factory.mktemp("layer") / "precompiled.bin"
    run(WRITE, file)
    return file


def test_no_class_of_leeway_is_compiled_at_import(written: Path) -> None:
    assert run(USE, written) == ["0", "frozen"]


def test_classes_are_compiled_without_a_file_and_with_that_of_another_python(
    written: Path, tmp_path: Path
) -> None:
    compiled, frozen = run(USE, tmp_path / "missing.bin")
    assert int(compiled) > 10
    assert frozen == "frozen"
    (tmp_path / "other.bin").write_bytes(b"\0" + written.read_bytes()[1:])
    assert written.read_bytes().startswith(MAGIC_NUMBER)
    assert run(USE, tmp_path / "other.bin") == [compiled, frozen]


def test_two_builds_write_the_same_bytes(written: Path, tmp_path: Path) -> None:
    run(WRITE, tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == written.read_bytes()
