"""Clients are built while Lambda initialises a function, not during an invocation."""

import os
import subprocess
import sys

import pytest

# Which clients a use case may ask for, and which of them are there when it has been imported.
LOOK = """
import sys
from functools import partial
from importlib import import_module
from leeway.wiring.clients import client

def asked_for(part, seen):
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
        yield from asked_for(one, seen)

name, use_case = sys.argv[1:]
module = import_module(f"leeway.wiring.{name}")
for one in asked_for(getattr(module, use_case)(), set()):
    before = client.cache_info().misses
    one()
    if client.cache_info().misses > before:
        print(*one.args, one.keywords or "")
"""


@pytest.mark.parametrize(
    ("module", "use_case", "seldom"),
    [
        ("retire_node", "ports", "elbv2"),
        ("receive_notice", "_receive_notice", "scheduler"),
        ("provision_nodes", "provision_nodes", ""),
    ],
)
def test_the_clients_of_urgent_work_are_built_during_initialisation(
    module: str, use_case: str, seldom: str
) -> None:
    environment = {
        **os.environ,
        "AWS_LAMBDA_FUNCTION_NAME": module,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "LEEWAY_ACCOUNT": "123456789012",
        "LEEWAY_TABLE": "leeway",
        "LEEWAY_PROVISION_QUEUE": "https://sqs.us-east-1.amazonaws.com/123456789012/provision.fifo",
    }
    done = subprocess.run(
        [sys.executable, "-c", LOOK, module, use_case],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == seldom
