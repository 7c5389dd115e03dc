"""How long to wait before a watch is opened again."""

HEALTHY_AFTER = 10.0
"""Seconds that a watch must last to count as healthy. A reverse proxy may close each watch at once,
and must not be asked again at once."""

FIRST = 1.0
LONGEST = 30.0
"""Seconds: the pause doubles with each failure up to this, half of what the minute's schedule
leaves a pod to wait."""


def pause_after(failures: int, fraction: float) -> float:
    """Return the seconds to wait after consecutive failures; none after a healthy watch.

    `fraction` is a random number from 0 to 1: half of the pause is random, so that watches which
    failed together do not return together.
    """
    if failures < 1:
        return 0.0
    longest = min(LONGEST, FIRST * 2.0 ** min(failures - 1, 10))
    return longest * (0.5 + fraction / 2)
