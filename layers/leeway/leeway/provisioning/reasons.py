"""Reason codes of provisioning."""

from leeway.reasons import ReasonCode

OBJECT_NOT_READABLE = ReasonCode(
    "ObjectNotReadable",
    "Leeway can't read {kind} {name}: {problem}. It launches no node for this object. Other "
    "objects are read.",
    "an-object-can-not-be-read",
)
