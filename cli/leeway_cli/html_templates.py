"""The Jinja environment of the HTML pages, and their files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leeway_cli.errors import BadInputError, CannotBeDoneError

if TYPE_CHECKING:
    from jinja2 import Environment


def environment() -> "Environment":
    """Return the environment of `cli/templates`: values are escaped, a missing one is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("leeway_cli"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def check_page_path(option: str, path: Path) -> None:
    """Check that a page can be written to a path, before the work begins.

    Raises:
        BadInputError: it is a folder, or is in no folder.
    """
    if path.is_dir():
        raise BadInputError(f"{option}: expected a file, but {path} is a folder.")
    if not path.absolute().parent.is_dir():
        raise BadInputError(
            f"{option}: expected a file in a folder, but {path.absolute().parent} is no folder."
        )


def write_page(path: Path, page: str, result: Mapping[str, Any] | None = None) -> None:
    """Write a page. `result` has the fields of the JSON document that is printed in any case.

    Raises:
        CannotBeDoneError: the file cannot be written.
    """
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CannotBeDoneError(
            f"The page {path} could not be written: {error.strerror}.", result=result
        ) from error
