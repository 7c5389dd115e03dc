"""retirement.node_marks"""

from leeway.ports.kubernetes import Marks
from leeway.retirement.record import Retirement


def marks_of(record: Retirement) -> Marks:
    """Render what is put on the node. A deadline that begins to count later is not known yet."""
    known = record.begun_at is not None or not record.deadline_from_begin
    deadline = record.deadline.isoformat() if known and record.deadline else None
    return Marks(record.kind, record.attempt, deadline)
