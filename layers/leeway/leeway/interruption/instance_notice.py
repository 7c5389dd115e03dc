"""A notice about one instance, with everything that the decision about it needs."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leeway.admission.record import Admission
from leeway.instances.facts import InstanceFacts
from leeway.interruption.outcome import InstanceOutcome, NoticeResult
from leeway.notices import Notice
from leeway.policy.rules import ClusterPolicy, Policy
from leeway.reasons import Reason
from leeway.retirement.record import Retirement


@dataclass(frozen=True, slots=True)
class InstanceNotice:
    """A notice about one instance.

    - `event`: the EventBridge event that the notice was parsed from.
    - `retirement`, `admission`: the records of the instance, None if there are none.
    - `policy`: the policy for this kind of notice; `cluster_policy`: the policy of the cluster.
    """

    event: Mapping[str, Any]
    notice: Notice
    retirement: Retirement | None
    admission: Admission | None
    facts: InstanceFacts
    policy: Policy
    cluster_policy: ClusterPolicy

    @property
    def schedule_name(self) -> str:
        """The name of the schedule for the announced change, the same for every notice about it."""
        digest = hashlib.sha256(self.notice.event.encode()).hexdigest()[:16]
        return f"{self.facts.instance}-{digest}"

    def outcome(self, result: NoticeResult, reason: Reason, attempt: int = 0) -> InstanceOutcome:
        """Return the outcome of the notice for this instance."""
        return InstanceOutcome(result, reason, self.facts.instance, self.facts.cluster, attempt)
