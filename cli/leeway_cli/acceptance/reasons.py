"""The codes of `leeway acceptance`."""

from leeway.reasons import ReasonCode

_RUNBOOK = "a-leeway-command-fails"

ACCEPTANCE_NOT_AGREED = ReasonCode(
    "AcceptanceNotAgreed",
    "Nothing was launched in cluster {cluster}: run the command with --yes to launch nodes that "
    "cost about a dollar.",
    _RUNBOOK,
)
ACCEPTANCE_WITHOUT_NODE_CLASS = ReasonCode(
    "AcceptanceWithoutNodeClass",
    "Cluster {cluster} has no EC2NodeClass {name} in the table. Its role, subnets and security "
    "groups are those of the nodes that are launched: apply one with `leeway apply`.",
    _RUNBOOK,
)
ACCEPTANCE_FAILED = ReasonCode(
    "AcceptanceFailed",
    "{failed} of {stages} stages failed in cluster {cluster}: {problem}.",
    _RUNBOOK,
)
ACCEPTANCE_NOT_CLEANED = ReasonCode(
    "AcceptanceNotCleaned",
    "Not everything was removed from cluster {cluster}: {problem}. Run `leeway acceptance "
    "{cluster} --clean`.",
    _RUNBOOK,
)
