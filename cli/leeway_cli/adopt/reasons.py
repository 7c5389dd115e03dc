"""The codes of `leeway adopt` and `leeway release`."""

from leeway.reasons import ReasonCode

_RUNBOOK = "a-leeway-command-fails"

CONSENT_MISSING = ReasonCode(
    "ConsentMissing",
    "Nothing was changed in cluster {cluster}: {number} steps change settings of others. Read them "
    "above, and run the command with --yes.",
    _RUNBOOK,
)
ADOPTION_CLAIMED = ReasonCode(
    "AdoptionClaimed",
    "{holder} works on cluster {cluster} until {until}. Run the command again after that time.",
    _RUNBOOK,
)
ADOPTION_LOST = ReasonCode(
    "AdoptionLost",
    "Another process has taken over cluster {cluster}, since a step took too long. Run the command "
    "again.",
    _RUNBOOK,
)
STEP_WITHOUT_EFFECT = ReasonCode(
    "AdoptionStepWithoutEffect",
    "Cluster {cluster}: {title} is not as step {number} of {steps} wrote it. Somebody else writes "
    "it at the same time. Run the command again.",
    _RUNBOOK,
)
UNDONE = ReasonCode("AdoptionUndone", "The {setting} becomes as it was before `leeway adopt`.")
OBJECT_RESTORED = ReasonCode(
    "ObjectRestored",
    "{object} gets back what it had before `leeway adopt`: {content}.",
    _RUNBOOK,
)
PRESENT_BEFORE = ReasonCode(
    "SettingPresentBefore", "The {setting} stays: it was there before `leeway adopt`."
)
NEVER_ADOPTED = ReasonCode(
    "NeverAdopted",
    "The table has no record of `leeway adopt {cluster}`, so there is nothing to release. "
    "docs/deploy.md tells how to undo steps that were made by hand.",
    _RUNBOOK,
)
NAMESPACE_NOT_EMPTY = ReasonCode(
    "NamespaceNotEmpty",
    "The {namespace} stays: it has pods, services or secrets. Delete the Headroom manifests and "
    "wait a minute, then run the command again.",
    _RUNBOOK,
)
INSTANCES_WAIT = ReasonCode(
    "InstancesWaitForHook",
    "The {hook} stays: {instances} wait for it, and Auto Scaling would terminate them. Run the "
    "command again when they are in service.",
    _RUNBOOK,
)
GROUP_GONE = ReasonCode(
    "GroupGone",
    "Auto Scaling deleted group {group} meanwhile. Run the command again without it.",
    _RUNBOOK,
)
RBAC_NOT_READ = ReasonCode(
    "RbacNotRead", "{path}: {error}. Set --rbac to the folder rbac of Leeway.", _RUNBOOK
)
NODE_ROLE_UNKNOWN = ReasonCode(
    "NodeRoleUnknown",
    "The node class {node_class} of cluster {cluster} names no role of NodeRoleArns. If its nodes "
    "have no access entry yet, set --node-role.",
    _RUNBOOK,
)
CLUSTER_BUSY = ReasonCode(
    "ClusterBusy",
    "Leeway is working on {number} instances of cluster {cluster}, and loses its rights to them. "
    "Wait until `leeway status` lists none, or run the command with --yes.",
    _RUNBOOK,
)
RELEASE_UNFINISHED = ReasonCode(
    "ReleaseUnfinished", "Cluster {cluster} is not released yet: {reasons}", _RUNBOOK
)
