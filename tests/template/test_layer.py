"""The layer: its recipe runs with the tools of Linux and of macOS; its versions are pinned."""

import re
import subprocess
from importlib.metadata import distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
MAKEFILE = ROOT / "layers" / "leeway" / "Makefile"


def test_compiled_extensions_are_copied_with_their_folders(tmp_path: Path) -> None:
    (recipe,) = [line for line in MAKEFILE.read_text().splitlines() if "tar -cf" in line]
    (tmp_path / "x86_64" / "numpy" / "core").mkdir(parents=True)
    for name in ("numpy/core/_umath.so", "numpy/core/libx.so.1", "numpy/core/code.py"):
        (tmp_path / "x86_64" / name).touch()
    target = tmp_path / "with space"
    target.mkdir()
    command = recipe.strip().replace("$(TARGET)", str(target)).replace("$$", "$")
    subprocess.run(["/bin/sh", "-ec", command], cwd=tmp_path, check=True)
    copied = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert copied == {"numpy/core/_umath.so", "numpy/core/libx.so.1"}


def test_no_recipe_uses_an_option_of_gnu_tools() -> None:
    assert "--parents" not in MAKEFILE.read_text()


PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^ \\]+)", re.MULTILINE)


def pins(path: str) -> dict[str, str]:
    """Return the pins of a requirements file: name → version."""
    found = PIN.findall((ROOT / path).read_text())
    return {canonicalize_name(name): version for name, version in found}


COMMAND_LINE = {"aiohttp", "jinja2", "lightkube", "rich", "typer"}
"""What only the command line and the sandbox import."""


def names(path: str) -> set[str]:
    """Return the names in a file with a requirement a line."""
    lines = (ROOT / path).read_text().splitlines()
    return {canonicalize_name(line) for line in lines if not line.startswith("#")}


def needed(distributions: set[str]) -> set[str]:
    """Return distributions and their run-time dependencies, recursively."""
    todo = [(canonicalize_name(name), "") for name in distributions]
    seen = set(todo)
    while todo:
        current, extra = todo.pop()
        for requirement in map(Requirement, distribution(current).requires or []):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            wanted = canonicalize_name(requirement.name)
            found = {(wanted, wanted_extra) for wanted_extra in {"", *requirement.extras}} - seen
            seen |= found
            todo += found
    return {name for name, _ in seen}


def test_the_layer_has_what_leeway_requires_without_the_command_line() -> None:
    required = map(Requirement, distribution("leeway").requires or [])
    always = {canonicalize_name(one.name) for one in required if not one.marker}
    layer = names("layers/leeway/requirements.in")
    assert always == layer | COMMAND_LINE
    assert pins("layers/leeway/requirements.txt").keys() == needed(layer)


def test_the_layer_has_the_pinned_versions_of_the_tests() -> None:
    tested = pins("requirements/dev.txt")
    layer = pins("layers/leeway/requirements.txt")
    assert layer == {name: tested[name] for name in layer}


def test_the_tests_run_with_the_pinned_versions() -> None:
    layer = pins("layers/leeway/requirements.txt")
    assert {name: version(name) for name in layer} == layer


def test_no_requirements_file_names_a_package_index() -> None:
    for path in [*ROOT.glob("requirements/*"), ROOT / "layers/leeway/requirements.txt"]:
        assert not re.search(r"https?://|--(extra-)?index-url|--find-links", path.read_text())
