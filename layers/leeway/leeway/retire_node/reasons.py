"""The reason codes of retire_node: outcomes, the steps' problems, and the plan of a notice."""

from leeway.reasons import ReasonCode

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

# The plan of a notice, as `leeway explain` shows it.
INSTANCE_RUNNING = ReasonCode(
    "InstanceRunning",
    "The instance is running: the marks of an earlier retirement are removed from its node.",
)
NOTICE_WITHDRAWN = ReasonCode(
    "NoticeWithdrawn", "The announced change is cancelled or completed: the retirement is undone."
)
NOTICE_IGNORED = ReasonCode("NoticeIgnored", "The notice is ignored.")
INSTANCE_ADMITTED = ReasonCode(
    "InstanceAdmission",
    "The instance is admitted: its launch hook is completed when its node is Ready.",
)
CORDON_PLANNED = ReasonCode("CordonPlanned", "The node is cordoned and not drained.")
RETIREMENT_PLANNED = ReasonCode("RetirementPlanned", "The instance is retired.")
INSTANCE_NOT_FOUND = ReasonCode(
    "InstanceNotFound", "EC2 knows no instance {instance}, so its replacement is unknown."
)
EC2_NOT_READ = ReasonCode(
    "Ec2NotRead", "EC2 was not read, so the replacement of the instance is unknown."
)
NODE_NOT_RETIRED = ReasonCode("NodeNotRetired", "The node is not retired.")
CLUSTER_DRY_RUN = ReasonCode(
    "ClusterDryRun", "The cluster is on dry run: Leeway reports this plan and does not apply it."
)
RETIREMENT_PAUSED = ReasonCode(
    "RetirementPaused", "The cluster is paused: the retirement waits until it is resumed."
)
BUDGET_APPLIES = ReasonCode(
    "DisruptionBudgetApplies",
    "The retirement waits for the disruption budget: at most {percent} % of the nodes (at least "
    "{at_least}) are retired voluntarily within {minutes} minutes.",
)
POOLS_MAY_REPLACE = ReasonCode(
    "PoolsMayReplaceGroupNode",
    "If EC2 has no capacity for the group in any zone, Leeway's pools launch nodes for the pods "
    "instead.",
)
POD_FORBIDS_DISRUPTION = ReasonCode(
    "PodForbidsDisruption",
    "Pod {pod} has the annotation {annotation}: the retirement waits for it.",
)
