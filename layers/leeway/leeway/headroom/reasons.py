"""Reason codes of headroom: why a size was chosen, and why a size could not be applied."""

from leeway.reasons import ReasonCode

_RUNBOOK = "headroom-is-not-applied"

FIXED_SIZE = ReasonCode("FixedSize", "The manifest sets a fixed size.")

WINDOW_OPEN = ReasonCode("WindowOpen", "The window from '{start}' to '{end}' is open.")

WINDOW_SIZE_LIMITED = ReasonCode(
    "WindowSizeLimited",
    "The window from '{start}' to '{end}' is open; the {bound} replaces its size of {replicas}.",
)

NO_WINDOW_OPEN = ReasonCode("NoWindowOpen", "No window is open: the {bound} applies.")

REQUESTED_AHEAD = ReasonCode(
    "RequestedAhead",
    "This size applies from {time} UTC on. Leeway requests it ahead, so that its nodes join in "
    "time. {reason}",
)

PROPORTIONAL_SIZE = ReasonCode("ProportionalSize", "One replica for each {each} {unit}.")

PROPORTIONAL_SIZE_LIMITED = ReasonCode(
    "ProportionalSizeLimited",
    "One replica for each {each} {unit} results in {replicas}; the {bound} applies.",
)

NO_PROPORTION = ReasonCode("NoProportion", "The manifest sets no proportion.")

LADDER_STEP = ReasonCode(
    "LadderStep", "The cluster has {size} {unit}, which reaches the step of {step}."
)

BELOW_LADDER = ReasonCode(
    "BelowLadder", "The cluster has {size} {unit}, which is below the first step."
)

SHARE_OF_REPLICAS = ReasonCode("ShareOfReplicas", "{percentage}% of {replicas} replicas.")

SIZE_OF_LIMITS = ReasonCode("SizeOfLimits", "As many pods as the limits of the buffer allow.")

LIMITED_SIZE = ReasonCode(
    "LimitedSize", "The limits of the buffer allow {allowed} pods of {wanted}."
)

TARGET_PAUSED = ReasonCode("TargetPaused", "The ScaledObject is paused: its target is not scaled.")

TARGET_PAUSED_AT_SIZE = ReasonCode("TargetPausedAtSize", "The ScaledObject is paused at this size.")

TARGET_NOT_FOUND = ReasonCode(
    "TargetNotFound",
    "There is no {kind} {name} in namespace {namespace}. A ScaledObject scales targets in its own "
    "namespace only. Correct or delete the manifest.",
    _RUNBOOK,
)

TEMPLATE_NOT_FOUND = ReasonCode(
    "TemplateNotFound",
    "There is no {target}, whose pod template the CapacityBuffer uses. Correct or delete the "
    "manifest.",
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
