"""Write the files of `golden/` again: `.venv/bin/python -m tests.bootstrap.write_golden`.

Read the difference before you commit it: nodes boot with these bytes.
"""

from pathlib import Path

from tests.bootstrap.cases import CASES

GOLDEN = Path(__file__).parent / "golden"


def write() -> None:
    """Write a file for each case, and remove all others."""
    for path in GOLDEN.iterdir():
        path.unlink()
    for name, case in CASES.items():
        (GOLDEN / name).write_bytes(case().text.encode())


if __name__ == "__main__":
    write()
