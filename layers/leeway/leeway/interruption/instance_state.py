"""Everything that the table stores about one instance.

Every function that receives or continues something imports it, so it imports no code that acts.
"""

from collections.abc import Collection
from dataclasses import dataclass

from leeway.admission.record import ADMISSION, Admission
from leeway.instances.facts import FACTS, InstanceFacts
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.table import Table, UnreadableRecord


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


def read_instance(table: Table, instance: str, clusters: Collection[str]) -> InstanceState:
    """Read everything about an instance of one of these clusters, by one consistent read. A notice
    names no cluster, and the table may have no facts yet.

    Raises:
        UnreadableRecord: its retirement cannot be parsed.
    """

    def report(error: UnreadableRecord) -> None:
        if RETIREMENT.parts(error.item.key) is not None:
            raise error

    keys = [{"cluster": cluster, "instance": instance} for cluster in sorted(clusters)]
    others = [(ADMISSION, key) for key in keys]
    found = table.get_many(
        RETIREMENT,
        keys,
        *others,
        (FACTS, {"instance": instance}),
        consistent=True,
        unreadable=report,
    )
    facts = next((one for one in found if isinstance(one, InstanceFacts)), None)
    # An instance whose tags were changed may have records in two clusters.
    here = [one for one in found if facts is None or one is facts or one.cluster == facts.cluster]
    return InstanceState(
        next((one for one in here if isinstance(one, Retirement)), None),
        facts,
        next((one for one in here if isinstance(one, Admission)), None),
    )
