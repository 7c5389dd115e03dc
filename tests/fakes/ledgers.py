"""The table's disruption ledgers."""

from dataclasses import dataclass, field

from leeway.retirement.disruption_budget import DisruptionLedger
from leeway.table import RecordChanged


@dataclass
class LedgersInMemory:
    """The DisruptionLedgers Protocol."""

    ledgers: dict[str, DisruptionLedger] = field(default_factory=dict)

    def ledger(self, cluster: str) -> DisruptionLedger:
        return self.ledgers.get(cluster, DisruptionLedger(cluster=cluster))

    def write(self, ledger: DisruptionLedger) -> None:
        if ledger.version != self.ledger(ledger.cluster).version + 1:
            raise RecordChanged(ledger.cluster)
        self.ledgers[ledger.cluster] = ledger
