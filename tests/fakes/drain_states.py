"""The table's progress of drains."""

from dataclasses import dataclass, field

from leeway.ports.aws import CloudUnavailable
from leeway.retirement.drain import DrainState


@dataclass
class DrainStatesInMemory:
    """The DrainStates Protocol. The first write is recorded and fails, as in a throttled table."""

    written: list[DrainState] = field(default_factory=list)

    def put(self, state: DrainState) -> None:
        self.written.append(state)
        if len(self.written) == 1:
            raise CloudUnavailable("ThrottlingException")
