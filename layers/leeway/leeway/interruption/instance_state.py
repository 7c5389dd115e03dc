"""Everything that the table stores about one instance.

The adapter of the records imports it in every function, so it imports no code that acts.
"""

from dataclasses import dataclass

from leeway.admission.record import Admission
from leeway.instances.facts import InstanceFacts
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
