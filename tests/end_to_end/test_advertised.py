"""A sandbox that containers reach: its functions send tokens to the address that it advertises."""

import time
from pathlib import Path

from sandbox.sandbox import Sandbox
from sandbox.scenario import smoke_scenario

PATIENCE = 90
"""Seconds for one retirement, on a machine that does other work, too."""


def test_its_own_functions_drain_a_node_by_the_advertised_address(tmp_path: Path) -> None:
    address = "127.0.0.2"
    world = smoke_scenario()
    with Sandbox.start(world, state_dir=tmp_path, host=address, advertise=address) as sandbox:
        until = time.monotonic() + PATIENCE
        instance = next(e["instance"] for e in sandbox.journal() if e["kind"] == "node-joined")
        sandbox.interrupt([instance])
        while not (told := [e["detail"] for e in sandbox.journal() if e["kind"] == "put-events"]):
            assert time.monotonic() < until, f"the retirement of {instance} has not ended"
            time.sleep(0.3)
    assert [(one["instance"], one["result"]) for one in told] == [(instance, "drained")]
