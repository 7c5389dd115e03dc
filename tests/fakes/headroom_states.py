"""The stored statuses of headroom in memory. tests/aws/test_headroom.py is its contract."""

from dataclasses import replace

from leeway.headroom.status import HeadroomStatus, OriginalScale


class HeadroomStatesInMemory:
    """The HeadroomStates Protocol. `writes` counts calls of `write`."""

    def __init__(self) -> None:
        self._statuses: dict[tuple[str, str], HeadroomStatus] = {}
        self._originals: dict[tuple[str, str], OriginalScale] = {}
        self.writes = 0

    def statuses(self, cluster: str) -> dict[str, HeadroomStatus]:
        return {
            subject: replace(status, original=self._originals.get((name, subject)))
            for (name, subject), status in self._statuses.items()
            if name == cluster
        }

    def write(self, cluster: str, status: HeadroomStatus) -> None:
        self._statuses[cluster, status.subject] = status
        self.writes += 1

    def write_original(self, cluster: str, subject: str, original: OriginalScale) -> None:
        stored = self._originals.setdefault((cluster, subject), original)
        if stored.uid != original.uid:
            self._originals[cluster, subject] = original

    def delete(self, cluster: str, subject: str) -> None:
        self._statuses.pop((cluster, subject), None)
        self._originals.pop((cluster, subject), None)
