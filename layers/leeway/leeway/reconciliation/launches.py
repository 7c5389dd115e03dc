"""What reconcile calls about launches of Leeway, as a Protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from leeway.instances.observed import ObservedInstance
from leeway.reasons import Reason
from leeway.reconciliation.ports import ClusterNodes
from leeway.reconciliation.report import HandledFinding


@dataclass(frozen=True, slots=True)
class LaunchCheck:
    """The result of a check of a cluster's launched instances. `findings` are instances whose
    admission or retirement was started; `problems` are those that a person has to look at."""

    findings: tuple[HandledFinding, ...] = ()
    problems: tuple[Reason, ...] = ()


class Launches(Protocol):
    """What Leeway's launches leave to be continued or removed."""

    def check_instances(self, cluster: str, instances: Sequence[ObservedInstance]) -> LaunchCheck:
        """Start the admissions of launched instances that have none or whose execution has died."""
        ...

    def check_nodes(
        self, cluster: str, instances: Sequence[ObservedInstance], nodes: ClusterNodes
    ) -> LaunchCheck:
        """Start the retirement of instances that have joined and whose Node was deleted.

        Raises:
            ClusterUnavailable, ClusterRefused: the Nodes were not read; nothing was started.
        """
        ...

    def delete_unused_templates(self, cluster: str) -> Sequence[str]:
        """Delete launch templates that no launch uses, at most once an hour; returns their
        names."""
        ...

    def paused_pools(self, cluster: str) -> Sequence[Reason]:
        """Read why pools of a cluster are paused."""
        ...
