"""The methods of dataclasses, compiled when the layer is built and not at each cold start.

`@dataclass` writes the methods of a class as text and passes it to `exec`, which compiles it: that
was a quarter of the import of a function. The build of the layer writes the compiled texts into
FILE, and Leeway takes them from there, before it imports anything else. A text that is not in FILE
is compiled as usual: another version of Python writes others. Outside the layer there is no FILE,
and nothing changes.
"""

import dataclasses
import marshal
import pkgutil
from importlib import import_module
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("precompiled.bin")
"""MAGIC_NUMBER of the Python that wrote it, then a marshalled dict of texts to marshalled code."""

_WITHOUT_REFERENCES = 2
"""The version of marshal whose bytes depend only on the code, so that two builds have the same."""


def use(file: Path = FILE) -> None:
    """Let `dataclasses` take compiled texts from a file, if this version of Python wrote it."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return
    if not content.startswith(MAGIC_NUMBER):
        return
    codes: dict[str, bytes] = marshal.loads(content[len(MAGIC_NUMBER) :])  # noqa: S302

    def execute(text: str, *namespaces: Any) -> None:
        code = codes.get(text)
        exec(text if code is None else marshal.loads(code), *namespaces)  # noqa: S102, S302

    _run_texts_with(execute)


def write(file: Path = FILE) -> None:
    """Import each module of Leeway, and write what `dataclasses` compiles meanwhile, for it and for
    the libraries."""
    codes: dict[str, bytes] = {}

    def execute(text: str, *namespaces: Any) -> None:
        code = compile(text, "<string>", "exec")
        codes[text] = marshal.dumps(code, _WITHOUT_REFERENCES)
        exec(code, *namespaces)  # noqa: S102

    _run_texts_with(execute)
    for module in pkgutil.walk_packages(import_module("leeway").__path__, "leeway."):
        import_module(module.name)
    ordered = dict(sorted(codes.items()))
    file.write_bytes(MAGIC_NUMBER + marshal.dumps(ordered, _WITHOUT_REFERENCES))


def _run_texts_with(execute: Any) -> None:
    """A name of the module hides the builtin function of the same name from `dataclasses`."""
    vars(dataclasses)["exec"] = execute
