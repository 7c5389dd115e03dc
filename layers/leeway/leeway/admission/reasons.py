"""Reason codes of admissions."""

from leeway.reasons import ReasonCode

_RUNBOOK = "nodes-are-not-ready"

NODE_ADMITTED = ReasonCode("NodeAdmitted", "The node is ready for pods.")

INSTANCE_POOLED = ReasonCode(
    "InstancePooled",
    "The startup time of the instance is over, and it enters the warm pool of its group. Its node "
    "can join after the instance leaves the pool.",
)

LAUNCH_HOOK_ENDED = ReasonCode(
    "LaunchHookEnded",
    "The lifecycle hook was answered by another client or timed out before the node was ready.",
)

NODE_NOT_OBSERVED = ReasonCode(
    "NodeNotObserved",
    "Leeway could not read the node before the deadline and did nothing to the instance. Check the "
    "network and the access entry of the function admit_node.",
    _RUNBOOK,
)

NODE_NOT_JOINED = ReasonCode(
    "NodeNotJoined",
    "No node has joined the cluster for the instance. Check its user data, its security groups and "
    "its node role.",
    _RUNBOOK,
)

INSTANCE_NEVER_JOINED = ReasonCode(
    "InstanceNeverJoined",
    "No node has joined the cluster for the instance since Leeway launched it for pool {pool} at "
    "{time:%H:%M} UTC, so Leeway terminates it. Check the user data, the AMI, the security groups "
    "and the access entry of the node role.",
    _RUNBOOK,
)

INSTANCE_NOT_TERMINATED = ReasonCode(
    "UnjoinedInstanceNotTerminated",
    "EC2 refused to terminate the instance: {error}. Terminate it by hand.",
    _RUNBOOK,
)

INSTANCE_ENDED_BEFORE_JOIN = ReasonCode(
    "InstanceEndedBeforeJoin",
    "EC2 has ended the instance before its node joined (its state is {state}).",
)

INSTANCE_NOT_OF_LAUNCH = ReasonCode(
    "InstanceNotOfLaunch",
    "Leeway does not terminate the instance, because it is not the one that Leeway launched: "
    "{difference}. Terminate it by hand if it is not needed.",
    _RUNBOOK,
)

NODE_NAME_TAKEN = ReasonCode(
    "NodeNameTaken",
    "Node {node} has the name of the instance and the provider id of another one: delete the Node, "
    "and the kubelet of the instance registers again.",
    _RUNBOOK,
)

NODE_REPLACED = ReasonCode(
    "NodeReplaced",
    "The Node was deleted or created again while Leeway labelled it.",
    _RUNBOOK,
)

NODE_STAYS_NOT_READY = ReasonCode("NodeStaysNotReady", "The node is not Ready.", _RUNBOOK)

DEVICE_NOT_ALLOCATABLE = ReasonCode(
    "DeviceNotAllocatable",
    "{resource} is not allocatable: {plugin} does not run on the node, or it found no device. "
    "Check whether its DaemonSet tolerates the taints of the node.",
    _RUNBOOK,
)

STARTUP_TAINT_PRESENT = ReasonCode(
    "StartupTaintPresent", "The node still has the startup taint {taint}.", _RUNBOOK
)

NODE_LABELS_REFUSED = ReasonCode(
    "NodeLabelsRefused",
    "Leeway could not add the labels and taints of the node: {error}.",
    _RUNBOOK,
)

NOT_REPORTED = ReasonCode(
    "AdmissionNotReported", "Leeway could not write {what}: {error}.", _RUNBOOK
)

# How a request changes the admission record.
FIRST_REQUEST = ReasonCode(
    "FirstRequest", "The request starts the first admission of the instance."
)
REQUEST_REPEATED = ReasonCode("RequestRepeated", "The request was received before.")
ADMISSION_START_REPEATED = ReasonCode(
    "AdmissionStartRepeated",
    "The request was received before; admit_node is started again in case the start was lost.",
)
REQUEST_OUTDATED = ReasonCode(
    "RequestOutdated", "The request is older than the last admission of the instance."
)
PREVIOUS_ADMISSION_ENDED = ReasonCode(
    "PreviousAdmissionEnded", "The previous admission of the instance has ended."
)
ADMISSION_EXECUTION_DIED = ReasonCode(
    "AdmissionExecutionDied",
    "The previous admission should have ended by {time:%Y-%m-%d %H:%M} UTC: its execution is "
    "treated as dead.",
    "admitnodefailuresalarm",
)
INSTANCE_LEAVES_POOL = ReasonCode(
    "InstanceLeavesPool", "The instance leaves the warm pool of its group."
)
ADMISSION_EXISTS = ReasonCode(
    "AdmissionExists", "The admission of the instance already covers this request."
)
HOOK_ADDED = ReasonCode(
    "HookAdded", "Another lifecycle hook waits for the admission of the instance."
)
