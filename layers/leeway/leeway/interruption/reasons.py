"""Reason codes of notices: what Leeway does with a notice, and why."""

from leeway.reasons import ReasonCode

EVENT_REPLAYED = ReasonCode(
    "EventReplayed", "The replay {replay} of an EventBridge archive sent the event again."
)

OTHER_ACCOUNT_OR_REGION = ReasonCode(
    "OtherAccountOrRegion",
    "The event is from account {account} in {region}; this function is in account {own_account} in "
    "{own_region}.",
)

RESERVATION_EMPTY = ReasonCode(
    "ReservationEmpty", "No instance runs in capacity reservation {reservation}."
)

NO_RETIREMENT_TO_UNDO = ReasonCode(
    "NoRetirementToUndo", "The instance runs and has never been retired."
)

INSTANCE_NOT_IN_A_CLUSTER = ReasonCode(
    "InstanceNotInCluster",
    "EC2 has no such instance, or its tags name no cluster, or they name several clusters.",
)

CLUSTER_NOT_MANAGED = ReasonCode(
    "ClusterNotManaged",
    "Leeway does not manage cluster {cluster}: the parameter ClusterNames does not name it.",
)

OWNER_RETIRES_NODE = ReasonCode("OwnerRetiresNode", "{owner} drains and replaces its own nodes.")

NOTICE_OUTDATED = ReasonCode(
    "NoticeOutdated", "The notice is late and does not apply any more: {why}."
)

ANNOUNCEMENT_WITHDRAWN = ReasonCode(
    "AnnouncementWithdrawn",
    "The announced event is cancelled or over, and there is no retirement to undo.",
)

RETIREMENT_SCHEDULED = ReasonCode(
    "RetirementScheduled", "The retirement begins at {time:%Y-%m-%d %H:%M} UTC."
)

HOOK_OF_EKS = ReasonCode("HookOfEks", "EKS answers lifecycle hook {hook} itself.")

ADMISSION_NOT_STARTED = ReasonCode(
    "AdmissionNotStarted", "The cluster is in dry-run mode: no admission starts."
)

ADMISSION_NEEDS_DEADLINE = ReasonCode(
    "AdmissionNeedsDeadline",
    "The policy sets no deadline for {kind} notices. An admission needs one: set it.",
    "admitnodefailuresalarm",
)

NOTICE_REJECTED = ReasonCode(
    "NoticeRejected", "The event could not be received: {error}.", "receivenoticefailuresalarm"
)
