"""The port that drains call besides the cluster's API."""

from typing import Protocol

from leeway.drain.summary import DrainState


class DrainStates(Protocol):
    """The progress of drains, kept in the table for `leeway status`."""

    def put(self, state: DrainState) -> None:
        """Write the progress of a drain; it replaces the progress that was written before."""
        ...
