"""The report of reconcile about one cluster."""

from collections.abc import Callable
from dataclasses import dataclass, field

from leeway.failures import describe_error
from leeway.reasons import Reason, ReasonCode
from leeway.reconciliation.clean_up import CleanUpOutcome


@dataclass(frozen=True, slots=True)
class HandledFinding:
    """A finding about an instance, and the work that reconcile did about it."""

    instance: str
    reason: Reason
    done: Reason


@dataclass(slots=True)
class ClusterReport:
    """One cluster after a run.

    - `instances`: the number of its instances, None if they were not listed.
    - `paused_pools`: why pools are paused. `deleted_templates`: names of launch templates.
    - `index_written`, `index_removed`: the number of changed items of the index.
    """

    cluster: str
    instances: int | None = None
    index_written: int = 0
    index_removed: int = 0
    findings: list[HandledFinding] = field(default_factory=list)
    clean_ups: list[CleanUpOutcome] = field(default_factory=list)
    paused_pools: list[Reason] = field(default_factory=list)
    deleted_templates: list[str] = field(default_factory=list)
    problems: list[Reason] = field(default_factory=list)

    def guard[T](self, problem: ReasonCode, work: Callable[[], T], **facts: object) -> T | None:
        """Call `work`; if it raises, add the `problem` with the error and its other facts, and
        return None. An unexpected error in one part stops neither the other parts nor the other
        clusters."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 (reported, counted, and raises an alarm)
            self.problems.append(problem(error=describe_error(error), **facts))
            return None
