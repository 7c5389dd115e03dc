"""Measures the start of each function: import time, CPU of the initialisation, peak memory."""

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from leeway_sandbox.template import FunctionResource, read_template
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
LAYER = ROOT / ".aws-sam" / "build" / "LeewayLayer" / "python"
RUNS = 9
SIZES_MB = (512, 1024)

# A function has one vCPU at 1,769 MB and a share in proportion below that.
# Source: Lambda developer guide, "Configure Lambda function memory".
FULL_VCPU_MB = 1769

_PROBE = """
import sys, time
from pathlib import Path
cpu = time.process_time()
for name in sys.argv[1:]:
    __import__(name)
cpu = time.process_time() - cpu
# Not getrusage, which includes the memory of the parent process.
(peak,) = (l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM"))
print(cpu, int(peak.split()[1]) / 1024)
"""


_LIBRARIES = """
import sys
import handler
for name, one in sys.modules.items():
    if (getattr(one, "__file__", None) or "").startswith(sys.argv[1] + "/"):
        if name.partition(".")[0] not in ("leeway", "handler"):
            print(name)
"""


def probe(
    function: FunctionResource, in_lambda: bool, modules: Sequence[str] = ("handler",)
) -> list[float]:
    """Start a function with the built layer in a fresh interpreter. Returns CPU seconds and peak
    MB. With `in_lambda`, it builds its clients at the start (`leeway.wiring.clients.prepare`)."""
    return [float(figure) for figure in run(function, in_lambda, _PROBE, *modules)]


def libraries(function: FunctionResource) -> list[str]:
    """Return the modules of libraries in the layer that a function imports, in their order."""
    return run(function, False, _LIBRARIES, str(LAYER))


def run(function: FunctionResource, in_lambda: bool, code: str, *arguments: str) -> list[str]:
    """Run code in a fresh interpreter with the layer; return the words that it prints."""
    environment = {
        **function.environment,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{function.code}:{LAYER}",
        # Lambda mounts the layer read-only: a file without bytecode is compiled at each start.
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        **({"AWS_LAMBDA_FUNCTION_NAME": "bench"} if in_lambda else {}),
    }
    done = subprocess.run(
        [Path(sys.base_prefix) / "bin" / "python3.13", "-c", code, *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def main() -> None:
    """Print the table. The layer must have been built (`make bench` builds it)."""
    if not LAYER.exists():
        sys.exit(f"bench: {LAYER.relative_to(ROOT)} is missing; run `make build`")
    table = Table(title=f"Cold start: CPU, the least of {RUNS} fresh interpreters")
    for column in ("function", "libraries", "import", "with clients", "peak"):
        table.add_column(column, justify="right")
    for size in SIZES_MB:
        table.add_column(f"at {size} MB", justify="right")
    for function in read_template(ROOT / "template.yaml", {}).functions:
        table.add_row(function.code.name, *_figures(function))
    console = Console()
    console.print(table)
    console.print("libraries: the import of the modules of others alone")
    console.print("with clients: the whole initialisation in Lambda")
    console.print("at … MB: the same, with the share of a vCPU of this memory size")


def _figures(function: FunctionResource) -> list[str]:
    """Measure alternately and return the minimum, which other processes of the machine affect
    least."""
    modules = libraries(function)
    floor, bare, whole = [], [], []
    for _ in range(RUNS):
        floor.append(probe(function, in_lambda=False, modules=modules)[0])
        bare.append(probe(function, in_lambda=False)[0])
        whole.append(probe(function, in_lambda=True))
    cpu, peak = min(seconds for seconds, _ in whole), statistics.median(mb for _, mb in whole)
    sizes = [cpu / min(1.0, size / FULL_VCPU_MB) for size in SIZES_MB]
    first = [
        f"{min(floor) * 1000:.0f} ms",
        f"{min(bare) * 1000:.0f} ms",
        f"{cpu * 1000:.0f} ms",
        f"{peak:.0f} MB",
    ]
    return [*first, *(f"{seconds:.2f} s" for seconds in sizes)]
