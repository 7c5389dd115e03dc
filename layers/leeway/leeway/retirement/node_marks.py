"""The marks that a retirement puts on its node."""

from leeway.ports.kubernetes import Marks
from leeway.retirement.record import Retirement


def marks_of(record: Retirement) -> Marks:
    """Return the marks of a retirement. A deadline that counts from the begin of the drain is left
    out until then."""
    known = record.drain_began_at is not None or not record.deadline_from_begin
    deadline = record.deadline.isoformat() if known and record.deadline else None
    return Marks(record.kind, record.attempt, deadline)
