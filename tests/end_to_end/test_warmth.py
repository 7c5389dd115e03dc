"""Headroom at work: there before its window, given up to a real pod at once, filled again."""

from datetime import timedelta
from pathlib import Path

from bench.warmth import NODES, growing_sandbox, measure

AHEAD = timedelta(minutes=10)
"""Far enough that nothing here can be too slow for it: nobody waits for the window's start."""


def test_room_is_warm_before_its_window_and_goes_to_a_real_pod_and_is_filled_again(
    tmp_path: Path,
) -> None:
    with growing_sandbox(tmp_path, join=2) as sandbox:
        waits = measure(sandbox, AHEAD, lead=AHEAD, begin=False)
        entries = sandbox.journal()
    # Its pods ran before the window began, the real pod took their room, and a node came for them.
    assert waits.early > 0
    (ended,) = [e for e in entries if e["kind"] == "pod-deletion" and e["via"] == "preemption"]
    assert ended["pod"].startswith("leeway-headroom/office-room-")
    assert waits.refill > 0
    # One node each for the pod without headroom, the room, and the room once more; none in vain.
    joined = [e for e in entries if e["kind"] == "node-joined"]
    assert len(joined) == NODES + 3
