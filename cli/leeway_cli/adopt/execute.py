"""Makes changes one by one: records each, makes it, and reads it back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leeway_cli.adopt.adoptions import Adoption
from leeway_cli.adopt.services import Services
from leeway_cli.cluster_setup.difference import Change
from leeway_cli.cluster_setup.settings import Setting
from leeway_cli.cluster_setup.undo import recorded_change
from leeway_cli.errors import CannotBeDoneError

READ_BACK_TRIES = 30
READ_BACK_SECONDS = 1.0
"""Between two tries."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Makes the changes of one cluster. `say` prints a line about each; `sleep` waits for seconds,
    and keeps the claim meanwhile."""

    services: Services
    adoption: Adoption
    say: Callable[[str], None]
    sleep: Callable[[float], None]

    def adopt(self, changes: Sequence[Change]) -> None:
        """Make the changes. Each is recorded before it is made, so that release undoes it even if
        this process is killed in between.

        Raises:
            CannotBeDoneError: a change failed; those before it are made.
        """
        for number, change in enumerate(changes, 1):
            recorded = self.adoption.changes
            own = recorded_change(recorded.get(change.key), change)
            self.adoption.record([*{**recorded, change.key: own}.values()])
            self._make(change, number, len(changes))

    def release(self, changes: Sequence[Change]) -> None:
        """Make the changes that undo an adoption. Each is removed from the record after it is made.

        Raises:
            CannotBeDoneError: a change failed; those before it are made.
        """
        for number, change in enumerate(changes, 1):
            self._make(change, number, len(changes))
            self.forget(change.key)

    def forget(self, key: str) -> None:
        """Remove a setting from the record, and renew the claim."""
        self.adoption.record([one for one in self.adoption.changes.values() if one.key != key])

    def _make(self, change: Change, number: int, steps: int) -> None:
        action = "removed" if change.after is None else "written"
        try:
            self.services.write(change)
            found = self._read_back(change)
        except CannotBeDoneError as error:
            raise CannotBeDoneError(
                f"Step {number} of {steps}, {change.title}: {error}", error.details
            ) from error
        if found != change.after:
            raise CannotBeDoneError(
                f"Cluster {self.services.cluster}: {change.title} is not as step {number} of "
                f"{steps} wrote it. Somebody else writes it at the same time. Run the command "
                "again."
            )
        self.say(f"[{number}/{steps}] {change.title}: {action}, read back")

    def _read_back(self, change: Change) -> Setting | None:
        """Read the setting until it is as it was written, for at most READ_BACK_TRIES: reads of AWS
        are eventually consistent, and a namespace needs seconds to end."""
        for _ in range(READ_BACK_TRIES):
            found = self.services.read([change.setting]).get(change.key)
            if found == change.after:
                break
            self.sleep(READ_BACK_SECONDS)
        return found
