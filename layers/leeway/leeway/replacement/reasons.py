"""The reason codes of replacements."""

from leeway.reasons import ReasonCode

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
