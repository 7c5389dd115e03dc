"""A function imports no feature that it does not use: its cold start would pay for it."""

import subprocess
import sys
from pathlib import Path

import pytest

FUNCTIONS = Path(__file__).parents[2] / "functions"
LOOK = """
import sys
sys.path.insert(0, sys.argv[1])
import handler
parts = {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("leeway.")}
heavy = {"leeway.notices.parse", "lightkube", "numpy"} & sys.modules.keys()
print(*sorted(parts & set(sys.argv[2:])), *sorted(heavy))
"""
FEATURES = [
    f"leeway.{name}"
    for name in (
        "admission",
        "bootstrap",
        "disruption",
        "interruption",
        "kubernetes",
        "launch",
        "pod_watch",
        "provisioning",
        "reconciliation",
    )
]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("receive_notice", "leeway.admission leeway.interruption leeway.notices.parse"),
        ("retire_node", "leeway.kubernetes"),
        ("admit_node", "leeway.admission leeway.kubernetes"),
        ("keep_headroom", "leeway.kubernetes"),
        ("watch_pods", "leeway.kubernetes leeway.pod_watch"),
        ("refresh_catalog", ""),
    ],
)
def test_a_function_imports_only_the_features_that_it_uses(function: str, expected: str) -> None:
    environment = {"LEEWAY_TABLE": "leeway", "LEEWAY_ACCOUNT": "1", "AWS_REGION": "us-east-1"}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(FUNCTIONS / function), *FEATURES],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == expected
