"""Reason codes of retirements: why a record changes, and why a retirement has to wait."""

from leeway.reasons import ReasonCode

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
