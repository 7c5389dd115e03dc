"""What is installed: the files of a checkout, and the packages of the extra `sandbox`."""

from importlib.util import find_spec
from pathlib import Path

from leeway_sandbox.errors import NotInstalledError

_CARRIED = Path(__file__).resolve().with_name("checkout")
ROOT = _CARRIED if _CARRIED.is_dir() else Path(__file__).resolve().parents[2]
"""The checkout, or the files of it that a wheel has: template.yaml, functions, events, rbac."""


def package(name: str) -> Path:
    """Return the folder of a package without importing it.

    Raises:
        NotInstalledError: it is not installed.
    """
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise NotInstalledError(
            f"The sandbox needs the package {name}, which is not installed. Install the extra "
            "`sandbox`: `pip install '.[sandbox]'` in a clone of Leeway, or `pip install "
            "'./leeway-VERSION-py3-none-any.whl[sandbox]'` with a release."
        )
    return Path(spec.submodule_search_locations[0])


def check_installed() -> None:
    """Raise NotInstalledError if the sandbox cannot start."""
    for name in ("moto", "samtranslator"):
        package(name)
