"""Reason codes of provisioning: what a run of provision_nodes does, and why it does nothing."""

from leeway.reasons import ReasonCode

PROVISIONED = ReasonCode(
    "Provisioned",
    "Leeway launched {launched} instances for {pods} pods without a place in cluster {cluster}: "
    "{without} pods get no node.",
)
PROVISIONING_REHEARSED = ReasonCode(
    "ProvisioningRehearsed",
    "Leeway launches nothing for {pods} pods without a place in cluster {cluster}: the Cluster "
    "manifest has spec.dryRun.",
)
CLUSTER_WITHOUT_POOLS = ReasonCode(
    "ClusterWithoutPools",
    "Cluster {cluster} has no NodePool that Leeway can read, so Leeway launches no node.",
)
PROVISIONING_FAILED = ReasonCode(
    "ProvisioningFailed",
    "Leeway could not provision cluster {cluster}: {error}.",
    "clusterproblemsalarm",
)
CATALOG_MISSING = ReasonCode(
    "CatalogMissing",
    "The table has no catalog of instance types for cluster {cluster}: invoke refresh_catalog.",
    "clusterproblemsalarm",
)
LAUNCHES_IN_VAIN = ReasonCode(
    "LaunchesInVain",
    "Leeway launches nothing more for the pods of {workload}: {count} nodes that it launched for "
    "them in the last hour have joined and are empty ({nodes}). Compare the labels, taints and "
    "allocatable resources of these nodes with the node pool and with the pod.",
    "launches-are-held-back",
)
REQUEST_NOT_ANSWERED = ReasonCode(
    "RequestNotAnswered",
    "Leeway could not write the answer to the capacity request of {instance}: {error}.",
    "clusterproblemsalarm",
)
STATUS_NOT_WRITTEN = ReasonCode(
    "StatusNotWritten",
    "Leeway could not write the status of provisioning in cluster {cluster}: {error}.",
    "clusterproblemsalarm",
)
POD_EVENTS_NOT_WRITTEN = ReasonCode(
    "PodEventsNotWritten",
    "Leeway could not write {count} Events about pods in cluster {cluster}: {error}.",
    "clusterproblemsalarm",
)
UPCOMING_PODS_NOT_READ = ReasonCode(
    "UpcomingPodsNotRead",
    "Leeway cannot read the pods that {target} will have soon, so their nodes are launched when "
    "the pods are pending: {error}.",
    "nodes-are-not-launched-before-a-window",
)
JOIN_TIME_MEASURED = ReasonCode(
    "JoinTimeMeasured",
    "The median of the last {count} nodes of pool {pool} was ready for pods {seconds} s after its "
    "launch.",
)
JOIN_TIME_UNKNOWN = ReasonCode(
    "JoinTimeUnknown",
    "Leeway has admitted no node of these pools yet, and assumes {seconds} s until a node is ready "
    "for pods.",
)
PROVISIONED_AHEAD = ReasonCode(
    "ProvisionedAhead",
    "{target} will have {pods} more pods at {time} UTC: Leeway plans their nodes {lead} s before. "
    "{why}",
)
MESSAGE_NOT_VALID = ReasonCode(
    "MessageNotValid",
    "Leeway dropped a message of the provisioning queue that is not valid: {problem}.",
    "clusterproblemsalarm",
)
MESSAGE_FOR_OTHER_CLUSTER = ReasonCode(
    "MessageForOtherCluster",
    "Leeway dropped a message for cluster {cluster}: add the cluster to the stack's ClusterNames.",
    "clusterproblemsalarm",
)
NO_TIME_FOR_CLUSTER = ReasonCode(
    "NoTimeForCluster",
    "The invocation has no time left for cluster {cluster}: SQS delivers the message again.",
)
OBJECT_NOT_READABLE = ReasonCode(
    "ObjectNotReadable",
    "Leeway can't read {kind} {name}: {problem}. It launches no node for this object. Other "
    "objects are read.",
    "an-object-can-not-be-read",
)
OBJECTS_NOT_READABLE = ReasonCode(
    "ObjectsNotReadable",
    "Leeway can't list {kind} objects: {problem}. It launches nodes as if there were none.",
    "an-object-can-not-be-read",
)
