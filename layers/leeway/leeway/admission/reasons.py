"""Reason codes of admissions: how a request changes the admission record."""

from leeway.reasons import ReasonCode

FIRST_REQUEST = ReasonCode(
    "FirstRequest", "The request starts the first admission of the instance."
)
REQUEST_REPEATED = ReasonCode("RequestRepeated", "The request was received before.")
ADMISSION_START_REPEATED = ReasonCode(
    "AdmissionStartRepeated",
    "The request was received before; admit_node is started again in case the start was lost.",
)
REQUEST_OUTDATED = ReasonCode(
    "RequestOutdated", "The request is older than the last admission of the instance."
)
PREVIOUS_ADMISSION_ENDED = ReasonCode(
    "PreviousAdmissionEnded", "The previous admission of the instance has ended."
)
ADMISSION_EXECUTION_DIED = ReasonCode(
    "AdmissionExecutionDied",
    "The previous admission should have ended by {time:%Y-%m-%d %H:%M} UTC: its execution is "
    "treated as dead.",
    "admitnodefailuresalarm",
)
INSTANCE_LEAVES_POOL = ReasonCode(
    "InstanceLeavesPool", "The instance leaves the warm pool of its group."
)
ADMISSION_EXISTS = ReasonCode(
    "AdmissionExists", "The admission of the instance already covers this request."
)
HOOK_ADDED = ReasonCode(
    "HookAdded", "Another lifecycle hook waits for the admission of the instance."
)
