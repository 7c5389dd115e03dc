"""What `sam build` made is importable as Lambda imports it: from its two folders alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.template import read_template

ROOT = Path(__file__).parents[2]
FUNCTIONS = ("ReceiveNoticeFunction", "RetireNodeFunction")
IMPORT = """
import sys
sys.path[:0] = sys.argv[1:]
import handler
assert callable(handler.handler)
import boto3, leeway
print(boto3.__file__, leeway.__file__)
"""

pytestmark = pytest.mark.sam


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_built_function_is_importable_with_its_layer_alone(build: Path, function: str) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3.13"
    code, layer = build / function, build / "LeewayLayer" / "python"
    (deployed,) = [
        f for f in read_template(ROOT / "template.yaml", {}).functions if f.logical_id == function
    ]
    done = subprocess.run(
        # Without the environment (-I) and without site-packages (-S), and any warning an error.
        [python, "-I", "-S", "-W", "error", "-c", IMPORT, code, layer],
        env={**deployed.environment, "AWS_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(Path(file).is_relative_to(layer) for file in done.stdout.split())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_its_handler_and_the_layer_carries_the_rest(
    build: Path, function: str
) -> None:
    shipped = {path.name for path in (build / function).iterdir()} - {"__pycache__"}
    assert shipped == {"handler.py"}
