"""The report of reconcile about one cluster, its log lines and its metrics."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from leeway.costs import NodeCount, Returned
from leeway.reasons import Reason, ReasonCode, counted
from leeway.reconciliation.clean_up import CleanUpOutcome
from leeway.telemetry import Telemetry, describe_error

RECONCILE_INCOMPLETE = ReasonCode(
    "ReconcileIncomplete",
    "Reconcile could not {what}: {error}. The next run retries it.",
    "clusterproblemsalarm",
)


MOST_INVALID = 20
"""Invalid manifests that a run logs. Tenants write them: they neither fill the log nor wake anybody
at night."""


@dataclass(frozen=True, slots=True)
class HandledFinding:
    """A finding about an instance, and the work that reconcile did about it."""

    instance: str
    reason: Reason
    done: str


@dataclass(frozen=True, slots=True)
class LaunchCheck:
    """The result of a check of a cluster's launched instances. `findings` are instances whose
    admission or retirement was started; `problems` are those that a person has to look at."""

    findings: tuple[HandledFinding, ...] = ()
    problems: tuple[Reason, ...] = ()


@dataclass(slots=True)
class ClusterReport:
    """One cluster after a run.

    - `instances`: the number of its instances, None if they were not listed.
    - `begun`: instances whose planned replacement was started.
    - `paused_pools`: why pools and rolls of groups are paused.
    - `deleted_templates`: names of launch templates.
    - `surges`: workloads whose size was restored.
    - `invalid_manifests`: those of its API server, which its users correct.
    - `index_written`, `index_removed`: the number of changed items of the index.
    - `counts`: the running nodes by owner, once in a quarter of an hour. `returned`: what was given
      back in the last minutes, by cause.
    """

    cluster: str
    instances: int | None = None
    index_written: int = 0
    index_removed: int = 0
    counts: Sequence[NodeCount] = ()
    returned: Mapping[str, Returned] = field(default_factory=dict)
    findings: list[HandledFinding] = field(default_factory=list)
    begun: list[HandledFinding] = field(default_factory=list)
    clean_ups: list[CleanUpOutcome] = field(default_factory=list)
    paused_pools: list[Reason] = field(default_factory=list)
    deleted_templates: list[str] = field(default_factory=list)
    surges: list[Reason] = field(default_factory=list)
    problems: list[Reason] = field(default_factory=list)
    invalid_manifests: list[Reason] = field(default_factory=list)

    def add(self, check: LaunchCheck) -> None:
        """Add what a check of launched instances found."""
        self.findings.extend(check.findings)
        self.problems.extend(check.problems)

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """If the block raises, add the problem that reconcile could not do this. An unexpected
        error in one part stops neither the other parts nor the other clusters."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (reported, counted, and raises an alarm)
            self.problems.append(RECONCILE_INCOMPLETE(what=what, error=describe_error(error)))


@dataclass(frozen=True, slots=True)
class ReconciliationTelemetry(Telemetry):
    """Logs and counts the results of reconcile."""

    def reconciled(self, reports: Iterable[ClusterReport], *, all_clusters: bool) -> None:
        """Log a line for each finding, clean-up and problem of a run, and count them. Only a run of
        `all_clusters` counts findings and paused pools."""
        problems = findings = paused = 0
        invalid: list[tuple[str, Reason]] = []
        for report in reports:
            self._log(report)
            invalid += ((report.cluster, one) for one in report.invalid_manifests)
            problems += len(report.problems)
            findings += len(report.findings)
            paused += len(report.paused_pools)
        for cluster, one in invalid[:MOST_INVALID]:
            self.logger.warning(one.message, extra={"cluster": cluster, "code": one.code})
        if len(invalid) > MOST_INVALID:
            further = counted(len(invalid) - MOST_INVALID, "further manifest")
            self.logger.warning(f"Leeway can't read {further}.")
        self.count("ClusterProblems", problems)
        if all_clusters:
            self.count("LaunchProblems", paused)
            self.count("MinorProblems", findings + len(invalid))

    def _log(self, report: ClusterReport) -> None:
        cluster = {"cluster": report.cluster}
        for log, handled in (
            (self.logger.warning, report.findings),
            (self.logger.info, report.begun),
        ):
            for found in handled:
                about = {"code": found.reason.code, "instance": found.instance, "done": found.done}
                log(found.reason.message, extra={**cluster, **about})
        for outcome in report.clean_ups:
            self.logger.info(
                outcome.reason,
                extra={
                    **cluster,
                    "instance": outcome.instance,
                    "result": outcome.result,
                    "node": outcome.node,
                    "detached": list(outcome.detached),
                },
            )
        for one in report.counts:
            cost = f"{counted(one.nodes, 'node')} for {one.usd_per_hour:.4f} USD per hour"
            if one.nodes and not one.usd_per_hour:
                cost = f"{counted(one.nodes, 'node')} of unknown price"
            types = ", ".join(f"{count} {name}" for name, count in one.types.items())
            about = {**cluster, **asdict(one), "types": types}
            self.logger.info(f"{one.owner} has {cost}.", extra=about)
        for cause, given in report.returned.items():
            nodes, usd = counted(given.nodes, "node"), given.usd_per_hour
            given_back = {"cause": cause, "given_back": given.nodes, "saved_usd_per_hour": usd}
            text = f"{cause}: Leeway gave back {nodes} of {usd:.4f} USD per hour."
            self.logger.info(text, extra={**cluster, **given_back})
        if report.deleted_templates:
            names = ", ".join(report.deleted_templates)
            text = f"Leeway deleted launch templates that no launch uses: {names}."
            self.logger.info(text, extra=cluster)
        for restored in report.surges:
            self.logger.info(restored.message, extra={**cluster, "code": restored.code})
        for problem in report.problems:
            self.logger.error(problem.message, extra={**cluster, "code": problem.code})
