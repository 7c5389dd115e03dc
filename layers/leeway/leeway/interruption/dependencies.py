"""The ports that receiving a notice needs."""

from dataclasses import dataclass

from leeway.admission.ports import Admissions
from leeway.clock import Clock
from leeway.interruption.ports import InstanceRecords
from leeway.notices.synthetic import EventOrigin
from leeway.policy.ports import ClusterPolicies
from leeway.ports.aws import CurrentInstances, Instances, ScheduledChanges
from leeway.ports.functions import AdmitNode, CleanUp, RetireNode, Schedules
from leeway.ports.table import Claims, UnavailableOfferings


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The ports, and the scope: `clusters` are the clusters that Leeway manages, `origin` is the
    account and region of this function."""

    origin: EventOrigin
    clusters: frozenset[str]
    clock: Clock
    policies: ClusterPolicies
    records: InstanceRecords
    instances: Instances
    current: CurrentInstances
    changes: ScheduledChanges
    schedules: Schedules
    retire_node: RetireNode
    offerings: UnavailableOfferings
    admissions: Admissions
    admit_node: AdmitNode
    clean_up: CleanUp
    claims: Claims
