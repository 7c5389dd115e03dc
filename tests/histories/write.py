"""Writes the histories: `python -m tests.histories.write [FOLDER]`. See README.md."""

import json
import sys
from pathlib import Path

from leeway import __version__

from tests.histories.executing import execute
from tests.histories.scenarios import SCENARIOS


def main(folder: Path) -> None:
    """Run every scenario and write its history, one line per operation."""
    for name, scenario in SCENARIOS.items():
        ran = execute(*scenario())
        head = {"version": __version__, "arn": ran.arn, "answer": ran.answer}
        lines = ",\n".join(json.dumps(operation) for operation in ran.operations)
        text = f'{json.dumps(head)[:-1]}, "operations": [\n{lines}\n]}}\n'
        (folder / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
