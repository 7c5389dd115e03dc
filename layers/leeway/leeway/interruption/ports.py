"""The records of an instance that receive_notice reads, as Protocols."""

from dataclasses import dataclass
from typing import Protocol

from leeway.admission.record import Admission
from leeway.instances.facts import InstanceFacts
from leeway.retirement.ports import Records
from leeway.retirement.record import Retirement


@dataclass(frozen=True, slots=True)
class InstanceState:
    """Everything that the table stores about one instance.

    `facts` come from the index and are at most some minutes old. A part is None if the table does
    not have it, which says nothing about the instance. An admission or facts that cannot be parsed
    count as missing.
    """

    retirement: Retirement | None = None
    facts: InstanceFacts | None = None
    admission: Admission | None = None


class InstanceRecords(Records, Protocol):
    """The retirement records, read together with everything else about an instance."""

    def known(self, instance: str) -> InstanceState:
        """Read everything about an instance in one call, with a consistent read."""
        ...
