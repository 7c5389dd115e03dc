"""The codes of the command line's errors.

Every error is one line on stderr, `leeway: CODE: sentence`. With `-o json` it is also the field
`error` of the JSON document on stdout.
"""

from leeway.reasons import ReasonCode

_RUNBOOK = "a-leeway-command-fails"

# Bad input: exit code 2. The sentence names the place and what was expected there.
USAGE_ERROR = ReasonCode("UsageError", "{problem}.", _RUNBOOK)
INVALID_OPTION = ReasonCode("InvalidOption", "{option}: expected {expected}.", _RUNBOOK)
UNREADABLE_FILE = ReasonCode("UnreadableFile", "{path}: {error}.", _RUNBOOK)
INVALID_FILE = ReasonCode("InvalidFile", "{place}: {problem}.", _RUNBOOK)
INVALID_EVENT = ReasonCode("InvalidEvent", "{place}: {problem}.", _RUNBOOK)
INVALID_MANIFEST = ReasonCode("InvalidManifest", "{problem}.", _RUNBOOK)
INVALID_KUBECONFIG = ReasonCode("InvalidKubeconfig", "{error}.", _RUNBOOK)
INVALID_FAULT = ReasonCode(
    "InvalidFault", "The fault {fault!r} is invalid: expected {expected}.", _RUNBOOK
)

# AWS: exit code 1.
AWS_CREDENTIALS_MISSING = ReasonCode(
    "AwsCredentialsMissing",
    "No AWS credentials were found. Set AWS_PROFILE, or run `aws configure`.",
    _RUNBOOK,
)
AWS_CREDENTIALS_REJECTED = ReasonCode(
    "AwsCredentialsRejected", "AWS rejected the credentials ({error_code}): {error}.", _RUNBOOK
)
AWS_SIGN_IN_REQUIRED = ReasonCode(
    "AwsSignInRequired", "AWS requires a new sign-in: {error}. Run `aws sso login`.", _RUNBOOK
)
AWS_PROFILE_NOT_FOUND = ReasonCode(
    "AwsProfileNotFound", "AWS_PROFILE is invalid: {error}.", _RUNBOOK
)
AWS_REGION_MISSING = ReasonCode(
    "AwsRegionMissing", "No AWS region is set. Set AWS_REGION.", _RUNBOOK
)
AWS_UNREACHABLE = ReasonCode(
    "AwsUnreachable", "AWS did not answer a request for {target}: {error}.", _RUNBOOK
)
AWS_ACCESS_DENIED = ReasonCode(
    "AwsAccessDenied",
    "The AWS identity of this command may not call {action} on {target}. Grant it this action.",
    _RUNBOOK,
)
AWS_THROTTLED = ReasonCode(
    "AwsThrottled", "AWS throttled {action} on {target}. Try again in a minute.", _RUNBOOK
)
AWS_RESOURCE_NOT_FOUND = ReasonCode(
    "AwsResourceNotFound",
    "AWS found no {target}. Check the region and the option --stack.",
    _RUNBOOK,
)
AWS_CALL_FAILED = ReasonCode("AwsCallFailed", "An AWS call failed for {target}: {error}.", _RUNBOOK)
STACK_NOT_FOUND = ReasonCode(
    "StackNotFound",
    "Region {region} has no stack {stack}. Check AWS_REGION and --stack, or set {variable}.",
    _RUNBOOK,
)
STACK_WITHOUT_TABLE = ReasonCode(
    "StackWithoutTable",
    "Stack {stack} ({status}) has no output TableName, so it is not a deployment of Leeway.",
    _RUNBOOK,
)
CATALOG_NOT_READ = ReasonCode(
    "CatalogNotRead", "The instance types of the region could not be read: {error}.", _RUNBOOK
)

# Manifests: exit code 1.
MANIFEST_NOT_FOUND = ReasonCode(
    "ManifestNotFound", "Cluster {cluster} has no manifest {manifests}.", _RUNBOOK
)
MANIFEST_CONFLICT = ReasonCode("ManifestConflict", "{manifest}: conflict: {conflict}.", _RUNBOOK)
MANIFEST_DAMAGED = ReasonCode(
    "ManifestDamaged",
    "The stored manifest {manifest} is damaged. Apply it again with `leeway apply`.",
    _RUNBOOK,
)

# Kubernetes: exit code 1.
API_SERVER_UNAVAILABLE = ReasonCode(
    "ApiServerUnavailable", "The API server did not answer: {error}.", _RUNBOOK
)
API_SERVER_REFUSED = ReasonCode(
    "ApiServerRefused", "The API server refused a request: {error}.", _RUNBOOK
)
KUBECONFIG_CREDENTIALS_REJECTED = ReasonCode(
    "KubeconfigCredentialsRejected",
    "The API server rejected the credentials of the kubeconfig ({error}). Sign in again.",
    _RUNBOOK,
)
NODE_NOT_FOUND = ReasonCode("NodeNotInCluster", "The cluster has no node {node}.", _RUNBOOK)
POD_NOT_FOUND = ReasonCode("PodNotInCluster", "The cluster has no pod {pod}.", _RUNBOOK)
NODE_NOT_DRAINED = ReasonCode("NodeNotDrained", "{problems}.", _RUNBOOK)
NODE_NOT_READY = ReasonCode(
    "LaunchedNodeNotReady",
    "Instance {instance} was launched, and its node is not Ready: {problem}. Read its boot log "
    "with `aws ec2 get-console-output --latest --instance-id {instance}`.",
    _RUNBOOK,
)

# `leeway terminate`: exit code 1.
INSTANCE_UNKNOWN = ReasonCode(
    "InstanceUnknown",
    "EC2 has no instance {instance} in region {region}. Check AWS_REGION and the account.",
    _RUNBOOK,
)
INSTANCE_WITHOUT_CLUSTER = ReasonCode(
    "InstanceWithoutCluster",
    "Instance {instance} is not terminated: its tags do not name exactly one cluster.",
    _RUNBOOK,
)
INSTANCE_OF_OTHER_CLUSTER = ReasonCode(
    "InstanceOfOtherCluster",
    "Instance {instance} is not terminated: by its tags it belongs to cluster {cluster}, and this "
    "is {this}.",
    _RUNBOOK,
)
INSTANCE_HAS_NO_NODE = ReasonCode(
    "InstanceHasNoNode",
    "Instance {instance} is not terminated: it is {state}, and no node of the cluster names it.",
    _RUNBOOK,
)
NODE_WITHOUT_INSTANCE = ReasonCode(
    "NodeWithoutInstance",
    "Node {node} is not terminated: its provider id {provider_id} names no EC2 instance.",
    _RUNBOOK,
)
SEVERAL_NODES_OF_INSTANCE = ReasonCode(
    "SeveralNodesOfInstance",
    "Instance {instance} is not terminated: the nodes {nodes} all name it. Delete the Node objects "
    "that do not run on it.",
    _RUNBOOK,
)
OWNER_TERMINATES_NODE = ReasonCode(
    "OwnerTerminatesNode",
    "Node {node} is not terminated: its owner, {owner}, drains and terminates it. {instead}.",
    _RUNBOOK,
)
GROUP_AT_MINIMUM = ReasonCode(
    "GroupAtMinimum",
    "Node {node} is not terminated: --decrement would take group {group} from {desired} below its "
    "minimum of {minimum}. Lower the minimum, or leave out --decrement.",
    _RUNBOOK,
)
TERMINATION_FAILED = ReasonCode(
    "TerminationFailed",
    "Node {node} is drained and cordoned, and instance {instance} still runs: {error}. Run the "
    "command again to continue.",
    _RUNBOOK,
)
DRAIN_NOT_COMPLETE = ReasonCode(
    "DrainNotComplete",
    "Node {node} is not terminated, because it is not drained: {problem}.",
    _RUNBOOK,
)
NODES_NOT_TERMINATED = ReasonCode("NodesNotTerminated", "{problems}", _RUNBOOK)

# `leeway rehearse`: bad input, exit code 2; a missing right, exit code 1.
NO_NODES_TO_LOSE = ReasonCode(
    "NoNodesToLose",
    "{place}: expected the nodes and pods of a cluster, and found no node. Write the file with "
    "`{command}`.",
    _RUNBOOK,
)
RIGHTS_MISSING = ReasonCode(
    "RightsMissing",
    "The user of the kubeconfig may not list {kinds}. Grant the verb list on them in all "
    "namespaces.",
    _RUNBOOK,
)

# The sandbox and the demo: exit code 1.
SANDBOX_STILL_RUNS = ReasonCode(
    "SandboxStillRuns",
    "The sandbox process {pid} did not end within {seconds:.0f} s. Stop it with `kill {pid}`.",
    _RUNBOOK,
)
DEMO_FOUND_FAULTS = ReasonCode(
    "DemoFoundFaults",
    "The report lists {count} faults that correct work of Leeway would have prevented.",
    _RUNBOOK,
)
REPORT_NOT_WRITTEN = ReasonCode(
    "ReportNotWritten", "The report {path} could not be written: {error}.", _RUNBOOK
)

POOL_NOT_PAUSED = ReasonCode(
    "PoolNotPaused",
    "Pool {pool} of cluster {cluster} is not paused by Leeway; paused pools: {paused}.",
    _RUNBOOK,
)

# Every command.
INTERRUPTED = ReasonCode("Interrupted", "The command was interrupted.")
UNEXPECTED_ERROR = ReasonCode(
    "UnexpectedError",
    "{error_type}: {error}. Set {variable}=1 to see the traceback.",
    _RUNBOOK,
)
