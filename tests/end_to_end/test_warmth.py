"""Headroom at work: there when its window starts, given up to a real pod at once, filled again."""

from pathlib import Path

from bench.warmth import growing_sandbox, rehearse


def test_room_is_warm_at_its_windows_start_and_goes_to_a_real_pod_and_is_filled_again(
    tmp_path: Path,
) -> None:
    with growing_sandbox(tmp_path) as sandbox:
        waits = rehearse(sandbox)
        entries = sandbox.journal()
    # Its pods ran before the window began, the real pod took their room, and a node came for them.
    assert waits.early > 0
    (ended,) = [e for e in entries if e["kind"] == "pod-deletion" and e["via"] == "preemption"]
    assert ended["pod"].startswith("leeway-headroom/office-room-")
    assert waits.refill > 0
    joined = [e for e in entries if e["kind"] == "node-joined"]
    assert len(joined) == 6
