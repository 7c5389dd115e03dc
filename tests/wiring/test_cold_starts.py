"""A cold start imports only features that the function uses, and builds the clients of urgent work.

One process imports the libraries of all functions, and forks for each function.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

FUNCTIONS = Path(__file__).parents[2] / "functions"
FORK = """
import json, os, sys
from importlib import import_module

for library in ("aws_lambda_powertools", "boto3", "cronsim", "msgspec", "pydantic"):
    import_module(library)
for name, arguments in json.loads(sys.argv[1]).items():
    child = os.fork()
    if not child:
        os.environ["AWS_LAMBDA_FUNCTION_NAME"] = name
        print(json.dumps([name, sorted(look(name, *arguments))]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""
IMPORTS = """
def look(name, folder, features):
    sys.path.insert(0, f"{folder}/{name}")
    import handler
    parts = {".".join(one.split(".")[:2]) for one in sys.modules if one.startswith("leeway.")}
    heavy = {"leeway.notices.parse", "lightkube", "numpy"} & sys.modules.keys()
    return (parts & set(features)) | heavy
"""
# Which clients a use case may ask for, and which of them are there when it has been imported.
CLIENTS = """
from functools import partial

def asked_for(client, part, seen):
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, partial):
        if part.func is client:
            yield part
        return
    if not type(part).__module__.startswith("leeway."):
        return
    held = [getattr(part, name) for name in getattr(type(part), "__slots__", ())]
    for one in [*held, *getattr(part, "__dict__", {}).values()]:
        yield from asked_for(client, one, seen)

def look(name, use_case):
    from leeway.wiring.clients import client
    module = import_module(f"leeway.wiring.{name}")
    for one in asked_for(client, getattr(module, use_case)(), set()):
        before = client.cache_info().misses
        one()
        if client.cache_info().misses > before:
            yield f"{one.args[0]} {one.keywords or ''}".strip()
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


def looked(code: str, arguments: dict[str, list[Any]]) -> dict[str, list[str]]:
    """Return what `look` of the code finds in a process of each function."""
    environment = {
        **os.environ,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "LEEWAY_ACCOUNT": "123456789012",
        "LEEWAY_TABLE": "leeway",
        "LEEWAY_PROVISION_QUEUE": "https://sqs.us-east-1.amazonaws.com/123456789012/provision.fifo",
    }
    done = subprocess.run(
        [sys.executable, "-c", code + FORK, json.dumps(arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_a_function_imports_only_the_features_that_it_uses() -> None:
    expected = {
        "receive_notice": ["leeway.admission", "leeway.interruption", "leeway.notices.parse"],
        "retire_node": ["leeway.kubernetes"],
        "admit_node": ["leeway.admission", "leeway.kubernetes"],
        "keep_headroom": ["leeway.kubernetes"],
        "watch_pods": ["leeway.kubernetes", "leeway.pod_watch"],
        "refresh_catalog": [],
    }
    arguments = {name: [str(FUNCTIONS), FEATURES] for name in expected}
    assert looked(IMPORTS, arguments) == expected


def test_the_clients_of_urgent_work_are_built_during_initialisation() -> None:
    """Only those that an invocation seldom needs are built later."""
    use_cases = {
        "retire_node": ["ports"],
        "receive_notice": ["_receive_notice"],
        "provision_nodes": ["provision_nodes"],
    }
    seldom = {"retire_node": ["elbv2"], "receive_notice": ["scheduler"], "provision_nodes": []}
    assert looked(CLIENTS, use_cases) == seldom
