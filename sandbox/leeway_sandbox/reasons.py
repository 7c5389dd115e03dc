"""The reason codes of every error that the sandbox reports to a person.

A code is stable: scripts and runbooks may depend on it. Errors of the Kubernetes API and of AWS
services are not here: they have the format of the real ones.
"""

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class ReasonCode:
    """A CamelCase code, its sentence with `{placeholders}`, and what the reader can do."""

    name: str
    sentence: str
    remedy: str


class ReasonError(Exception):
    """An error with a reason code; its text is the sentence of the code."""

    reason: ReasonCode

    def __init__(self, reason: ReasonCode, /, **values: Any) -> None:
        super().__init__(reason.sentence.format(**values))
        self.reason = reason

    @property
    def code(self) -> str:
        """The name of the reason code."""
        return self.reason.name

    @classmethod
    def relayed(cls, code: str, message: str) -> Self:
        """Return an error that another process of the sandbox reported with this code."""
        known = {reason.name: reason for reason in all_codes()}
        error = cls(CONTROL_REQUEST_REFUSED, problem=message)
        if code in known:
            error.reason, error.args = known[code], (message,)
        return error


def all_codes() -> tuple[ReasonCode, ...]:
    """Return every reason code, in the order of this module."""
    return tuple(value for value in globals().values() if isinstance(value, ReasonCode))


# The life of a sandbox
SANDBOX_ALREADY_RUNNING = ReasonCode(
    "SandboxAlreadyRunning",
    "A sandbox already runs with its state in {state_dir}.",
    "Stop it with `leeway sandbox down`, or give another folder with --state-dir.",
)
SANDBOX_NOT_RUNNING = ReasonCode(
    "SandboxNotRunning",
    "No sandbox runs with its state in {state_dir}.",
    "Start one with `leeway sandbox up`, or give its folder with --state-dir.",
)
SANDBOX_EXITED = ReasonCode(
    "SandboxExited",
    "The sandbox with its state in {state_dir} exited unexpectedly.",
    "Read the logs in that folder, then start the sandbox again.",
)
PROCESS_NOT_STARTED = ReasonCode(
    "ProcessNotStarted",
    "{module} did not start; the end of its log, {log}:\n{tail}",
    "Correct the error in the log, then start the sandbox again.",
)
PROCESS_NOT_READY = ReasonCode(
    "ProcessNotReady",
    "{module} was not ready after {seconds:.0f} s; the end of its log, {log}:\n{tail}",
    "Check that the machine has free processor time and memory, then start the sandbox again.",
)
CLUSTER_NOT_READY = ReasonCode(
    "ClusterNotReady",
    "The cluster was not ready after {seconds:.0f} s: {ready} of {nodes} nodes are Ready, "
    "{running} of {pods} pods run.",
    "Start fewer nodes with --nodes, or read the logs in the state folder.",
)
DOCKER_BRIDGE_UNKNOWN = ReasonCode(
    "DockerBridgeUnknown",
    "`{command}` does not return the address of Docker's bridge ({problem}). Give --host and "
    "--advertise with the address at which containers reach this machine.",
    "Give --host and --advertise, or start Docker.",
)

# Addresses and access
ADDRESS_UNSPECIFIED = ReasonCode(
    "AddressUnspecified",
    "{host} is every interface of this machine, and any client of a network could use the sandbox.",
    "Give the one address that clients use.",
)
ADDRESS_UNKNOWN = ReasonCode(
    "AddressUnknown",
    "{host} is not an address of this machine: {problem}.",
    "Give an address of one of this machine's interfaces.",
)
PORT_IN_USE = ReasonCode(
    "PortInUse",
    "Port {port} of {host} is already in use.",
    "Stop the process that uses it, or give another port (0 is any free port).",
)
ADDRESS_NOT_AVAILABLE = ReasonCode(
    "AddressNotAvailable",
    "The sandbox cannot listen at {host}, port {port}: {problem}.",
    "Give an address of one of this machine's interfaces and a port that this user may open.",
)
TOKEN_FILE_MISSING = ReasonCode(
    "TokenFileMissing",
    "The control token cannot be read from {path}: {problem}.",
    "Give the file `control-token` of the state folder.",
)
TOKEN_FILE_EXPOSED = ReasonCode(
    "TokenFileExposed",
    "Other users can read the control token in {path} (mode {mode:04o}, not 0600).",
    "Start the sandbox again, which writes a new token; then keep the mode 0600.",
)
TOKEN_FILE_EMPTY = ReasonCode(
    "TokenFileEmpty",
    "The file {path} holds no control token.",
    "Give the file `control-token` of the state folder.",
)
HOST_NOT_ALLOWED = ReasonCode(
    "HostNotAllowed",
    "The Host header {host!r} names none of the addresses of this server.",
    "Call 127.0.0.1, the address of --host, or the name of --advertise.",
)
CONTROL_TOKEN_REQUIRED = ReasonCode(
    "ControlTokenRequired",
    "This call needs the control token as a bearer token.",
    "Send `Authorization: Bearer TOKEN` with the token of the file `control-token`.",
)
CALLER_NOT_LOCAL = ReasonCode(
    "CallerNotLocal",
    "Only workers on this machine call the Lambda Runtime API.",
    "Call the Lambda API instead.",
)

# Requests to the control APIs
CONTROL_ROUTE_NOT_FOUND = ReasonCode(
    "ControlRouteNotFound",
    "The control API has no route {method} {path}.",
    "Check the path; each process of the sandbox has routes of its own.",
)
CONTROL_REQUEST_INVALID = ReasonCode(
    "ControlRequestInvalid",
    "The request is not valid: {problem}",
    "Correct the field that the message names.",
)
CONTROL_REQUEST_REFUSED = ReasonCode(
    "ControlRequestRefused",
    "A process of the sandbox refused the request: {problem}",
    "Correct the request as the message says.",
)
CONTROL_API_UNREACHABLE = ReasonCode(
    "ControlApiUnreachable",
    "The control API of the process {part} does not answer: {problem}.",
    "Read the log of that process in the state folder, then start the sandbox again.",
)
CONTROL_API_FAILED = ReasonCode(
    "ControlApiFailed",
    "The control API of the process {part} answered HTTP {status}: {problem}",
    "Read the log of that process in the state folder.",
)
EVENT_INVALID = ReasonCode(
    "EventInvalid",
    "An event is a JSON object with at least a source.",
    "Send an event as EventBridge delivers it, such as one of events/*.json.",
)
INSTANCE_NOT_FOUND = ReasonCode(
    "NoSuchInstance",
    "EC2 has no instance {instance}.",
    "List the instances with DescribeInstances.",
)
INSTANCE_NOT_RUNNING = ReasonCode(
    "InstanceNotRunning",
    "EC2 has no running instance {instance}.",
    "Name an instance that is not terminated.",
)
INSTANCE_REPORT_INVALID = ReasonCode(
    "InstanceReportInvalid",
    "The state {state!r} with the node {node!r} is not valid.",
    "Report running with a node, stopped, or terminated.",
)
SCHEDULE_NOT_FOUND = ReasonCode(
    "ScheduleNotFound",
    "No enabled schedule has the name or ARN {schedule}.",
    "List the schedules with `leeway sandbox schedules`.",
)

# The template and its deployment
TEMPLATE_REFUSED = ReasonCode(
    "TemplateRefused",
    "The SAM translator refuses the template: {problem}",
    "Correct the template; `sam validate --lint` shows the place.",
)
PARAMETER_UNKNOWN = ReasonCode(
    "ParameterUnknown",
    "The template has no parameter {parameter}.",
    "Give only parameters that the template declares.",
)
PARAMETER_MISSING = ReasonCode(
    "ParameterMissing",
    "The parameter {parameter} has no default and no value.",
    "Give a value for it.",
)
REFERENCE_UNKNOWN = ReasonCode(
    "ReferenceUnknown",
    "{resource}: the template has no parameter or resource {name}.",
    "Correct the name in the template.",
)
CONDITION_UNKNOWN = ReasonCode(
    "ConditionUnknown",
    "{resource}: the template has no condition {name}.",
    "Correct the name in the template.",
)
ATTRIBUTE_NOT_SUPPORTED = ReasonCode(
    "AttributeNotSupported",
    "{resource}: the sandbox does not support the attribute {attribute} of {name} ({kind}).",
    "Add the attribute to sandbox/leeway_sandbox/intrinsics.py.",
)
INTRINSIC_NOT_SUPPORTED = ReasonCode(
    "IntrinsicNotSupported",
    "{resource}: the sandbox does not support {function}.",
    "Add the function to sandbox/leeway_sandbox/intrinsics.py, or write the value another way.",
)
INTRINSIC_FAILED = ReasonCode(
    "IntrinsicFailed",
    "{resource}: {function} of {argument!r} fails: {problem}",
    "Correct the arguments in the template.",
)
LAYER_NOT_IN_TEMPLATE = ReasonCode(
    "LayerNotInTemplate",
    "{function}: the layer {layer} is not a resource of this template.",
    "Declare the layer in the template.",
)
CODE_FOLDER_MISSING = ReasonCode(
    "CodeFolderMissing",
    "{function}: the folder {folder} does not exist.",
    "Correct CodeUri or ContentUri, or run `make build`.",
)
INVOKE_PERMISSION_MISSING = ReasonCode(
    "InvokePermissionMissing",
    "{rule}: no AWS::Lambda::Permission lets {principal} invoke {target}.",
    "Add the permission: EventBridge drops such events without an error.",
)
DURABLE_FUNCTION_UNQUALIFIED = ReasonCode(
    "DurableFunctionUnqualified",
    "{source}: the durable function {function} needs an alias or a version.",
    "Name an alias in the target.",
)
EVENT_SOURCE_NOT_SUPPORTED = ReasonCode(
    "EventSourceNotSupported",
    "{mapping}: the sandbox supports enabled event sources of SQS queues, not {source!r}.",
    "Use an SQS queue, or add the source to leeway_sandbox/lambda_service/event_sources.py.",
)
EVENT_SOURCE_REFUSED = ReasonCode(
    "EventSourceRefused",
    "{mapping}: Lambda refuses the event source mapping: {problem}.",
    "Correct the queue, the function or the event in the template.",
)
SCHEDULE_REFUSED = ReasonCode(
    "ScheduleRefused",
    "{schedule}: EventBridge Scheduler refuses the schedule: {problem}",
    "Correct the schedule in the template.",
)
FUNCTIONS_REFUSED = ReasonCode(
    "FunctionsRefused",
    "The Lambda service refuses the functions: {problem}",
    "Correct the function that the message names.",
)
ACCESS_RULES_UNREADABLE = ReasonCode(
    "AccessRulesUnreadable",
    "The access rules in {file} cannot be read: {problem}",
    "Give a YAML file, or a folder of YAML files, that this user can read.",
)
ACCESS_RULE_NOT_SUPPORTED = ReasonCode(
    "AccessRuleNotSupported",
    "{file}: the kind {kind!r} is not a role, a binding, an admission policy or a namespace.",
    "Keep only such objects in the files of --rbac.",
)

# A real cluster as the sandbox's Kubernetes
KUBECONFIG_UNREADABLE = ReasonCode(
    "KubeconfigUnreadable",
    "The kubeconfig {file} cannot be used: {problem}.",
    "Give a kubeconfig with --kubeconfig, and one of its contexts with --context.",
)
CLUSTER_NOT_LOCAL = ReasonCode(
    "ClusterNotLocal",
    "The API server of context {context}, {server}, is not on this machine, and a sandbox drains"
    " and deletes nodes.",
    "Use a cluster on this machine, or allow this one with --yes-this-cluster and its context.",
)
CLUSTER_UNREACHABLE = ReasonCode(
    "ClusterUnreachable",
    "The API server {server} does not do what the sandbox needs: {problem}.",
    "The user of the kubeconfig needs the rights of cluster-admin: to impersonate, and to create"
    " ClusterRoles.",
)
CLUSTER_WITHOUT_NODES = ReasonCode(
    "ClusterWithoutNodes",
    "The cluster of context {context} has no nodes besides its control plane.",
    "Create it with worker nodes: the sandbox interrupts no node of a control plane.",
)
CLUSTER_HAS_LEEWAY = ReasonCode(
    "ClusterHasLeeway",
    "The cluster has a {what} that this sandbox did not create.",
    "Take Leeway's access rules out of the cluster first, or use another test cluster.",
)
CLUSTER_NAMESPACE_TERMINATES = ReasonCode(
    "ClusterNamespaceTerminates",
    "The namespace {namespace} of an earlier sandbox still terminates after {seconds:.0f} s.",
    "Find out with `kubectl describe namespace {namespace}` what keeps it, and repeat the command.",
)
FAULTS_NOT_OF_REAL_CLUSTER = ReasonCode(
    "FaultsNotOfRealCluster",
    "The sandbox injects no faults into a real cluster.",
    "Use faults of the parts aws and lambda, or a sandbox with its own Kubernetes.",
)
