"""Reason codes of pod watches: why a run watches or ends, and what failed."""

from leeway.reasons import ReasonCode

_RUNBOOK = "pods-are-not-watched"

NO_CLUSTER_TO_WATCH = ReasonCode(
    "NoClusterToWatch",
    "No cluster has a pool and a Cluster manifest that allows watches: no pods are watched.",
)

PODS_ALREADY_WATCHED = ReasonCode(
    "PodsAlreadyWatched", "Run {holder} watches pods until {ends_at}: this run does not."
)

TOO_LITTLE_TIME_TO_WATCH = ReasonCode(
    "TooLittleTimeToWatch",
    "The function has {seconds} s left, which is too short for a watch. Raise its timeout.",
)

WATCH_LEASE_FREE = ReasonCode("WatchLeaseFree", "No run has watched pods before: this run does.")

WATCH_LEASE_EXPIRED = ReasonCode(
    "WatchLeaseExpired",
    "Run {holder} renewed the lease last at {renewed_at} and has ended: this run watches pods.",
)

WATCH_TAKEN_OVER = ReasonCode(
    "WatchTakenOver", "Run {holder} ends at {ends_at}: this run watches pods from now on."
)

WATCH_LEASE_KEPT = ReasonCode("WatchLeaseKept", "This run holds the lease.")

WATCH_HANDOVER_PENDING = ReasonCode(
    "WatchHandoverPending",
    "Run {holder} has taken the lease and does not watch all clusters yet: this run goes on.",
)

WATCH_HANDED_OVER = ReasonCode(
    "WatchHandedOver", "Run {holder} watches all clusters: this run ends."
)

WATCH_TIME_OVER = ReasonCode("WatchTimeOver", "The time of this run is over.")

WATCH_LEASE_UNAVAILABLE = ReasonCode(
    "WatchLeaseUnavailable",
    "The lease of the pod watches can't be read or written: {error}. {consequence}",
    _RUNBOOK,
)

POD_WATCH_INTERRUPTED = ReasonCode(
    "PodWatchInterrupted",
    "The watch on unscheduled pods of cluster {cluster} ended early: {error}. It is retried with "
    "growing pauses; meanwhile pending pods wait for the schedule of each minute.",
    _RUNBOOK,
)

POD_WATCH_REFUSED = ReasonCode(
    "PodWatchRefused",
    "The API server of cluster {cluster} refuses the watch on pods: {error}. Apply rbac/ and "
    "create the access entry of the role of watch_pods with the group leeway:watch.",
    _RUNBOOK,
)

POD_WATCH_RESTORED = ReasonCode(
    "PodWatchRestored", "The watch on unscheduled pods of cluster {cluster} works again."
)

POOLS_NOT_READ = ReasonCode(
    "PoolsNotRead", "The pools of cluster {cluster} can't be read: {error}.", _RUNBOOK
)

PROVISIONING_NOT_WOKEN = ReasonCode(
    "ProvisioningNotWoken",
    "The message to provision_nodes for cluster {cluster} can't be sent: {error}. It is retried.",
    _RUNBOOK,
)

PODS_UNSCHEDULABLE = ReasonCode(
    "PodsUnschedulable", "The scheduler found no node for {pods} new pods."
)

MINUTE_SCHEDULE = ReasonCode("MinuteSchedule", "The schedule of each minute.")
