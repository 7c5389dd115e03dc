"""The codes of what a rehearsal finds."""

from leeway.reasons import ReasonCode

GRACE_EXCEEDS_NOTICE = ReasonCode(
    "GraceExceedsNotice",
    "Pods of {workload} may take {own} s to end and get {granted:.0f} s before the deadline.",
)
BUDGET_NEVER_ALLOWS = ReasonCode(
    "BudgetNeverAllows",
    "Budget {budget} never allows an eviction: {desired} of {expected} pods must be healthy. The "
    "drain waits until {latest:.0f} s after the warning and then deletes the pods in spite of it.",
)
BUDGET_NOT_COMPUTED = ReasonCode(
    "BudgetNotComputed",
    "Budget {budget} never allows an eviction, because the disruption controller cannot compute "
    "it: {problem}.",
)
BUDGET_ALLOWS_TOO_LATE = ReasonCode(
    "BudgetAllowsTooLate",
    "Budget {budget} ({written}) allows too few evictions in time: from {latest:.0f} s after the "
    "warning on, pods are deleted in spite of it (pods: {count}).",
)
POD_HAS_SEVERAL_BUDGETS = ReasonCode(
    "PodHasSeveralBudgets",
    "Pods of {workload} have several budgets ({budgets}), and the API server evicts no such pod.",
)
SINGLE_REPLICA = ReasonCode(
    "SingleReplica", "{workload} has one replica and is not Ready for {down}."
)
ALL_REPLICAS_LOST = ReasonCode(
    "AllReplicasLost",
    "All {count} Ready pods of {workload} are on lost nodes, and it has none Ready for {down}.",
)
BELOW_BUDGET = ReasonCode(
    "BelowBudget",
    "{workload} is below budget {budget} for {down}: {lowest} of {desired} pods are healthy.",
)
FINALIZERS_KEEP_OBJECT = ReasonCode(
    "FinalizersKeepObject",
    "Pods of {workload} stay as objects after their end, kept by {finalizers}.",
)
RETURNS_TO_NODE = ReasonCode(
    "ReturnsToNode",
    "Pods of {workload} tolerate every taint: the scheduler may bind their successors to a node "
    "that is about to end, where they run until it ends.",
)
NO_CONTROLLER = ReasonCode("NoController", "Pod {pod} has no controller: nothing creates it again.")
VOLUME_BOUND_TO_ZONE = ReasonCode(
    "VolumeBoundToZone",
    "Pods of {workload} have volumes that bind them to one zone, and get no node there: {why}",
)
NO_ROOM = ReasonCode("NoRoom", "Pods of {workload} get no node: {why}")
NOT_READY_AGAIN = ReasonCode(
    "NotReadyAgain",
    "Pods of {workload} are not Ready again within {minutes} minutes of the warning.",
)
POD_RUNS_UNTIL_THE_END = ReasonCode(
    "PodRunsUntilTheEnd",
    "Pods of {workload} still run when EC2 ends the instance: {why}",
)
OWNER_DRAINS_NODE = ReasonCode(
    "OwnerDrainsNode",
    "{owner} drains its nodes without Leeway. The rehearsal shows the drain that Leeway does if "
    "the Cluster manifest lists the owner.",
)
