"""What receiving a notice reads from the table, as Protocols."""

from dataclasses import dataclass
from typing import Protocol

from leeway.admission.record import Admission
from leeway.instances.facts import InstanceFacts
from leeway.retirement.ports import Records
from leeway.retirement.record import Retirement


@dataclass(frozen=True, slots=True)
class InstanceState:
    """All that the table holds about one instance: its retirement, its admission, and `facts` of
    the index, which are at most some minutes old. None where it holds none, which says nothing
    about the instance. An admission or facts that nobody can make sense of are as good as none.
    """

    retirement: Retirement | None = None
    facts: InstanceFacts | None = None
    arrival: Admission | None = None


class InstanceRecords(Records, Protocol):
    """The table's retirement records, read together with all else about an instance."""

    def known(self, instance: str) -> InstanceState:
        """Read everything about an instance, consistently and in one call."""
        ...
