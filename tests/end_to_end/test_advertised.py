"""The functions of a sandbox use the address that it advertises for containers."""

import time
from pathlib import Path

from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import smoke_scenario

TIMEOUT = 90
"""Seconds for one retirement, on a busy machine."""


def test_the_functions_drain_a_node_through_the_advertised_address(tmp_path: Path) -> None:
    address = "127.0.0.2"
    world = smoke_scenario()
    with Sandbox.start(world, state_dir=tmp_path, host=address, advertise=address) as sandbox:
        until = time.monotonic() + TIMEOUT
        instance = next(e["instance"] for e in sandbox.journal() if e["kind"] == "node-joined")
        sandbox.interrupt([instance])
        while not (
            outcomes := [e["detail"] for e in sandbox.journal() if e["kind"] == "put-events"]
        ):
            assert time.monotonic() < until, f"the retirement of {instance} has not ended"
            time.sleep(0.3)
    assert [(one["instance"], one["result"]) for one in outcomes] == [(instance, "drained")]
