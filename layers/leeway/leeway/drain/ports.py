"""drain.ports"""

from typing import Protocol

from leeway.drain.summary import DrainState


class DrainStates(Protocol):
    """Where it is shown how far drains are, for those who watch."""

    def show(self, state: DrainState) -> None:
        """Write how far a drain is, in place of what was written before."""
        ...
