"""Use case: admit a new node: wait until it joins, is Ready and offers its devices, then answer
its launch hook. An instance that Leeway launched and that never joins is terminated."""

from collections.abc import Callable
from functools import partial

from leeway.admission.check_node import CheckNode
from leeway.admission.end_unjoined import EndUnjoined
from leeway.admission.finish import ANSWERS, FinishAdmission
from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.pool_results import PoolResults
from leeway.admission.ports import Admissions, LaunchedInstances, Telemetry
from leeway.admission.readiness import AdmissionResult
from leeway.admission.reports import AdmissionReports
from leeway.admission.step_results import FinishResult, NodeCheck, UnjoinedResult
from leeway.clock import Clock
from leeway.execution.attempt import AttemptId
from leeway.execution.steps import Steps
from leeway.pool_pauses import PoolRecords
from leeway.ports.aws import Groups, InstanceTypes, LeewayEvents
from leeway.ports.kubernetes import Cluster
from leeway.retirement.hooks import LifecycleActions


class AdmitNode:
    """Admits instances. `open_cluster` returns a client for the API server of a cluster."""

    def __init__(
        self,
        admissions: Admissions,
        groups: Groups,
        types: InstanceTypes,
        instances: LaunchedInstances,
        pools: PoolRecords,
        leeway_events: LeewayEvents,
        open_cluster: Callable[[str], Cluster],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        results = PoolResults(pools, clock)
        self._actions = LifecycleActions(groups, clock)
        self._check = CheckNode(admissions, types, open_cluster, results, self._actions, clock)
        self._end_unjoined = EndUnjoined(self._check, instances, open_cluster, results)
        self._finish = FinishAdmission(admissions, self._check, results, self._actions, clock)
        self._reports = AdmissionReports(leeway_events, open_cluster, telemetry)

    def admit(self, attempt: AttemptId, steps: Steps) -> AdmissionOutcome | None:
        """Run one attempt of an admission; None if a newer attempt has superseded it.

        The engine may run every step again from its start: a step reads the current state and
        does only the work that is still to do.
        """
        check, finished, number = NodeCheck(None), FinishResult(None, check_again=True), 0
        while finished.check_again:
            if number:
                steps.wait(f"wait-{number}", check.wait_seconds)
            work = partial(self._check.run, attempt, check)
            check = steps.run(f"check-{number}", NodeCheck, work)
            if check.record is None:
                return None
            if check.verdict is not None:
                unjoined = self._unjoined(attempt, check, steps, number)
                if not unjoined.check_again:
                    finish = partial(self._finish.run, attempt, check, unjoined.verdict)
                    finished = steps.run(f"finish-{number}", FinishResult, finish)
            number += 1
        self._reports.report_pause(finished.paused, steps)
        if finished.outcome is not None:
            self._report(finished.outcome, finished, steps)
        return finished.outcome

    def _unjoined(
        self, attempt: AttemptId, check: NodeCheck, steps: Steps, number: int
    ) -> UnjoinedResult:
        """End a launched instance whose node has not joined in time, and report the pause that this
        leads to."""
        record, verdict = check.record, check.verdict
        late = verdict is not None and verdict.result is AdmissionResult.NOT_READY
        if not late or record is None or record.launch is None or check.joined_at is not None:
            return UnjoinedResult()
        end = partial(self._end_unjoined.run, attempt, check)
        result = steps.run(f"end-{number}", UnjoinedResult, end)
        self._reports.report_pause(result.paused, steps)
        return result

    def _report(self, outcome: AdmissionOutcome, finished: FinishResult, steps: Steps) -> None:
        """Report the outcome, then retry the answers that Auto Scaling refused."""
        self._reports.report(outcome, finished.node_uid, steps)
        if answer := ANSWERS.get(outcome.result):
            self._actions.retry_refused(outcome.instance, finished.answers, answer, steps)
