"""The recipe of the layer runs with the tools of Linux and of macOS."""

import subprocess
from pathlib import Path

MAKEFILE = Path(__file__).parents[2] / "layers" / "leeway" / "Makefile"


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
