"""Reason codes of giving capacity back. docs/giving-back.md explains the rules."""

from leeway.reasons import ReasonCode

NODE_EMPTY = ReasonCode(
    "NodeEmpty",
    "Node {node} has had no pods but those of DaemonSets since {since:%H:%M} UTC: it is given "
    "back, which saves {saving:.4f} USD per hour.",
)
NODE_EXPIRED = ReasonCode(
    "NodeExpired",
    "Node {node} is older than {expires}, the expireAfter of pool {pool}: it is replaced.",
)
NODE_DRIFTED = ReasonCode(
    "NodeDrifted",
    "Node {node} differs from what pool {pool} launches now: it is replaced. {drift}",
)
POOL_DELETED = ReasonCode(
    "PoolDeleted",
    "Node {node} is of pool {pool}, which was deleted at {at:%Y-%m-%d %H:%M} UTC: its pods move, "
    "and it is given back.",
)
STATIC_POOL_SCALED_DOWN = ReasonCode(
    "StaticPoolScaledDown",
    "Pool {pool} has {count:node} more than its spec.replicas ({replicas}): node {node} is given "
    "back.",
)
NODE_HIBERNATES = ReasonCode(
    "NodeHibernates",
    "Pool {pool} hibernates until {until}: node {node} is given back, which saves {saving:.4f} USD "
    "per hour.",
)
POOL_IS_AWAKE = ReasonCode(
    "PoolIsAwake",
    "Pool {pool} does not hibernate any more, so instance {instance} stays: Leeway uncordons its "
    "node.",
)
POOL_IS_STATIC = ReasonCode(
    "PoolIsStatic",
    "Node {node} is of pool {pool}, which keeps {replicas:node} (spec.replicas): it is not "
    "consolidated.",
)
STATIC_POOL_SHRINKS = ReasonCode(
    "StaticPoolShrinks",
    "Node {node} has drifted. Pool {pool} first gives back the {count:node} that it has more than "
    "spec.replicas.",
)
NO_ROOM_TO_REPLACE = ReasonCode(
    "NoRoomToReplace",
    "Node {node} has drifted, and limits.nodes of pool {pool} leaves no room for its replacement: "
    "raise it above spec.replicas.",
    "a-static-pool-lacks-nodes",
)
NO_PLACE_TO_MOVE_TO = ReasonCode(
    "NoPlaceToMoveTo",
    "Node {node} has drifted, and stays: its pod {pod} would have no place without it. {why}",
)
DESTINATION_IN_DOUBT = ReasonCode(
    "DestinationInDoubt",
    "Node {node} ({cause}) stays for now: its pods would need a new node, and the last instances "
    "of {pools} have not joined the cluster, or were not ready for pods.",
    "nodes-are-not-ready",
)
POOL_HAS_NODES = ReasonCode(
    "DeletedPoolHasNodes",
    "Pool {pool} was deleted at {at:%Y-%m-%d %H:%M} UTC and has {count:node}: Leeway gives them "
    "back from {due:%H:%M} UTC on. To keep them, apply the pool again.",
    "a-pool-was-deleted",
)
POOL_UNKNOWN = ReasonCode(
    "PoolUnknown",
    "{count:node is|nodes are} of pool {pool}, which has no valid manifest and which nobody "
    "has deleted with `leeway delete`: Leeway keeps them. Apply the pool, or delete it.",
    "a-pool-was-deleted",
)
NODE_NOT_NEEDED = ReasonCode(
    "NodeNotNeeded",
    "The pods of node {node} ({pods}) fit on {targets}: it is given back, which saves "
    "{saving:.4f} USD per hour.",
)
NODES_REPLACEABLE = ReasonCode(
    "NodesReplaceable",
    "The pods of {nodes} ({pods}) fit on one {type} ({capacity_type}, {price:.4f} USD per hour): "
    "the replacement saves {saving:.4f} USD per hour.",
)
CAPACITY_RETURNED = ReasonCode(
    "CapacityReturned", "Leeway gives {nodes} of cluster {cluster} back ({cause}). {why}"
)
CAPACITY_RETURN_REHEARSED = ReasonCode(
    "CapacityReturnRehearsed",
    "Leeway would give {nodes} of cluster {cluster} back ({cause}), and does nothing because of "
    "spec.dryRun. {why}",
)
CAPACITY_RETURN_FAILED = ReasonCode(
    "CapacityReturnFailed",
    "Leeway could not give capacity of cluster {cluster} back: {error}. The next run tries again.",
    "capacity-is-not-given-back",
)
LAUNCH_NOT_RECORDED = ReasonCode(
    "LaunchNotRecorded",
    "The tags of instance {instance} say that Leeway launched it for pool {pool}, and Leeway has "
    "no record of that: the instance is left alone.",
    "capacity-is-not-given-back",
)
DRIFT_NOT_KNOWN = ReasonCode(
    "DriftNotKnown",
    "Leeway cannot read which {what} pool {pool} launches with now: {error}. Its nodes do not "
    "drift by them.",
    "capacity-is-not-given-back",
)
POD_IS_BARE = ReasonCode(
    "PodIsBare",
    "Pod {pod} on node {node} has no controller that would create it again: the node is kept.",
)
NODE_IS_BUSY = ReasonCode(
    "NodeIsBusy",
    "A pod is ending on node {node}, or pods that it was launched for have no node yet.",
)
NODE_GOES_ALREADY = ReasonCode("NodeGoesAlready", "Node {node} is being retired already.")
NODE_WAS_KEPT = ReasonCode(
    "NodeWasKept",
    "Node {node} was to be given back, and something kept it then: it is not tried again before "
    "{until:%H:%M} UTC.",
)
NODE_UNHEALTHY = ReasonCode(
    "NodeUnhealthy",
    "Node {node} is unhealthy: {why}. While it is not Ready, it uses the budgets of its pool.",
    "a-node-is-unhealthy",
)
NODE_STARTS = ReasonCode("NodeStarts", "Node {node} is not Ready or not initialized.")
NODE_IS_PROTECTED = ReasonCode(
    "NodeIsProtected", "Node {node} has the annotation {annotation}: it is kept."
)
POD_IS_PROTECTED = ReasonCode(
    "PodIsProtected", "Pod {pod} on node {node} has the annotation {annotation}: it is kept."
)
POD_NOT_PLANNED = ReasonCode(
    "PodNotPlanned",
    "Node {node} is kept, because Leeway can plan no other node for its pod {pod}: {why}.",
)
POD_IS_BLOCKED = ReasonCode(
    "PodIsBlocked",
    "PodDisruptionBudget {budget} allows no disruption of pod {pod} on node {node} now.",
)
NODE_IS_EXPECTED = ReasonCode(
    "NodeIsExpected",
    "Node {node} has room that {pods:waiting pod needs|waiting pods need}: it is kept.",
)
POOL_NEVER_CONSOLIDATED = ReasonCode(
    "PoolNeverConsolidated", "Pool {pool} has consolidateAfter: Never."
)
NODE_NOT_QUIET = ReasonCode(
    "NodeNotQuiet",
    "Pods came to node {node} or left it {ago} ago; pool {pool} waits {after} (consolidateAfter).",
)
POOL_ONLY_EMPTY = ReasonCode(
    "PoolOnlyEmpty", "Node {node} has {pods:pod}, and pool {pool} gives back only empty nodes."
)
NODE_WITHOUT_PRICE = ReasonCode(
    "NodeWithoutPrice",
    "The price of {type} ({capacity_type}) in {zone} is not known, so no saving is known either.",
)
NODE_IS_RESERVED = ReasonCode(
    "NodeIsReserved",
    "Node {node} runs in capacity that is reserved and paid for anyway: to move its {pods:pod} "
    "would save nothing. It goes when it is empty.",
)
NOTHING_CHEAPER = ReasonCode(
    "NothingCheaper",
    "Neither the other nodes nor a cheaper node have room for the {pods:pod} of node {node}.",
)
NODE_NOT_EXAMINED = ReasonCode(
    "NodeNotExamined",
    "Leeway has not examined in this run whether a cheaper place exists for the {pods:pod} of node "
    "{node}: other nodes go first, or promise more.",
)
MOVE_NOT_WORTH = ReasonCode(
    "MoveNotWorth",
    "To move {pods:pod} would save {saving:.4f} USD per hour: less than a move is worth.",
)
ON_DEMAND_SHARE = ReasonCode(
    "OnDemandShare",
    "Node {node} is on-demand, and of the {total} vCPUs of pool {pool} {least} have to be: it has "
    "{on_demand}.",
)
NODE_TOO_YOUNG = ReasonCode(
    "NodeTooYoung",
    "Node {node} was launched {age} ago: nodes with pods are kept for {least} "
    "(spec.giveBack.leastAge).",
)
SPOT_NOT_FLEXIBLE = ReasonCode(
    "SpotNotFlexible",
    "Only {types:cheaper Spot instance type holds|cheaper Spot instance types hold} the pods of "
    "node {node}, and {least} are needed: the cheapest one alone would be interrupted soon.",
)
TOO_FEW_CHEAPER = ReasonCode(
    "TooFewCheaper",
    "Node {node} is not replaced by a cheaper one: pool {pool} requires {why} among those that "
    "cost less.",
)
DISRUPTION_BUDGET_USED = ReasonCode(
    "DisruptionBudgetUsed",
    "A budget of pool {pool} allows {limit:disrupted node} for the cause {cause}, and "
    "{disrupted} are disrupted{unready}.",
)
CLUSTER_BUDGET_USED = ReasonCode(
    "ClusterBudgetUsed", "The disruption budget of the cluster allows no further node now."
)
NODE_NOT_OF_LEEWAY = ReasonCode(
    "NodeNotOfLeeway",
    "Node {node} {why}: Leeway gives back only nodes that it has launched.",
)
