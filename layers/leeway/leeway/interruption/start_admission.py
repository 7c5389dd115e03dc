"""Applies notices of launch hooks to admission records, and starts admit_node."""

from leeway.admission.ports import Admissions
from leeway.admission.record import apply_request, request_from_notice
from leeway.interruption.instance_notice import InstanceNotice
from leeway.interruption.outcome import InstanceOutcome, NoticeResult
from leeway.interruption.reasons import (
    ADMISSION_NEEDS_DEADLINE,
    ADMISSION_NOT_STARTED,
    HOOK_OF_EKS,
)
from leeway.lifecycle_hooks.held_hooks import EKS_HOOKS
from leeway.policy.rules import rule
from leeway.ports.functions import AdmitNode


class StartAdmission:
    """Starts admissions."""

    def __init__(self, admissions: Admissions, admit_node: AdmitNode) -> None:
        self._admissions = admissions
        self._admit_node = admit_node

    def admit(self, about: InstanceNotice) -> InstanceOutcome:
        """Begin an admission or a new attempt, if the stored admission does not cover the notice.

        In dry-run mode no admission starts, and the client that answers the hook today answers it.

        Raises:
            RecordChanged: another writer changed the record.
            CloudUnavailable, CloudRefused: the table or Lambda failed.
        """
        notice, ruling = about.notice, rule(about.notice, about.policy)
        if notice.hook is not None and notice.hook.name in EKS_HOOKS:
            return about.outcome(NoticeResult.IGNORED, HOOK_OF_EKS(hook=notice.hook.name))
        if about.cluster_policy.dry_run:
            reason = ADMISSION_NOT_STARTED().and_then(ruling.reason)
            return about.outcome(NoticeResult.IGNORED, reason)
        if ruling.deadline is None:
            reason = ADMISSION_NEEDS_DEADLINE(kind=notice.kind)
            return about.outcome(NoticeResult.IGNORED, reason)
        request = request_from_notice(notice, ruling.deadline, ruling.reason)
        change = apply_request(about.admission, request, about.facts)
        record = change.record
        if change.write:
            self._admissions.write(record)
        if change.start:
            self._admit_node.start(record.instance, record.facts.cluster, record.attempt)
        result = NoticeResult.STARTED if change.start else NoticeResult.KNOWN
        return about.outcome(result, change.reason, record.attempt)
