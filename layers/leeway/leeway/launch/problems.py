"""The error of a pool from which nothing can be launched."""

from leeway.reasons import Reason


class NotLaunchable(Exception):
    """Nothing can be launched from a pool; `reason` names the manifest and the field to correct."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason
