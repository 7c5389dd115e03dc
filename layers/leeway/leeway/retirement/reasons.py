"""The reason codes of retirements."""

from leeway.reasons import ReasonCode

HOOK_MISSING = ReasonCode(
    "LifecycleHookMissing", "Group {group} has no lifecycle hook {hook} any more."
)

HOOK_HAS_TARGET = ReasonCode(
    "LifecycleHookHasTarget",
    "Lifecycle hook {hook} of group {group} notifies a target of its own, which answers it.",
)

HOOK_ANSWERED = ReasonCode(
    "LifecycleHookAnswered",
    "Lifecycle hook {hook} of group {group} does not wait any more: {error}.",
)

HEARTBEAT_FAILED = ReasonCode(
    "HeartbeatFailed",
    "The heartbeat for lifecycle hook {hook} of group {group} failed: {error}. It is retried.",
    "a-lifecycle-hook-times-out",
)

HOOK_TIMED_OUT = ReasonCode(
    "LifecycleHookTimedOut",
    "Lifecycle hook {hook} of group {group} has timed out without a heartbeat: {error}.",
    "a-lifecycle-hook-times-out",
)

ANSWER_REFUSED = ReasonCode(
    "HookAnswerRefused",
    "Auto Scaling refused the answer to lifecycle hook {hook} of group {group}: {error}. Leeway "
    "retries until the hook times out.",
    "a-lifecycle-hook-times-out",
)


# How a notice changes the record of the instance.
FIRST_NOTICE = ReasonCode("FirstNotice", "The notice starts the first retirement of the instance.")

NOTICE_REPEATED = ReasonCode("NoticeRepeated", "The notice was received before.")

START_REPEATED = ReasonCode(
    "StartRepeated",
    "The notice was received before; retire_node is started again in case the start was lost.",
)

RETIREMENT_EXISTS = ReasonCode(
    "RetirementExists", "The retirement of the instance already covers this notice."
)

PREVIOUS_RETIREMENT_UNDONE = ReasonCode(
    "PreviousRetirementUndone", "The previous retirement of the instance was undone."
)

PREVIOUS_RETIREMENT_ENDED = ReasonCode(
    "PreviousRetirementEnded", "The previous retirement of the instance has ended."
)

PREVIOUS_RETIREMENT_HAD_NO_EFFECT = ReasonCode(
    "PreviousRetirementHadNoEffect",
    "The previous retirement of the instance was declined, undone or a dry run.",
)

NODE_ONLY_CORDONED = ReasonCode(
    "NodeOnlyCordoned", "The previous notice only cordoned the node; this notice drains it."
)

EXECUTION_DIED = ReasonCode(
    "ExecutionDied",
    "The execution of attempt {attempt} should have ended by {time:%Y-%m-%d %H:%M} UTC and is "
    "treated as dead.",
    "retirenodefailuresalarm",
)

NOTICE_MORE_URGENT = ReasonCode(
    "NoticeMoreUrgent", "A {kind} notice takes precedence over a {previous} notice."
)

DEADLINE_EARLIER = ReasonCode(
    "DeadlineEarlier", "The notice has an earlier deadline than the current attempt."
)

HOOK_WAITS = ReasonCode(
    "LifecycleHookWaits", "Lifecycle hook {hook} of group {group} waits for an answer."
)

INSTANCE_RESTARTED = ReasonCode(
    "InstanceRestarted", "The instance was stopped and has been started again."
)

INSTANCE_KEPT_RUNNING = ReasonCode(
    "InstanceKeptRunning",
    "The instance kept running after its retirement ended, and may have pods again.",
)

CAPACITY_NOT_RESTORED = ReasonCode(
    "CapacityNotRestored",
    "The previous retirement did not lower the desired capacity of group {group} again.",
)

INSTANCE_NOT_TERMINATED = ReasonCode(
    "InstanceNotTerminated",
    "The previous retirement had to terminate the instance and did not.",
)

# Why a retirement is undone.
UNDO_IN_PROGRESS = ReasonCode(
    "UndoInProgress", "The retirement is being undone: Leeway uncordons the node."
)

STATUS_CHECKS_PASS = ReasonCode("StatusChecksPass", "The status checks of the instance pass again.")

SCHEDULED_CHANGE_OVER = ReasonCode(
    "ScheduledChangeOver", "The scheduled change is cancelled, completed or postponed."
)

# Whether a voluntary retirement may begin.
DISRUPTION_ALLOWED = ReasonCode("DisruptionAllowed", "The retirement may begin.")

BUDGET_EXHAUSTED = ReasonCode(
    "DisruptionBudgetExhausted",
    "{disrupted} of {nodes} nodes began to retire in the last {minutes:g} minutes; the disruption "
    "budget allows {allowed}.",
    "a-retirement-waits",
)

CLUSTER_PAUSED = ReasonCode(
    "ClusterPaused",
    "Cluster {cluster} is paused: no voluntary retirement begins until it is resumed.",
    "a-retirement-waits",
)

NODE_PROTECTED = ReasonCode(
    "NodeProtected",
    "The node must not be disrupted: {protections}.",
    "a-retirement-waits",
)

DISRUPTION_TIMED_OUT = ReasonCode(
    "DisruptionTimedOut",
    "The retirement was not allowed to begin within {hours:g} hours and is declined.",
    "a-retirement-waits",
)

DISRUPTION_NOT_DECIDED = ReasonCode(
    "DisruptionNotDecided",
    "Leeway could not read whether the retirement may begin: {error}.",
    "a-retirement-waits",
)

LEFT_TO_GROUP = ReasonCode(
    "LeftToGroup",
    "The Auto Scaling group replaces the instance itself, and its terminate hook starts the drain: "
    "{why}.",
)

# Whether an instance whose Node was deleted ends.
NODE_DELETED = ReasonCode(
    "NodeDeleted",
    "Instance {instance} of pool {pool} runs, and cluster {cluster} has no Node for it: somebody "
    "deleted the Node. Leeway ends the instance after {minutes:g} minutes without a Node. To keep "
    "it, restart its kubelet, which creates the Node again.",
    "the-node-of-an-instance-was-deleted",
)

NODE_IS_BACK = ReasonCode(
    "NodeIsBack", "Instance {instance} has Node {node} again, so Leeway keeps it."
)


# How an instance is replaced.
LAUNCHES_SUCCESSOR = ReasonCode(
    "GroupLaunchesSuccessor",
    "Group {group} launches the successor with LaunchInstances ({capacity} of at most {maximum}) "
    "and terminates the instance when its pods are gone.",
)
SUCCESSOR_REQUESTED = ReasonCode(
    "SuccessorAlreadyRequested",
    "An earlier attempt requested the successor from group {group}.",
)
TERMINATES_IN_GROUP = ReasonCode(
    "GroupTerminatesWithHook",
    "Group {group} launches the successor at once, and its terminate hook {hook} keeps the "
    "instance while the pods move.",
)
GROUP_TERMINATES_ALREADY = ReasonCode(
    "GroupTerminatesAlready",
    "Group {group} terminates the instance already, as an earlier attempt requested.",
)
DETACHES = ReasonCode(
    "InstanceDetached",
    "Leeway detaches the instance from group {group} and drains it, while the group launches the "
    "successor: {why}.",
)
NOT_DETACHABLE = ReasonCode(
    "InstanceNotDetachable",
    "No successor is requested from group {group}: {why}, and EKS does not let instances leave "
    "its groups.",
    "a-group-launches-no-successor",
)
NOT_IN_SERVICE = ReasonCode(
    "InstanceNotInService",
    "Group {group} has the instance in lifecycle state {state} and replaces it if needed.",
)
CAPACITY_REBALANCING = ReasonCode(
    "CapacityRebalancing",
    "Capacity Rebalancing is on in group {group} and replaces the instance.",
)
INSTANCE_REFRESH = ReasonCode(
    "InstanceRefresh", "An instance refresh of group {group} replaces the instance."
)
LAUNCH_SUSPENDED = ReasonCode(
    "LaunchProcessSuspended",
    "Group {group} launches no successor, because its Launch process is suspended. Resume it.",
    "a-group-launches-no-successor",
)
CAPACITY_REQUESTED = ReasonCode(
    "CapacityRequested",
    "The instance is of Leeway's pool {pool}: provision_nodes launches nodes for its pods.",
)
POOLS_REPLACE_IN_GROUP = ReasonCode(
    "PoolsReplaceGroupNode",
    "Leeway's pools launch nodes for the pods instead of group {group}, which terminates the "
    "instance after the drain{capacity}.",
)
NOT_NEEDED = ReasonCode(
    "ReplacementNotNeeded",
    "The instance of Leeway's pool {pool} has no node, so no pod needs another place.",
)
GROUP_DECIDES = ReasonCode(
    "GroupDecidesReplacement",
    "The group terminates the instance and decides itself whether to launch a successor.",
)
NO_REPLACEMENT = ReasonCode(
    "PolicyWithoutReplacement", "The policy for {kind} requests no replacement."
)
OWNER_REPLACES = ReasonCode("OwnerReplacesNodes", "{owner} replaces its own nodes.")
OWNER_LAUNCHES = ReasonCode(
    "OwnerLaunchesCapacity", "{owner} launches the capacity that the evicted pods need."
)
LEFT_GROUP = ReasonCode(
    "InstanceLeftGroup",
    "The instance has left its group, and its successor is requested already.",
)
REMOVED_FROM_GROUP = ReasonCode(
    "InstanceRemovedFromGroup",
    "The instance is no longer in group {group}, which replaces it.",
)
NO_GROUP = ReasonCode(
    "InstanceWithoutGroup",
    "The instance is in no Auto Scaling group: no group launches a successor.",
)

# Why the group does not launch the successor with LaunchInstances.
LAUNCH_UNSUPPORTED = ReasonCode(
    "LaunchInstancesUnsupported",
    "LaunchInstances does not support group {group}, which {detail}.",
)
GROUP_AT_MAXIMUM = ReasonCode(
    "GroupAtMaximum",
    "LaunchInstances would exceed the maximum of group {group}, which is {maximum}.",
)
TERMINATE_SUSPENDED = ReasonCode(
    "TerminateProcessSuspended",
    "After LaunchInstances group {group} could not terminate the instance, because its Terminate "
    "process is suspended.",
)
NO_ZONE_WITH_CAPACITY = ReasonCode(
    "NoZoneWithCapacity",
    "EC2 reported within the last minutes that no zone of group {group} has capacity.",
)
LAUNCH_REFUSED = ReasonCode("LaunchInstancesRefused", "LaunchInstances was refused: {error}.")

# What an operator of the group may notice.
IN_ANY_ZONE = ReasonCode(
    "SuccessorInAnyZone", "The successor may start in any of the group's {zones} zones."
)
SCALE_IN_PROTECTION = ReasonCode(
    "ScaleInProtectionIgnored",
    "The instance's scale-in protection does not prevent an explicit termination.",
)

# The zone of a successor.
SAME_ZONE = ReasonCode(
    "SameZone", "This is the instance's own zone, which keeps the balance of the group."
)
SAME_ZONE_FOR_PODS = ReasonCode(
    "SameZoneForPods",
    "This is the instance's own zone: pod {pod} needs it because of {need}{more}.",
)
OTHER_ZONE = ReasonCode(
    "OtherZone", "This is another zone of the group, because {zone} has no capacity now{pods}."
)
LAUNCHED_BY_GROUP = ReasonCode(
    "LaunchedByGroup", "The group launched it after the replacement was requested."
)

# The request and the successor.
REPLACEMENT_REFUSED = ReasonCode(
    "ReplacementRequestFailed",
    "AWS did not carry out the request for the successor: {error}. Leeway retries until the "
    "deadline.",
    "retirementproblemsalarm",
)
SUCCESSOR_LAUNCHED = ReasonCode(
    "SuccessorLaunched", "Successor {instance} is of type {instance_type} in zone {zone}."
)
SUCCESSOR_READY = ReasonCode("SuccessorReady", "Successor {instances} is Ready.")
SUCCESSOR_LEFT_GROUP = ReasonCode(
    "SuccessorLeftGroup",
    "Successor {instance} left group {group} before it was Ready; the group launches another one.",
)
SUCCESSOR_NOT_JOINED = ReasonCode(
    "SuccessorNotJoined",
    "Successor {instance} had no node after {minutes:g} minutes and was terminated; the group "
    "launches another one.",
    "nodes-are-not-ready",
)
RETURN_WITHOUT_SUCCESSOR = ReasonCode(
    "ReturnWithoutSuccessor",
    "No replacement for all of its pods is Ready after {minutes:.0f} minutes: the node is "
    "uncordoned and kept.",
)
SUCCESSOR_TIMEOUT_PASSED = ReasonCode(
    "SuccessorTimeout",
    "No successor was Ready within {minutes:g} minutes; the drain begins without it.",
    "nodes-are-not-ready",
)
POOL_LAUNCHES_SUCCESSOR = ReasonCode(
    "PoolLaunchesSuccessor", "Pool {pool} launches {instance} ({offering})."
)
PODS_FIT_NODES = ReasonCode(
    "PodsFitExistingNodes", "Pods that have a place on existing nodes: {pods}."
)
PODS_WITHOUT_NODE = ReasonCode(
    "PodsWithoutReplacement",
    "No replacement for some pods, because: {reasons}.",
    "a-retiring-node-gets-no-replacement",
)
CAPACITY_NOT_ANSWERED = ReasonCode(
    "CapacityRequestUnanswered",
    "The function provision_nodes has not answered the request for nodes.",
    "a-retiring-node-gets-no-replacement",
)
CAPACITY_NOT_REQUESTED = ReasonCode(
    "CapacityRequestNotWritten",
    "The request for nodes cannot be written to the table: {error}. The drain does not wait.",
    "a-retiring-node-gets-no-replacement",
)
CAPACITY_REQUEST_NOT_READ = ReasonCode(
    "CapacityRequestNotRead",
    "The request for nodes cannot be read or ended: {error}. It ends by itself.",
    "a-retiring-node-gets-no-replacement",
)
PROVISION_NODES_NOT_WOKEN = ReasonCode(
    "ProvisionNodesNotWoken",
    "The function provision_nodes cannot be woken: {error}. It finds the request in its next run, "
    "within a minute.",
    "a-retiring-node-gets-no-replacement",
)
NODE_NAME_UNKNOWN = ReasonCode(
    "NodeNameUnknown",
    "No nodes are requested, because the node of the instance cannot be read.",
    "nodesnotcordonedalarm",
)
NODE_NOT_MARKED = ReasonCode(
    "NodeMarksNotUpdated",
    "Leeway cannot write the deadline to the node's annotation: {error}. It retries.",
    "nodesnotcordonedalarm",
)
SUPERSEDED = ReasonCode(
    "AttemptSuperseded", "A newer attempt of the retirement has superseded this one."
)
NOT_REQUESTED = ReasonCode("ReplacementNotRequested", "No replacement is requested: {why}.")


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


# Outcomes.
NODE_DRAINED = ReasonCode(
    "NodeDrained", "Node {node} is drained after notice {kind}; pods evicted: {evicted}."
)
NODE_DRAIN_INCOMPLETE = ReasonCode(
    "NodeDrainIncomplete",
    "The drain of {node} after notice {kind} is incomplete; pods evicted: {evicted}.",
    "retirementproblemsalarm",
)
NODE_NOT_FOUND = ReasonCode(
    "NodeNotFound",
    "Instance {instance} has no node in cluster {cluster} (notice {kind}): nothing is drained.",
)
NODE_CORDONED = ReasonCode(
    "NodeCordoned", "Node {node} is cordoned after notice {kind}, and not drained."
)
RETIREMENT_DECLINED = ReasonCode(
    "RetirementDeclined", "The retirement of {node} after notice {kind} is declined."
)
RETIREMENT_DRY_RUN = ReasonCode(
    "RetirementDryRun",
    "Dry run: {node} would be retired after notice {kind}; pods that would be evicted: {evicted} "
    "of {pods}.",
)
RETIREMENT_UNDONE = ReasonCode(
    "RetirementUndone", "The retirement of {node} after notice {kind} is undone."
)

# Why a node is not given back that was to be.
NODE_GOT_PODS = ReasonCode(
    "NodeGotPods",
    "Node {node} has {pods} pods now, and {expected} when Leeway decided to give it back "
    "({cause}): it is uncordoned and kept.",
)
POD_NOT_EVICTABLE = ReasonCode(
    "PodNotEvictable",
    "The API server refuses to evict pod {pod} from node {node} now ({problem}): the node is "
    "uncordoned and kept.",
)
RETURN_NOT_CONFIRMED = ReasonCode(
    "ReturnNotConfirmed",
    "Leeway could not confirm that node {node} may be given back: {problem}.",
)
RETURN_NOT_DRAINED = ReasonCode(
    "ReturnNotDrained",
    "Node {node} is not drained in the time that its pool allows: it is uncordoned and kept.",
)

# Further sentences of an outcome.
PODS_DELETED = ReasonCode(
    "PodsDeletedPastBudget",
    "Pods deleted at their latest moment, without regard to budgets: {deleted}.",
    "a-budget-blocks-a-pod",
)
PODS_REMAIN = ReasonCode(
    "PodsRemain",
    "Pods that remain on the node: {remaining}; the first is {pod}.",
    "retirementproblemsalarm",
)
VOLUMES_REMAIN = ReasonCode(
    "VolumesRemain",
    "Pods whose volumes were still attached at the end: {pods}.",
    "a-volume-stays-attached",
)
REPLACEMENT = ReasonCode("Replacement", "Replacement: {method}{successors}.")
LEFT_IN_SERVICE = ReasonCode(
    "InstanceLeftInService",
    "The instance stays in service in its group, because its node is not drained.",
    "retirementproblemsalarm",
)
LEFT_TO_EC2 = ReasonCode(
    "InstanceLeftToEc2", "The instance is detached from its group, and EC2 terminates it."
)

# Problems of the steps.
NODE_NOT_CORDONED = ReasonCode(
    "NodeNotCordoned", "Leeway cannot cordon the node: {error}.", "nodesnotcordonedalarm"
)
NODE_NOT_READABLE = ReasonCode(
    "NodeNotReadable", "Leeway cannot read the node: {error}.", "nodesnotcordonedalarm"
)
GROUP_NOT_READABLE = ReasonCode(
    "GroupNotReadable",
    "Leeway cannot read the Auto Scaling group of the instance: {error}.",
    "retirementproblemsalarm",
)
INSTANCE_WITHOUT_NODE = ReasonCode(
    "InstanceWithoutNode",
    "The instance has no node, so no replacement is requested.",
)
GROUP_TERMINATION_REFUSED = ReasonCode(
    "GroupTerminationRefused",
    "The group refuses to terminate the instance with a decrement, and is larger than before: "
    "{error}.",
    "retirementproblemsalarm",
)
TERMINATION_REFUSED = ReasonCode(
    "TerminationRefused",
    "The instance is left running, because EC2 refuses to terminate it: {error}.",
    "retirementproblemsalarm",
)
NOT_DRAINED_LEFT_RUNNING = ReasonCode(
    "InstanceNotDrained",
    "The instance is left running, because its node is not drained.",
    "retirementproblemsalarm",
)
NO_NODE_LEFT_RUNNING = ReasonCode(
    "InstanceLeftWithoutNode",
    "The instance is left running, because it has no node and is not known to have had one.",
    "retirementproblemsalarm",
)
NOT_OWN_LEFT_RUNNING = ReasonCode(
    "InstanceNotLaunchedByLeeway",
    "The instance is left running, because EC2 does not confirm that Leeway launched it for the "
    "cluster: {problem}.",
    "retirementproblemsalarm",
)
LAST_TERMINATION = ReasonCode(
    "TerminationGivenUp",
    "This was the last of {attempts} attempts: terminate it yourself.",
    "retirementproblemsalarm",
)
LEEWAY_EVENT_NOT_PUBLISHED = ReasonCode(
    "LeewayEventNotPublished",
    "EventBridge refuses the Leeway event of the retirement: {error}.",
    "retirementproblemsalarm",
)
NODE_EVENT_NOT_WRITTEN = ReasonCode(
    "KubernetesEventNotWritten",
    "The Kubernetes Event of the retirement could not be written: {error}.",
    "nodesnotcordonedalarm",
)
