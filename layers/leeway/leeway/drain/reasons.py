"""The reason codes of drains: per pod, and for the node as a whole.

A reason of a pod calls it "the pod": the value that has the reason also has the pod's name.
"""

from leeway.reasons import ReasonCode

# Decisions about a pod.
STATIC_POD = ReasonCode(
    "StaticPodStays", "The pod is a static pod: the kubelet runs it until the machine stops."
)
DAEMONSET_POD = ReasonCode(
    "DaemonSetPodStays", "The pod stays: {daemonset} would create it again on this node."
)
DAEMONSET_NOT_READABLE = ReasonCode(
    "DaemonSetNotReadable",
    "The pod stays, because Leeway cannot read whether {daemonset} exists: {error}.",
    "nodesnotcordonedalarm",
)
DAEMONSET_MISSING = ReasonCode(
    "DaemonSetMissing",
    "The pod belongs to {daemonset}, which does not exist{detail}: nothing creates it again.",
)
POD_FINISHED = ReasonCode(
    "PodFinished", "The pod has finished ({phase}): it is evicted, and no budget protects it."
)
POD_TO_EVICT = ReasonCode("PodToEvict", "The pod is evicted, so that it runs on another node.")
CRITICAL_POD_TO_EVICT = ReasonCode(
    "CriticalPodToEvict",
    "The pod is evicted after the ordinary pods, because its priority class is {priority_class}.",
)
POD_TERMINATING = ReasonCode(
    "PodTerminating", "The pod is terminating already; its grace period ends at {ends:%H:%M:%S}."
)
TOLERATES_CORDON = ReasonCode(
    "PodToleratesCordon",
    "The pod came back after the cordon, because its toleration {toleration} ignores the cordon. "
    "It is deleted once, at its latest moment.",
    "a-pod-comes-back-to-a-cordoned-node",
)
NAMES_NODE = ReasonCode(
    "PodNamesNode",
    "Pods of {workload} came back repeatedly, because their spec names this node. "
    "The pod is deleted once, at its latest moment.",
    "a-pod-comes-back-to-a-cordoned-node",
)
DELETION_OVERDUE = ReasonCode(
    "PodDeletionOverdue",
    "The deletion of the pod was due {minutes} minutes ago: the drain does not wait for it.",
    "a-pod-does-not-end",
)
KEPT_BY_FINALIZERS = ReasonCode(
    "FinalizersKeepPod",
    "The pod has ended, but its finalizers keep the object: {finalizers}.",
    "a-pod-does-not-end",
)
NEEDS_OPTION = ReasonCode(
    "PodNeedsOption",
    "The pod appeared during the drain, and evicting it needs {options}. "
    "Repeat the drain with that option.",
    "a-pod-does-not-end",
)
DELETED_BY_OTHERS = ReasonCode(
    "PodDeletedByOthers", "Another client evicted or deleted the pod; the drain waits for its end."
)

# Requests and the API server's answers.
POD_EVICTED = ReasonCode("PodEvicted", "Leeway evicted the pod.")
DELETED_WITHOUT_EVICTION = ReasonCode(
    "PodDeletedWithoutEviction", "Leeway deleted the pod without the Eviction API, as requested."
)
DELETED_AT_LATEST_MOMENT = ReasonCode(
    "PodDeletedAtLatestMoment",
    "Leeway deleted the pod at its latest moment, without regard to budgets.",
    "a-budget-blocks-a-pod",
)
GRACE_SHORTENED = ReasonCode(
    "GracePeriodShortened",
    "The grace period of the pod is shortened from {own} s to {granted} s by the deadline.",
)
REPEATED_DELETION = ReasonCode(
    "PodDeletionRepeated",
    "The pod was terminating already; Leeway deleted it again to meet the deadline.",
)
POD_GONE = ReasonCode("PodGone", "The pod does not exist any more.")
POD_REPLACED = ReasonCode("PodReplaced", "Another pod has the name of the pod now.")
BUDGET_BLOCKS = ReasonCode(
    "BudgetBlocksEviction",
    "A PodDisruptionBudget allows no eviction of the pod: {answer}.",
    "a-budget-blocks-a-pod",
)
SEVERAL_BUDGETS = ReasonCode(
    "SeveralBudgets",
    "More than one PodDisruptionBudget selects the pod ({budgets}), and the API server evicts no "
    "such pod. Delete all of them but one.",
    "a-budget-blocks-a-pod",
)
API_SERVER_THROTTLES = ReasonCode(
    "ApiServerThrottles", "The API server throttles the request for the pod; Leeway retries it."
)
NAMESPACE_TERMINATING = ReasonCode(
    "NamespaceTerminating", "The namespace of the pod is being deleted: {answer}."
)
EVICTION_DENIED = ReasonCode(
    "EvictionDenied",
    "The API server denies the request for the pod: {answer}.",
    "the-api-server-denies-an-eviction",
)
EVICTION_FAILED = ReasonCode(
    "EvictionFailed", "The request for the pod failed and is retried: {answer}."
)
EVICTION_UNANSWERED = ReasonCode(
    "EvictionUnanswered", "The API server has not answered the eviction of the pod yet."
)

# The end of a pod's drain.
DEADLINE_REACHED = ReasonCode(
    "DeadlineReached",
    "The deadline came while the pod was {stage}.",
    "a-pod-does-not-end",
)
VOLUME_STILL_ATTACHED = ReasonCode(
    "VolumeStillAttached",
    "At the deadline the volume of {claims} was still attached to the node.",
    "a-volume-stays-attached",
)
VOLUMES_NOT_READABLE = ReasonCode(
    "VolumesNotReadable",
    "Leeway cannot read which volumes are attached to the node: {error}.",
    "nodesnotcordonedalarm",
)
NODE_NAME_REUSED = ReasonCode(
    "NodeNameReused",
    "Another machine has the name of the node now, and the pods of that machine are not evicted.",
)

# The node.
PODS_NOT_LISTED = ReasonCode(
    "PodsNotListed",
    "Leeway cannot list the pods of the node: {error}.",
    "nodesnotcordonedalarm",
)
LISTED_AFTER_DEADLINE = ReasonCode(
    "PodsListedAfterDeadline",
    "Leeway first listed the pods of the node after the deadline, when its machine may have "
    "stopped: pods may be missing from the list.",
    "nodesnotcordonedalarm",
)
LISTED_AFTER_NODE = ReasonCode(
    "PodsListedAfterNode",
    "Leeway first listed the pods when the Node object was gone: pods may be missing from the "
    "list.",
    "nodesnotcordonedalarm",
)
LOAD_BALANCERS_EXCLUDE_NODE = ReasonCode(
    "LoadBalancersExcludeNode", "Load balancers exclude the node."
)
LOAD_BALANCERS_KEEP_NODE = ReasonCode(
    "LoadBalancersKeepNode",
    "Load balancers keep the node: without it, more than half of the Ready nodes would be "
    "excluded.",
)
LOAD_BALANCERS_NOT_CHANGED = ReasonCode(
    "LoadBalancersNotChanged",
    "Leeway cannot exclude the node from load balancers: {error}.",
    "nodesnotcordonedalarm",
)
