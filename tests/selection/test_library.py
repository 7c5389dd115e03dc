"""The example of the docs, which uses selection as a library."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)
THEN = """
import sys
strangers = {"boto3", "botocore", "lightkube", "kubernetes", "aws_lambda_powertools", "pydantic"}
assert not strangers & sys.modules.keys(), strangers & sys.modules.keys()
"""


def test_the_example_of_the_docs_runs_without_aws_and_kubernetes() -> None:
    (example,) = EXAMPLE.findall((ROOT / "docs" / "selection.md").read_text())
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example + THEN], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *nodes, price = done.stdout.splitlines()
    assert sum(int(line.split()[1]) for line in nodes) == 20
    assert price == "0.46 an hour; no plan costs less than 0.40"
