"""Reason codes of notices: what Leeway does with a notice, and why."""

from leeway.reasons import ReasonCode

NOTICE_IGNORED = ReasonCode("NoticeIgnored", "The notice is ignored: {why}.")

INSTANCE_NOT_MANAGED = ReasonCode(
    "InstanceNotManaged", "The instance is in no cluster that Leeway manages: {why}."
)

OWNER_RETIRES_NODE = ReasonCode("OwnerRetiresNode", "{owner} drains and replaces its own nodes.")

RETIREMENT_SCHEDULED = ReasonCode(
    "RetirementScheduled", "The retirement begins at {time:%Y-%m-%d %H:%M} UTC."
)

ADMISSION_NEEDS_DEADLINE = ReasonCode(
    "AdmissionNeedsDeadline",
    "The policy sets no deadline for {kind} notices. An admission needs one: set it.",
    "admitnodefailuresalarm",
)

NOTICE_REJECTED = ReasonCode(
    "NoticeRejected", "The event could not be received: {error}.", "receivenoticefailuresalarm"
)
