"""Measures how long a catalog takes to open and to filter, each in a fresh interpreter."""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from leeway.selection.offers.survey import compressed
from leeway_cli.selection.catalogs import sandbox_survey
from rich.console import Console
from rich.table import Table

REGIONS = ("us-east-1", "eu-central-1", "me-south-1")
RUNS = 9

# A function has this share of a vCPU at 512 MB. Source: Lambda developer guide, "Configure Lambda
# function memory".
SHARE_AT_512_MB = 512 / 1769

_PROBE = """
import json, re, sys, time
from leeway.selection.offers.survey import opened
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.requirements import Requirement, Requirements
packed = open(sys.argv[1], "rb").read()
wanted = [
    ("karpenter.sh/capacity-type", "In", ["spot"]),
    ("kubernetes.io/arch", "In", ["amd64"]),
    ("kubernetes.io/os", "In", ["linux"]),
    ("karpenter.k8s.aws/instance-category", "In", ["c", "m", "r"]),
    ("karpenter.k8s.aws/instance-generation", "Gt", ["2"]),
]
began = time.process_time()
catalog = opened(packed)
at_open = time.process_time()
table = catalog.for_node_class(NodeClass())
found = table.matching(Requirements(Requirement.of(*one) for one in wanted))
at_filter = time.process_time()
table.matching(Requirements(Requirement.of(*one) for one in wanted))
at_again = time.process_time()
types = table.types(found)
at_build = time.process_time()
# Not ru_maxrss, which includes the memory of the parent process.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps([at_open - began, at_filter - at_open, at_again - at_filter,
                  at_build - at_again, peak, len(types), len(table)]))
"""


def probe(packed: Path) -> list[float]:
    """Open and filter one catalog. Returns CPU seconds of each stage, peak MB, and the numbers of
    matching types and of all types."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, str(packed)], check=True, capture_output=True, text=True
    )
    measured: list[float] = json.loads(done.stdout)
    return measured


def main() -> None:
    """Print the table."""
    table = Table(title=f"A catalog opened and filtered (CPU, median of {RUNS} interpreters)")
    columns = ("region", "types", "in the table", "open", "filter", "again", "build", "all")
    for column in (*columns, "open + filter at 512 MB", "peak"):
        table.add_column(column, justify="right")
    for region in REGIONS:
        packed = compressed(sandbox_survey(region))
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(packed)
            runs = [probe(Path(file.name)) for _ in range(RUNS)]
        medians = [statistics.median(column) for column in zip(*runs, strict=True)]
        *stages, peak, matched, types = medians
        whole = stages[0] + stages[1] + stages[3]
        table.add_row(
            region,
            f"{types:.0f}",
            f"{len(packed) / 1000:.0f} KB",
            *(f"{stage * 1000:.2f} ms" for stage in stages[:3]),
            f"{stages[3] * 1000:.1f} ms for {matched:.0f}",
            f"{whole * 1000:.1f} ms",
            f"{(stages[0] + stages[1]) / SHARE_AT_512_MB * 1000:.0f} ms",
            f"{peak:.0f} MB",
        )
    console = Console(width=140)
    console.print(table)
    console.print(
        "filter: Spot, amd64, Linux, category c, m or r, generation above 2; build: what matches,"
        " with labels and allocatable; at 512 MB: with that size's share of a vCPU"
    )
