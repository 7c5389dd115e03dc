"""Reason codes of headroom: why a size was chosen, and why a size could not be applied."""

from leeway.reasons import ReasonCode

_RUNBOOK = "headroom-is-not-applied"

SIZE_CHOSEN = ReasonCode("SizeChosen", "{why}.")

TARGET_PAUSED = ReasonCode("TargetPaused", "The ScaledObject is paused{effect}.")

TARGET_NOT_FOUND = ReasonCode(
    "TargetNotFound",
    "There is no {kind} {name} in namespace {namespace}. A manifest refers to objects in its own "
    "namespace only. Correct or delete the manifest.",
    _RUNBOOK,
)

SCALE_CONFLICT = ReasonCode(
    "ScaleConflict",
    "Conflict: {sources} scale the same object; none of them is applied. Delete all but one.",
    _RUNBOOK,
)

DEPLOYMENT_NOT_OWNED = ReasonCode(
    "DeploymentNotOwned",
    "Deployment {namespace}/{name} exists and was not created by Leeway. Rename the buffer or the "
    "Deployment.",
    _RUNBOOK,
)

BUFFER_WITHOUT_SIZE = ReasonCode(
    "BufferWithoutSize", "The CapacityBuffer has no size: {error}.", _RUNBOOK
)

RIGHT_MISSING = ReasonCode(
    "HeadroomRightMissing",
    "The API server refused the request: {error}. Grant the right in namespace {namespace} with "
    "this command: `{command}`.",
    _RUNBOOK,
)

OBJECT_REFUSED = ReasonCode(
    "HeadroomObjectRefused", "The API server refused the request: {error}.", _RUNBOOK
)

OBJECT_UNAVAILABLE = ReasonCode(
    "HeadroomObjectUnavailable",
    "The API server failed on this object: {error}. The next run retries it.",
    _RUNBOOK,
)

HEADROOM_NOT_RECONCILED = ReasonCode(
    "HeadroomNotReconciled",
    "The headroom of cluster {cluster} was not reconciled: {error}. The next run retries it.",
    _RUNBOOK,
)
