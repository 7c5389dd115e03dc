"""Headroom: ready before its window, used by a real pod immediately, refilled afterwards."""

from datetime import timedelta
from pathlib import Path

from bench.warmth import NODES, growing_sandbox, measure

AHEAD = timedelta(minutes=10)
"""An offset that is long enough for slow machines; the test does not wait for the start of the
window."""


def test_headroom_is_ready_before_its_window_used_by_a_pod_and_refilled(
    tmp_path: Path,
) -> None:
    with growing_sandbox(tmp_path, join=2) as sandbox:
        waits = measure(sandbox, AHEAD, lead=AHEAD, begin=False)
        entries = sandbox.journal()
    # The pause pods ran before the window, the real pod replaced them, and a new node joined.
    assert waits.early > 0
    (ended,) = [e for e in entries if e["kind"] == "pod-deletion" and e["via"] == "preemption"]
    assert ended["pod"].startswith("leeway-headroom/office-room-")
    assert waits.refill > 0
    # One node each for the pod without headroom, the headroom and its refill.
    joined = [e for e in entries if e["kind"] == "node-joined"]
    assert len(joined) == NODES + 3
