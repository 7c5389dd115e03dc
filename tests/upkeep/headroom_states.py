"""What is remembered of headroom, in memory: passes the same contract tests as the table does."""

from leeway.headroom.kept import Kept


class HeadroomInMemory:
    """The HeadroomStates Protocol. `writes` counts them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Kept] = {}
        self.writes = 0

    def of(self, cluster: str) -> dict[str, Kept]:
        return {subject: kept for (name, subject), kept in self._kept.items() if name == cluster}

    def write(self, cluster: str, kept: Kept) -> None:
        self._kept[cluster, kept.subject] = kept
        self.writes += 1

    def forget(self, cluster: str, subject: str) -> None:
        self._kept.pop((cluster, subject), None)
