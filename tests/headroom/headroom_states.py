"""What is remembered of headroom, in memory: passes the same contract tests as the table does."""

from dataclasses import replace

from leeway.headroom.status import HeadroomStatus, Original


class HeadroomInMemory:
    """The HeadroomStates Protocol. `writes` counts them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], HeadroomStatus] = {}
        self._originals: dict[tuple[str, str], Original] = {}
        self.writes = 0

    def of(self, cluster: str) -> dict[str, HeadroomStatus]:
        return {
            subject: replace(kept, original=self._originals.get((name, subject)))
            for (name, subject), kept in self._kept.items()
            if name == cluster
        }

    def write(self, cluster: str, kept: HeadroomStatus) -> None:
        self._kept[cluster, kept.subject] = kept
        self.writes += 1

    def remember_original(self, cluster: str, subject: str, original: Original) -> None:
        known = self._originals.setdefault((cluster, subject), original)
        if known.uid != original.uid:
            self._originals[cluster, subject] = original

    def forget(self, cluster: str, subject: str) -> None:
        self._kept.pop((cluster, subject), None)
        self._originals.pop((cluster, subject), None)
