"""Lets a slow machine be tried on a fast one: the sandbox answers, and acts, later by chance.

A test that waits for what it needs passes with any lag; one that assumes it fails.
"""

import os
import random

_LONGEST = float(os.environ.get("LEEWAY_SANDBOX_LAG", "0"))  # seconds


def lag() -> float:
    """Return the seconds by which something comes late: 0, unless LEEWAY_SANDBOX_LAG is set."""
    return random.uniform(0, _LONGEST)
