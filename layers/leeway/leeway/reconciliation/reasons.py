"""Reason codes of reconcile: lost events, the work done about them, clean-ups and problems."""

from leeway.reasons import ReasonCode

_MISSING = "eventbridge-delivers-no-notices"
_PROBLEMS = "clusterproblemsalarm"

# Findings.
HOOK_EVENT_LOST = ReasonCode(
    "HookEventLost",
    "Instance {instance} waits for lifecycle hook {hook}, and Leeway received no event about it.",
    _MISSING,
)
HOOK_WORK_NOT_DONE = ReasonCode(
    "HookWorkNotDone",
    "Instance {instance} waits for lifecycle hook {hook}, and its retirement ended without effect, "
    "for example under a dry run.",
)
HOOK_ANSWER_LOST = ReasonCode(
    "HookAnswerLost",
    "Instance {instance} waits for lifecycle hook {hook} although the work is finished: the answer "
    "was lost.",
    _MISSING,
)
INTERRUPTION_EVENT_LOST = ReasonCode(
    "InterruptionEventLost",
    "EC2 interrupts Spot instance {instance} ({action}), and Leeway received no event about it.",
    _MISSING,
)
STATE_EVENT_LOST = ReasonCode(
    "StateEventLost",
    "EC2 reports instance {instance} as {state}, and Leeway received no event about it.",
    _MISSING,
)
RESTART_EVENT_LOST = ReasonCode(
    "RestartEventLost",
    "Instance {instance} was stopped and runs again, and Leeway received no event about it.",
    _MISSING,
)
SCHEDULED_CHANGE_EVENT_LOST = ReasonCode(
    "ScheduledChangeEventLost",
    "EC2 has scheduled {change} of instance {instance} for {time} UTC, and Leeway received no "
    "event about it.",
    _MISSING,
)
SCHEDULED_CHANGE_CANCELLED = ReasonCode(
    "ScheduledChangeCancelled",
    "EC2 cancelled or postponed the scheduled change that the retirement of instance {instance} "
    "waits for.",
)
SCHEDULED_CHANGE_COMPLETED = ReasonCode(
    "ScheduledChangeCompleted",
    "Instance {instance} still runs after the scheduled change that its node was drained for.",
)
STATUS_CHECKS_FAIL = ReasonCode(
    "StatusChecksFail",
    "The EC2 status checks ({checks}) of instance {instance} have failed since {since} UTC.",
)
STATUS_CHECKS_RECOVERED = ReasonCode(
    "StatusChecksRecovered", "The EC2 status checks of instance {instance} pass again."
)
INSTANCE_STILL_RUNS = ReasonCode(
    "RetiredInstanceRuns",
    "Leeway has to terminate instance {instance} after its drain, and it still runs.",
    "retirementproblemsalarm",
)
INSTANCE_HAS_ENDED = ReasonCode(
    "RetiredInstanceEnded",
    "Leeway had to terminate instance {instance} after its drain, and it has ended.",
)
START_LOST = ReasonCode(
    "StartLost",
    "Attempt {attempt} of instance {instance} is recorded and has done nothing: its start may be "
    "lost.",
    _MISSING,
)
EXECUTION_OVERDUE = ReasonCode(
    "ExecutionOverdue",
    "The {work} of instance {instance} should have ended by {time} UTC: its execution has died.",
    "retirenodefailuresalarm",
)
CAPACITY_NOT_RESTORED = ReasonCode(
    "GroupCapacityNotRestored",
    "The retirement of instance {instance} raised the desired capacity of its group and did not "
    "lower it again.",
)

# Work done about findings.
EVENT_HANDLED = ReasonCode("LostEventHandled", "Leeway handled the notice ({outcomes}).")
LOST_START_REPEATED = ReasonCode("LostStartRepeated", "Leeway started attempt {attempt} again.")
LOST_ANSWER_REPEATED = ReasonCode(
    "LostAnswerRepeated", "Leeway answered lifecycle hook {hook} with {result}."
)
HOOK_NOT_WAITING = ReasonCode(
    "HookNotWaiting", "Lifecycle hook {hook} does not wait for an answer any more."
)

# Clean-ups.
NODE_CLEANED_UP = ReasonCode(
    "NodeCleanedUp",
    "EC2 reports instance {instance} as terminated: Leeway detached the volumes of its node and "
    "deleted the Node object.",
)
NODE_ABSENT = ReasonCode(
    "NodeAbsent", "The cluster has no Node object with the name of instance {instance}."
)
NODE_CHANGED = ReasonCode(
    "NodeChanged",
    "Node {node} was deleted or changed after Leeway read it. The next run checks it again.",
)
NODE_REUSED = ReasonCode(
    "NodeReused", "Instance {instance} has the name of node {node} now and uses its Node object."
)
VOLUMES_ATTACHED = ReasonCode(
    "VolumesStillAttached",
    "{count} volumes are still attached to node {node}. The next run checks them again.",
)
INSTANCE_EXISTS = ReasonCode(
    "InstanceExists", "EC2 reports instance {instance} as {state}: its node is kept."
)
INSTANCE_STATE_UNKNOWN = ReasonCode(
    "InstanceStateUnknown", "EC2 returned no state of instance {instance}: its node is kept."
)
CLEAN_UP_DEFERRED = ReasonCode(
    "CleanUpDeferred",
    "Instance {instance} was not cleaned up: {error}. The next run of reconcile does it within a "
    "minute.",
)

# Problems.
AWS_NOT_READ = ReasonCode(
    "AwsNotRead", "Reconcile could not read {what} from AWS: {error}.", _PROBLEMS
)
RECORDS_NOT_READ = ReasonCode(
    "RecordsNotRead", "Reconcile could not read records from the table: {error}.", _PROBLEMS
)
RECORD_INVALID = ReasonCode(
    "RecordInvalid",
    "Reconcile skipped a record that it cannot parse: {error}.",
    _PROBLEMS,
)
FINDING_NOT_HANDLED = ReasonCode(
    "FindingNotHandled",
    "{finding} Reconcile failed to act on it: {error}. The next run retries it.",
    _PROBLEMS,
)
CLEAN_UP_FAILED = ReasonCode(
    "CleanUpFailed",
    "Reconcile could not clean up after instance {instance}: {error}. The next run retries it.",
    _PROBLEMS,
)
NODES_NOT_READ = ReasonCode(
    "NodesNotRead", "Reconcile could not read the nodes of the cluster: {error}.", _PROBLEMS
)
INDEX_NOT_UPDATED = ReasonCode(
    "IndexNotUpdated",
    "Reconcile could not read or write the index of instances: {error}.",
    _PROBLEMS,
)
CLUSTER_NOT_RECONCILED = ReasonCode(
    "ClusterNotReconciled", "Reconcile could not start on the cluster: {error}.", _PROBLEMS
)
LAUNCHES_NOT_CHECKED = ReasonCode(
    "LaunchesNotChecked",
    "Leeway could not check the launched instances, the launch templates or the paused pools of "
    "the cluster: {error}.",
    _PROBLEMS,
)
LAUNCH_TEMPLATES_DELETED = ReasonCode(
    "LaunchTemplatesDeleted", "Leeway deleted launch templates that no launch uses: {names}."
)
