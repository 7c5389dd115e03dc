"""The output of `sam build` is importable in the same way as in Lambda: only from its two
folders."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubernetes.faulty_server import json_answer, pod, pods, running_faulty_server
from tests.template.granted import granted_to, roles_of_functions
from tests.template.reached import IAM_NAMES
from tests.template.translation import deployed

ROOT = Path(__file__).parents[2]
FUNCTIONS = [f.logical_id for f in deployed().functions]
IMPORT = """
import sys
sys.path[:0] = sys.argv[1:]
def refuse(event, values):
    assert event != "compile" or "__create_fn__" not in str(values[0]), values
sys.addaudithook(refuse)
import handler
assert callable(handler.handler)
import boto3, leeway
print(boto3.__file__)
print(leeway.__file__)
"""

pytestmark = pytest.mark.sam


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_built_function_is_importable_with_only_its_layer(build: Path, function: str) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3.13"
    code, layer = build / function, build / "LeewayLayer" / "python"
    (one,) = [f for f in deployed().functions if f.logical_id == function]
    done = subprocess.run(
        # Without the environment (-I) and site-packages (-S); warnings are errors.
        [python, "-I", "-S", "-W", "error", "-c", IMPORT, code, layer],
        env={**one.environment, "AWS_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    imported = done.stdout.splitlines()
    assert len(imported) == 2
    assert all(Path(file).is_relative_to(layer) for file in imported)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_contains_only_its_handler_and_the_layer_the_rest(
    build: Path, function: str
) -> None:
    shipped = {path.name for path in (build / function).iterdir()} - {"__pycache__"}
    assert shipped == {"handler.py"}


def test_the_layer_contains_bytecode_so_that_a_cold_start_compiles_nothing(build: Path) -> None:
    layer = build / "LeewayLayer" / "python"
    sources = list(layer.rglob("*.py"))
    compiled = {path.relative_to(layer) for path in layer.rglob("*.pyc")}
    bare = [
        source
        for source in sources
        if source.relative_to(layer).parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"
        not in compiled
    ]
    assert len(sources) > 500
    assert bare == []
    # Flag 0b01: validated by a hash of the source. Flag 0b10 unset: never checked.
    flags = (layer / "leeway" / "__pycache__" / "clock.cpython-313.pyc").read_bytes()[4:8]
    assert int.from_bytes(flags, "little") == 0b01


MACHINES = {0x3E: "x86_64", 0xB7: "aarch64"}
"""The machine numbers in ELF headers."""


def test_one_layer_works_on_both_architectures(build: Path) -> None:
    layer = build / "LeewayLayer" / "python"
    found: dict[str, set[str]] = {}
    for path in layer.rglob("*.so*"):
        name = path.name.split(".")[0].split("-")[0]
        machine = int.from_bytes(path.read_bytes()[18:20], "little")
        found.setdefault(name, set()).add(MACHINES[machine])
    assert {"_pydantic_core", "_core", "libhighs"} <= found.keys()
    assert all(machines == {"aarch64", "x86_64"} for machines in found.values())


# After the layer, the repository: for the pods and the checker of plans.
PACKING = """
import sys
sys.path[:0] = sys.argv[1:]
from bench.plan_checker import violations
from bench.workloads import diverse_pods, synthetic_catalog
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool
import highspy, leeway, numpy
pods, pools = diverse_pods(500), [NodePool("default")]
plan = pack(pods, Supply(pools, synthetic_catalog()))
assert plan.launches and not plan.unschedulable
assert violations(plan, pods, pools) == []
print(highspy.__file__, leeway.__file__, numpy.__file__)
"""


def test_packing_runs_with_only_the_layer(build: Path) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3.13"
    layer = build / "LeewayLayer" / "python"
    done = subprocess.run(
        [python, "-I", "-S", "-W", "error", "-c", PACKING, layer, ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    imported = done.stdout.split()
    assert len(imported) == 3
    assert all(Path(file).is_relative_to(layer) for file in imported)


LISTING = """
import sys
sys.path.insert(0, sys.argv[1])
import ssl
from leeway.clock import SystemClock
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.transport import BoundedTransport
connection = Connection(sys.argv[2], BoundedTransport(ssl.create_default_context()))
print(*(pod.name for pod in HttpCluster(connection, SystemClock()).pods_on("node-1")))
"""


def test_kubernetes_clients_run_with_only_the_layer(build: Path, tmp_path: Path) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3.13"
    layer = build / "LeewayLayer" / "python"
    with running_faulty_server(tmp_path) as server:
        server.on("GET", "/api/v1/pods", json_answer(pods(pod("web"), pod("db"))))
        done = subprocess.run(
            [python, "-I", "-S", "-c", LISTING, layer, server.url],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stdout.split() == ["web", "db"], done.stderr


BY_THE_SERVICE = {
    "iam:PassRole",
    "logs:CreateLogStream",
    "logs:PutLogEvents",
    "sqs:DeleteMessage",
    "sqs:ReceiveMessage",
}
"""Permissions for calls that AWS makes for a function."""


def test_the_layer_has_every_operation_that_a_role_may_call(build: Path) -> None:
    data = build / "LeewayLayer" / "python" / "botocore" / "data"
    operations = {
        f"{path.parts[-3]}:{operation}"
        for path in data.rglob("service-2.json")
        for operation in json.loads(path.read_text())["operations"]
    }
    granted = set().union(*map(granted_to, roles_of_functions()))
    assert granted - {IAM_NAMES.get(one, one) for one in operations} == BY_THE_SERVICE
    assert len(operations) < 100


CLIENTS = """
import sys
sys.path.insert(0, sys.argv[1])
import boto3
for service in sys.argv[2:]:
    client = boto3.client(service, "us-east-1")
    assert client.meta.service_model.operation_names
"""


def test_the_layer_has_the_model_of_every_called_aws_service(build: Path) -> None:
    python = Path(sys.base_prefix) / "bin" / "python3.13"
    layer = build / "LeewayLayer" / "python"
    wiring = "".join(path.read_text() for path in (layer / "leeway" / "wiring").glob("*.py"))
    called = set(re.findall(r'client, "([a-z0-9-]+)"', wiring))
    for prepared in re.findall(r"prepare\(\[([^]]*)\]", wiring):
        called |= set(re.findall(r'"([a-z0-9-]+)"', prepared))
    assert {"dynamodb", "ec2", "lambda", "pricing"} <= called
    done = subprocess.run(
        [python, "-I", "-S", "-c", CLIENTS, layer, *sorted(called)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_layer_fits_the_quota_of_lambda(build: Path) -> None:
    files = [path for path in (build / "LeewayLayer").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 160_000_000
