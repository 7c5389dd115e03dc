"""Log lines and EMF metrics, with powertools."""

from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

# Only their shape matters here: what one function tells of, the others need not import.
if TYPE_CHECKING:
    from collections.abc import Iterable

    from leeway.admission.outcome import Welcome
    from leeway.catalog.refresh import Surveyed
    from leeway.headroom.keep_headroom import HeadroomReport
    from leeway.interruption.receive_notice import Receipt
    from leeway.reconciliation.reconcile import ClusterReport
    from leeway.retire_node.outcome import Outcome
    from leeway.retirement.record import Retirement


class PowertoolsTelemetry:
    """Writes structured lines and EMF metrics to stdout, from where Lambda takes them."""

    def __init__(self, logger: Logger, metrics: Metrics) -> None:
        self._logger = logger
        self._metrics = metrics

    def received(self, receipt: "Receipt") -> None:
        """Log what became of a notice, a line for each of its instances, and count it."""
        notice = receipt.notice
        for one in receipt.instances:
            self._logger.info(
                one.reason,
                extra={
                    "notice": notice.id,
                    "kind": notice.kind,
                    "result": one.result,
                    "instance": one.instance,
                    "cluster": one.cluster,
                    "generation": one.generation,
                },
            )
            self._metrics.add_dimension("Kind", notice.kind)
            self._metrics.add_dimension("Result", one.result)
            self._metrics.add_metric("NoticesReceived", MetricUnit.Count, 1)
            self._metrics.flush_metrics()

    def rejected(self, event: object, error: Exception) -> None:
        """Log an event that is not a notice, or that could not be seen to, under its own id."""
        said = event if isinstance(event, dict) else {}
        self._logger.error(
            str(error),
            extra={
                "result": type(error).__name__,
                "notice": str(said.get("id", ""))[:64],
                "detail_type": str(said.get("detail-type", ""))[:128],
            },
        )

    def misconfigured(self, cluster: str, manifest: str, problem: str) -> None:
        """Log that something users wrote could not be read, or not all of it. What lasts is counted
        once a minute, with the cluster's headroom."""
        self._logger.error(problem, extra={"cluster": cluster, "manifest": manifest})

    def executing(self, execution: str) -> None:
        """Name the durable execution in every line from now on."""
        self._logger.append_keys(execution=execution)

    def waiting(self, record: "Retirement", reason: str) -> None:
        """Log that a retirement waits for its turn."""
        self._logger.info(
            f"{record.kind}: {record.instance} waits for its turn: {reason}",
            extra={
                "kind": record.kind,
                "instance": record.instance,
                "cluster": record.facts.cluster,
                "generation": record.generation,
            },
        )

    def retired(self, outcome: "Outcome") -> None:
        """Log and measure a retirement that has ended."""
        level = self._logger.warning if outcome.troubled else self._logger.info
        level(
            outcome.sentence,
            extra={
                "result": outcome.result,
                "kind": outcome.kind,
                "instance": outcome.instance,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "generation": outcome.generation,
                "replacement": outcome.replacement,
                "replacement_reason": outcome.replacement_reason,
                "hooks": list(outcome.hooks),
                "terminated": outcome.terminated,
                "left_behind": [f"{p.pod}: {p.reason}" for p in outcome.failed],
            },
        )
        self._metrics.add_dimension("Cluster", outcome.cluster)
        self._metrics.add_dimension("Kind", outcome.kind)
        if outcome.retired:
            self._count_retired(outcome)
        else:
            self._metrics.add_dimension("Result", outcome.result)
            self._metrics.add_metric("NodesNotRetired", MetricUnit.Count, 1)
        self._metrics.flush_metrics()
        if outcome.troubled:
            # By no cluster, so that one alarm sees all of them.
            self._metrics.add_metric("RetirementProblems", MetricUnit.Count, 1)
            never = int(outcome.never_cordoned)
            self._metrics.add_metric("NodesNotCordoned", MetricUnit.Count, never)
            self._metrics.flush_metrics()

    def _count_retired(self, outcome: "Outcome") -> None:
        self._metrics.add_metric("NodesRetired", MetricUnit.Count, 1)
        self._metrics.add_metric("PodsEvicted", MetricUnit.Count, outcome.evicted)
        if outcome.deleted:
            self._metrics.add_metric("PodsDeletedPastBudget", MetricUnit.Count, outcome.deleted)
        if outcome.failed:
            self._metrics.add_metric("PodsLeftBehind", MetricUnit.Count, len(outcome.failed))
        if outcome.seconds_to_cordon is not None:
            self._metrics.add_metric(
                "TimeToCordon", MetricUnit.Seconds, max(0.0, outcome.seconds_to_cordon)
            )
        if outcome.seconds_to_end is not None:
            self._metrics.add_metric(
                "TimeToRetire", MetricUnit.Seconds, max(0.0, outcome.seconds_to_end)
            )

    def admitted(self, outcome: "Welcome") -> None:
        """Log and measure an admission that has ended."""
        level = self._logger.warning if outcome.troubled else self._logger.info
        level(
            outcome.sentence,
            extra={
                "result": outcome.result,
                "instance": outcome.instance,
                "cluster": outcome.cluster,
                "node": outcome.node,
                "generation": outcome.generation,
                "hooks": list(outcome.hooks),
            },
        )
        self._metrics.add_dimension("Cluster", outcome.cluster)
        self._metrics.add_dimension("Result", outcome.result)
        self._metrics.add_metric("NodesAdmitted", MetricUnit.Count, 1)
        self._metrics.add_metric(
            "TimeToAdmit", MetricUnit.Seconds, max(0.0, outcome.seconds_to_end)
        )
        self._metrics.flush_metrics()
        if outcome.troubled:
            self._metrics.add_metric("AdmissionProblems", MetricUnit.Count, 1)
            self._metrics.flush_metrics()

    def reconciled(self, reports: "Iterable[ClusterReport]", *, of_all: bool) -> None:
        """Log what a run found, a line for each finding and each problem, and count them. Only one
        `of_all` clusters counts what was found: where there is no count, none has come to its end.
        """
        problems = found_in_all = 0
        for report in reports:
            here = {"cluster": report.cluster}
            for found in report.found:
                said = {**here, "instance": found.instance, "done": found.done}
                self._logger.warning(found.reason, extra=said)
            for cleaned in report.cleaned:
                self._logger.info(
                    cleaned.reason,
                    extra={
                        **here,
                        "instance": cleaned.instance,
                        "result": cleaned.result,
                        "node": cleaned.node,
                        "freed": list(cleaned.freed),
                    },
                )
            for problem in report.problems:
                self._logger.error(problem, extra=here)
            problems += len(report.problems)
            found_in_all += len(report.found)
            if report.instances is not None:
                self._metrics.add_dimension("Cluster", report.cluster)
                self._metrics.add_metric("Instances", MetricUnit.Count, report.instances)
                self._metrics.flush_metrics()
        # By no cluster, so that one alarm sees all of them. CloudWatch charges for each metric of
        # each cluster, and the lines above name the clusters.
        if of_all:
            self._metrics.add_metric("NoticesFound", MetricUnit.Count, found_in_all)
        self._metrics.add_metric("ReconcileProblems", MetricUnit.Count, problems)
        self._metrics.flush_metrics()

    def not_told(self, outcome: "Outcome | Welcome", problem: str) -> None:
        """Log that somebody did not take the news of a retirement or an admission."""
        self._logger.warning(
            problem,
            extra={
                "cluster": outcome.cluster,
                "node": outcome.node,
                "instance": outcome.instance,
                "generation": outcome.generation,
            },
        )

    def headroom_kept(self, report: "HeadroomReport") -> None:
        """Log what changed about a cluster's headroom and what is wrong with it, and measure it."""
        about = {"cluster": report.cluster, "dry_run": report.dry_run}
        if report.problem:
            self._logger.error(report.problem, extra=about)
        for kept in report.changed:
            if not kept.problem:
                told = {"subject": kept.subject, "source": kept.source, "replicas": kept.replicas}
                self._logger.info(kept.reason, extra={**about, **told})
        for kept in report.problems:
            told = {"subject": kept.subject, "source": kept.source}
            self._logger.warning(kept.problem, extra={**about, **told})
        # A cluster without headroom says nothing: CloudWatch charges for each metric of each.
        if report.replicas or report.changed:
            self._metrics.add_dimension("Cluster", report.cluster)
            self._metrics.add_metric("HeadroomReplicas", MetricUnit.Count, report.replicas)
            self._metrics.flush_metrics()
        troubles = len(report.problems) + bool(report.problem)
        if troubles or report.faulty:
            # By no cluster, so that one alarm sees all of them.
            self._metrics.add_metric("HeadroomProblems", MetricUnit.Count, troubles)
            self._metrics.add_metric("ManifestProblems", MetricUnit.Count, report.faulty)
            self._metrics.flush_metrics()

    def surveyed(self, outcome: "Surveyed") -> None:
        """Log and measure what became of a region's survey, and what of it is not of today."""
        about = {"region": outcome.region}
        self._logger.info(f"surveyed {outcome.region}", extra=outcome.to_dict())
        for kept in outcome.kept:
            since = kept.read_at.isoformat() if kept.read_at else "never"
            said = f"{kept.part} could not be read and are those of {since}: {kept.problem}"
            self._logger.warning(said, extra={**about, "part": kept.part})
        sizes = {part.part.value: part.size for part in outcome.parts}
        self._metrics.add_metric("InstanceTypes", MetricUnit.Count, sizes["types"])
        self._metrics.add_metric("CatalogProblems", MetricUnit.Count, len(outcome.kept))
        self._metrics.add_metric("CatalogSize", MetricUnit.Bytes, outcome.size)
        self._metrics.flush_metrics()
