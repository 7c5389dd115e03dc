"""Counts the functions of Leeway that lie between a handler and each of its requests of AWS.

A sandbox runs a copy of the functions. The layer of the copy writes the stack of every request to a
file: an interruption of two nodes, a launch for 20 pods, one run of each schedule. A stack in a
thread begins in that thread. Neither the handler counts, which calls the first of these functions,
nor the requests of the durable SDK itself.
"""

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from leeway_sandbox.sandbox import Sandbox
from lightkube import Client, KubeConfig
from lightkube.codecs import from_dict
from rich.console import Console
from rich.table import Table

from bench.provision import CLUSTER, manifests, pending_pod, stock
from bench.statistics import percentile
from bench.storms import instances_of, run_reconcile, storm, world

ROOT = Path(__file__).parents[1]
PARTS = ("template.yaml", "functions", "layers", "requirements", "rbac", "events")
PENDING = 20
SETTLE = 20.0
"""Seconds after the last event within which its requests are made."""

HOOK = """

import json as _json
import os as _os
import sys as _sys

from botocore.endpoint import Endpoint as _Endpoint

_send = _Endpoint.make_request


def _noted(self, operation, request):
    frame, stack = _sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("/handler.py"):
            break
        if "/layers/leeway/leeway/" in code.co_filename:
            name = code.co_filename.partition("/layers/leeway/leeway/")[2]
            stack.append(f"{name} {code.co_qualname}")
        frame = frame.f_back
    line = {
        "function": _os.environ.get("AWS_LAMBDA_FUNCTION_NAME", ""),
        "call": operation.name,
        "stack": stack[::-1],
    }
    with open(FILE, "a") as out:
        out.write(_json.dumps(line) + chr(10))
    return _send(self, operation, request)


_Endpoint.make_request = _noted
"""

type Stacks = Mapping[str, Sequence[tuple[str, Sequence[str]]]]
"""The call and the functions above it, for each request of a Lambda function."""


def measured() -> Stacks:
    """Run the scenario, and return the stacks of all requests."""
    with TemporaryDirectory() as folder:
        copy, written = Path(folder) / "copy", Path(folder) / "stacks"
        copy.mkdir()
        for part in PARTS:
            source = ROOT / part
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / part)
        with (copy / "layers" / "leeway" / "leeway" / "__init__.py").open("a") as package:
            package.write(HOOK.replace("FILE", repr(str(written))))
        _run(Path(folder) / "state", copy / "template.yaml")
        found = defaultdict(list)
        for line in map(json.loads, written.read_text().splitlines()):
            name = line["function"].removeprefix("leeway-").replace("-", "_")
            if line["stack"]:
                found[name].append((line["call"], line["stack"]))
    return found


def _run(state: Path, template: Path) -> None:
    options = {"kubernetes": ["--node-join", "1"], "aws": ["--schedule-speed", "0"]}
    with Sandbox.start(world(6), state_dir=state, template=template, options=options) as sandbox:
        stock(sandbox, manifests(CLUSTER))
        run_reconcile(sandbox)
        storm(sandbox, instances_of(sandbox)[:2])
        sandbox.write_kubeconfig()
        with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
            for number in range(PENDING):
                kube.create(from_dict(pending_pod(number)))
        for schedule in sandbox.schedules():
            sandbox.fire(schedule["arn"])
        time.sleep(SETTLE)
        run_reconcile(sandbox)
        time.sleep(SETTLE)


def main() -> None:
    """Print for each function how many functions lie above its requests."""
    table = Table(title="Functions of Leeway between a handler and a request of AWS")
    for column in ("function", "requests", "in the middle", "at most", "the deepest request"):
        table.add_column(column)
    for name, requests in sorted(measured().items()):
        depths = [len(stack) for _, stack in requests]
        call, stack = max(requests, key=lambda request: len(request[1]))
        figures = (len(depths), percentile(depths, 0.5), max(depths))
        table.add_row(name, *map(str, figures), "\n".join((call, *stack)))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
