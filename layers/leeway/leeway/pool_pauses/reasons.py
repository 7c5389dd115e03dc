"""Reason codes of pauses of node pools."""

from leeway.reasons import ReasonCode

NODES_NEVER_JOINED = ReasonCode(
    "NodesNeverJoined",
    "Leeway paused pool {pool} of cluster {cluster}: {count} of its instances in a row never "
    "joined ({instances}). Check its user data, its AMI, its security groups, and the access entry "
    "of its node role. Then run `leeway resume {cluster} --pool {pool}`.",
    "a-pool-is-paused",
)

NODES_NEVER_READY = ReasonCode(
    "NodesNeverReady",
    "Leeway paused pool {pool} of cluster {cluster}: {count} of its instances in a row joined and "
    "were not ready for pods in time ({instances}). {why} Correct the cause, then run "
    "`leeway resume {cluster} --pool {pool}`.",
    "a-pool-is-paused",
)
