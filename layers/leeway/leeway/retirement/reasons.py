"""The reason codes of retirements. A reason of a pod calls it "the pod": the value that has the
reason also has its name."""

from leeway.reasons import ReasonCode

HOOK_OVER = ReasonCode(
    "LifecycleHookOver",
    "Leeway does not hold lifecycle hook {hook} of group {group} any more: {why}.",
)
HEARTBEAT_FAILED = ReasonCode(
    "HeartbeatFailed",
    "The heartbeat for lifecycle hook {hook} of group {group} failed: {why}.",
    "a-lifecycle-hook-times-out",
)
ANSWER_REFUSED = ReasonCode(
    "HookAnswerRefused",
    "Auto Scaling refused the answer to lifecycle hook {hook} of group {group}: "
    "{error}. Leeway retries until the hook times out.",
    "a-lifecycle-hook-times-out",
)
RETIREMENT_STARTED = ReasonCode("RetirementStarted", "{why}")
RETIREMENT_EXISTS = ReasonCode("RetirementExists", "The instance has a retirement. {why}")
EXECUTION_DIED = ReasonCode(
    "ExecutionDied",
    "The execution of attempt {attempt} should have ended by {time:%Y-%m-%d %H:%M} "
    "UTC and is treated as dead.",
    "retirenodefailuresalarm",
)
RETIREMENT_CANCELLED = ReasonCode("RetirementCancelled", "{why}")
DISRUPTION_ALLOWED = ReasonCode("DisruptionAllowed", "The retirement may begin.")
BUDGET_EXHAUSTED = ReasonCode(
    "DisruptionBudgetExhausted",
    "{disrupted} of {nodes} nodes began to retire in the last {minutes:minute}; "
    "the disruption budget allows {allowed}.",
    "a-retirement-waits",
)
CLUSTER_PAUSED = ReasonCode(
    "ClusterPaused",
    "Cluster {cluster} is paused: no voluntary retirement begins until it is resumed.",
    "a-retirement-waits",
)
REPAIRS_HELD = ReasonCode(
    "RepairsHeld",
    "{unhealthy} of {nodes} nodes of {where} are unhealthy: Leeway repairs none of them while more "
    "than 20 % are, because the network or the API server may have failed.",
    "many-nodes-are-unhealthy",
)
NODE_PROTECTED = ReasonCode(
    "NodeProtected", "The node must not be disrupted: {protections}.", "a-retirement-waits"
)
DISRUPTION_NOT_DECIDED = ReasonCode(
    "DisruptionNotDecided",
    "Leeway could not read whether the retirement may begin: {error}.",
    "a-retirement-waits",
)
INSTANCE_ENTERS_SERVICE = ReasonCode(
    "InstanceEntersService",
    "Group {group} has the instance in lifecycle state {state}: the retirement waits until the "
    "instance is in service.",
    "a-retirement-waits",
)
NODE_DELETED = ReasonCode(
    "NodeDeleted",
    "Instance {instance} of pool {pool} runs, and cluster {cluster} has no Node for "
    "it: somebody deleted the Node. Leeway ends the instance after {minutes:minute} "
    "without a Node. To keep it, restart its kubelet, which creates the Node "
    "again.",
    "the-node-of-an-instance-was-deleted",
)
NODE_KEPT = ReasonCode("NodeKept", "{why} The node is uncordoned and kept.")
REPLACEMENT_DECIDED = ReasonCode("ReplacementDecided", "{why}")
NO_SUCCESSOR = ReasonCode("GroupLaunchesNoSuccessor", "{why}", "a-group-launches-no-successor")
SUCCESSOR_FOUND = ReasonCode("SuccessorFound", "{why}")
REPLACEMENT_REFUSED = ReasonCode("ReplacementRequestFailed", "{why}", "retirementproblemsalarm")
CAPACITY_REQUEST_FAILED = ReasonCode(
    "CapacityRequestFailed",
    "The request for nodes failed: {why}.",
    "a-retiring-node-gets-no-replacement",
)
NODE_NOT_CORDONED = ReasonCode("NodeNotCordoned", "{why}", "nodesnotcordonedalarm")
SUPERSEDED = ReasonCode(
    "AttemptSuperseded", "A newer attempt of the retirement has superseded this one."
)
POD_STAYS = ReasonCode("PodStays", "The pod stays: {why}.")
POD_TO_EVICT = ReasonCode("PodToEvict", "The pod is evicted. {why}")
POD_TERMINATING = ReasonCode(
    "PodTerminating", "The pod is terminating; the drain waits for its end. {why}"
)
POD_COMES_BACK = ReasonCode(
    "PodComesBack",
    "The pod came back after the cordon: {why}. It is deleted once, at its latest moment.",
    "a-pod-comes-back-to-a-cordoned-node",
)
POD_DOES_NOT_END = ReasonCode("PodDoesNotEnd", "The pod does not end. {why}", "a-pod-does-not-end")
NEEDS_OPTION = ReasonCode(
    "PodNeedsOption",
    "The pod appeared during the drain, and evicting it needs {options}. Repeat the "
    "drain with that option.",
    "a-pod-does-not-end",
)
POD_IS_KEPT = ReasonCode(
    "PodIsKept",
    "The annotation {annotation} keeps the pod: it is evicted when the annotation ends, or at its "
    "latest moment before the end of the terminationGracePeriod.",
    "a-budget-blocks-a-pod",
)
POD_EVICTED = ReasonCode("PodEvicted", "Leeway evicted the pod.")
POD_DELETED = ReasonCode("PodDeleted", "Leeway deleted the pod {why}.")
DELETED_AT_LATEST_MOMENT = ReasonCode(
    "PodDeletedAtLatestMoment",
    "Leeway deleted the pod at its latest moment, without regard to budgets.",
    "a-budget-blocks-a-pod",
)
POD_GONE = ReasonCode("PodGone", "The pod does not exist any more.{why}")
BUDGET_BLOCKS = ReasonCode(
    "BudgetBlocksEviction",
    "A PodDisruptionBudget allows no eviction of the pod: {answer}.",
    "a-budget-blocks-a-pod",
)
SEVERAL_BUDGETS = ReasonCode(
    "SeveralBudgets",
    "More than one PodDisruptionBudget selects the pod ({budgets}), and the API "
    "server evicts no such pod. Delete all of them but one.",
    "a-budget-blocks-a-pod",
)
SURGE_WAITS = ReasonCode(
    "SurgeWaits",
    "{workload} gets one more pod before this pod is evicted. {why}",
    "a-workload-does-not-surge",
)
SURGE_REPLACES_POD = ReasonCode(
    "SurgeReplacesPod",
    "Leeway deleted the pod: an additional pod of its workload serves, and its budget would allow "
    "no eviction at any size.",
)
SURGE_ENDED = ReasonCode("SurgeEnded", "{workload} has no additional pod any more: {why}.")
SURGE_REFUSED = ReasonCode(
    "SurgeRefused",
    "{workload} gets no additional pod: {why}.",
    "a-workload-does-not-surge",
)
SURGE_RIGHT_MISSING = ReasonCode(
    "SurgeRightMissing",
    "Leeway may not add a pod to {workload}: {error}. Run: {command}",
    "a-workload-does-not-surge",
)
EVICTION_FAILED = ReasonCode(
    "EvictionFailed", "The request for the pod failed and is retried: {why}."
)
EVICTION_DENIED = ReasonCode(
    "EvictionDenied",
    "The API server denies the request for the pod: {answer}.",
    "the-api-server-denies-an-eviction",
)
VOLUME_STILL_ATTACHED = ReasonCode(
    "VolumeStillAttached",
    "At the deadline the volume of {claims} was still attached to the node.",
    "a-volume-stays-attached",
)
SUCCESSOR_NOT_READ = ReasonCode(
    "SuccessorNotRead",
    "Leeway cannot read whether the replacement is ready for pods, and waits: {error}.",
    "clusterproblemsalarm",
)
SUCCESSOR_NOT_READY = ReasonCode(
    "SuccessorNotReady",
    "{why} The node is uncordoned and kept, and the group gets its former size.",
    "a-group-launches-nodes-that-do-not-join",
)
PODS_NOT_LISTED = ReasonCode("PodsNotListed", "{why}", "nodesnotcordonedalarm")
NODE_NAME_REUSED = ReasonCode(
    "NodeNameReused",
    "Another machine has the name of the node now, and the pods of that machine are not evicted.",
)
LOAD_BALANCERS_EXCLUDE_NODE = ReasonCode(
    "LoadBalancersExcludeNode", "Load balancers exclude the node."
)
LOAD_BALANCERS_KEEP_NODE = ReasonCode(
    "LoadBalancersKeepNode", "Load balancers keep the node: {why}.", "nodesnotcordonedalarm"
)
TARGETS_DRAIN = ReasonCode(
    "TargetsDrain", "Load balancers drain {targets:target} of the instance, in {groups}."
)
TARGETS_LEFT = ReasonCode(
    "TargetsLeft",
    "The instance ends while load balancers have {targets:target} of it, in {groups}: {why}.",
    "targets-are-left",
)
TARGETS_CUT = ReasonCode(
    "TargetsCut",
    "EC2 ends the instance before load balancers have drained it: {groups}.",
    "targets-are-left",
)
TARGETS_NOT_READ = ReasonCode(
    "TargetsNotRead",
    "Leeway does not wait for load balancers, because it cannot read their targets: {error}.",
    "targets-are-left",
)
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
    "Dry run: {node} would be retired after notice {kind}; pods that would be "
    "evicted: {evicted} of {pods}.",
)
RETIREMENT_UNDONE = ReasonCode(
    "RetirementUndone", "The retirement of {node} after notice {kind} is undone."
)
GROUP_TERMINATION_REFUSED = ReasonCode(
    "GroupTerminationRefused",
    "The group refuses to terminate the instance with a decrement, and is larger "
    "than before: {error}.",
    "retirementproblemsalarm",
)
SUCCESSOR_KEPT = ReasonCode(
    "SuccessorKept",
    "Leeway does not end successor {instance} of group {group}, which is larger than before: pods "
    "may run on it, and no terminate hook keeps it for a drain. `leeway terminate --decrement` "
    "drains and ends it.",
    "retirementproblemsalarm",
)
INSTANCE_LEFT_RUNNING = ReasonCode(
    "InstanceLeftRunning", "The instance is left running, because {why}.", "retirementproblemsalarm"
)
NOT_REPORTED = ReasonCode(
    "RetirementNotReported",
    "The retirement is not reported everywhere: {why}.",
    "retirementproblemsalarm",
)
