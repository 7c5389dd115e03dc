"""The record of an adoption in the table: what adopt changed, and the process that works on it.

Each write replaces the version that this process has read or written, so of two processes only one
works on a cluster at a time.
"""

import getpass
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from leeway.table import Record, RecordChanged, Table
from pydantic import BaseModel, ConfigDict

from leeway_cli.adopt.changes import Change
from leeway_cli.errors import CannotBeDoneError

CLAIM_TIME = timedelta(seconds=60)
"""How long a process may go without a step. A process that was killed blocks the next one for this
time."""


def new_holder() -> str:
    """Return the name of this process as the holder of a claim: user, host, process, and a random
    part, since process ids repeat."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()} process {os.getpid()} {uuid4().hex[:8]}"


NEVER = datetime.min.replace(tzinfo=UTC)


class StoredAdoption(BaseModel):
    """The changes of adopt in order, and until when `holder` works on the cluster; empty: nobody
    does."""

    model_config = ConfigDict(frozen=True)

    cluster: str
    version: int = 0
    changes: tuple[Change, ...] = ()
    holder: str = ""
    until: datetime = NEVER


ADOPTION = Record(StoredAdoption, "ADOPTION#{cluster}", "ADOPTION", versioned=True)


@dataclass
class Adoption:
    """The record of one cluster, as this process has read or written it."""

    table: Table
    cluster: str
    now: Callable[[], datetime]
    holder: str = field(default_factory=new_holder)

    def __post_init__(self) -> None:
        self._stored = StoredAdoption(cluster=self.cluster)

    @property
    def changes(self) -> dict[str, Change]:
        """The changes, by the keys of their settings."""
        return {one.key: one for one in self._stored.changes}

    def read(self) -> None:
        """Read the changes without a claim, for a dry run."""
        found = self.table.get(ADOPTION, cluster=self.cluster)
        self._stored = found or StoredAdoption(cluster=self.cluster)

    def claim(self) -> None:
        """Claim the cluster and read its changes.

        Raises:
            CannotBeDoneError: another process works on the cluster.
        """
        self.read()
        free = self._stored.holder in ("", self.holder) or self._stored.until < self.now()
        if not free or not self._write(self._stored.changes):
            raise CannotBeDoneError(
                f"{self._stored.holder} works on cluster {self.cluster} until "
                f"{self._stored.until:%H:%M:%S} UTC. Run the command again after that time."
            )

    def record(self, changes: Sequence[Change]) -> None:
        """Write the changes and renew the claim. They are written before they are made, so that
        a killed process leaves a record of each change that it may have made.

        Raises:
            CannotBeDoneError: the claim has expired, and another process has taken it.
        """
        # A write that failed has read the record of the other process: it is not replaced.
        if self._stored.holder != self.holder or not self._write(tuple(changes)):
            raise CannotBeDoneError(
                f"Another process has taken over cluster {self.cluster}, since a step took too "
                "long. Run the command again."
            )

    def leave(self) -> None:
        """Give up the claim. A record without changes is deleted."""
        stored = self._stored
        if stored.holder != self.holder:
            return  # another process has the claim
        try:
            if stored.changes:
                self.table.put(
                    ADOPTION,
                    stored.model_copy(update={"version": stored.version + 1, "holder": ""}),
                )
            else:
                self.table.delete(ADOPTION, replaces=stored.version, cluster=self.cluster)
        except RecordChanged:
            return  # another process has taken the claim after it expired

    def _write(self, changes: tuple[Change, ...]) -> bool:
        """Write the record with a new claim; False if another process has written it."""
        until = (self.now() + CLAIM_TIME).replace(microsecond=0)
        version = self._stored.version + 1
        written = StoredAdoption(
            cluster=self.cluster, version=version, changes=changes, holder=self.holder, until=until
        )
        try:
            self.table.put(ADOPTION, written)
        except RecordChanged:
            self.read()  # a call that was repeated after a lost answer finds its own write
            return self._stored == written
        self._stored = written
        return True
