"""The requirements of the layer have exactly the versions of the tests."""

import re
from importlib.metadata import distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==([^ \\]+)", re.MULTILINE)


def pins(path: str) -> dict[str, str]:
    """Return the pins of a requirements file: name → version."""
    found = PIN.findall((ROOT / path).read_text())
    return {canonicalize_name(name): version for name, version in found}


def needed(name: str) -> set[str]:
    """Return the run-time dependencies of a distribution, recursively."""
    seen: set[tuple[str, str]] = set()
    todo = [(canonicalize_name(name), "")]
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


def test_the_layer_has_only_the_dependencies_of_leeway() -> None:
    assert pins("layers/leeway/requirements.txt").keys() == needed("leeway")


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
