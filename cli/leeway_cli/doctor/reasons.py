"""The codes of the findings of `leeway doctor`; docs/doctor.md says more about each."""

from leeway.reasons import ReasonCode

_RUNBOOK = "leeway-doctor-has-findings"


def _code(name: str, sentence: str) -> ReasonCode:
    return ReasonCode(name, sentence, _RUNBOOK)


DOCTOR_FOUND_FAILURES = _code(
    "DoctorFoundFailures",
    "Leeway fails at some of its work because of {fails} findings.",
)
PART_NOT_READ = _code(
    "PartNotRead",
    "The doctor could not read {part}: {problem}.",
)

# The stack, its functions and what invokes them.
STACK_NOT_SETTLED = _code(
    "StackNotSettled",
    "Stack {stack} is {status}, so its resources may be of two versions.",
)
VERSIONS_DIFFER = _code(
    "VersionsDiffer",
    "Stack {stack} is of version {version}, and this command line is of {own}.",
)
STACK_WITHOUT_CLUSTERS = _code(
    "StackWithoutClusters",
    "The parameter ClusterNames of stack {stack} is empty, so Leeway ignores every notice.",
)
FUNCTION_MISSING = _code(
    "FunctionMissing",
    "Stack {stack} has no function {function}.",
)
FUNCTION_NOT_ACTIVE = _code(
    "FunctionNotActive",
    "Function {function} is {state}: {problem}.",
)
FUNCTION_STOPPED = _code(
    "FunctionStopped",
    "The reserved concurrency of function {function} is 0, so that Lambda never invokes it.",
)
FUNCTION_CAPPED = _code(
    "FunctionCapped",
    "Function {function} may run {reserved} times at once, and {needed} Spot instances can be "
    "interrupted at once.",
)
ALIAS_NOT_PUBLISHED = _code(
    "AliasNotPublished",
    "The alias {alias} of {function} points to {version}, and a durable execution needs a "
    "published version.",
)
ALIAS_MISSING = _code(
    "AliasMissing",
    "Function {function} has no alias {alias}.",
)
CONSUMER_NOT_ENABLED = _code(
    "ConsumerNotEnabled",
    "The event source mapping of {function} is {state}, so that pending pods get no nodes.",
)
CONSUMER_MISSING = _code(
    "ConsumerMissing",
    "Function {function} has no event source mapping of its queue.",
)
NOTICES_NOT_RECEIVED = _code(
    "NoticesNotReceived",
    "No rule of EventBridge sends events `{event}` to {function}: {problem}.",
)
SCHEDULE_MISSING = _code(
    "ScheduleMissing",
    "EventBridge Scheduler has no schedule {schedule} for {function}.",
)
SCHEDULE_DISABLED = _code(
    "ScheduleDisabled",
    "The schedule {schedule} is disabled, so that nothing invokes {function}.",
)
SCHEDULE_OF_OTHER_TARGET = _code(
    "ScheduleOfOtherTarget",
    "The schedule {schedule} invokes {target} instead of {function}.",
)
FAILURES_WAIT = _code(
    "FailuresWait",
    "Queue {queue} holds {messages} messages about work that failed.",
)
ALARM_IS_ON = _code(
    "AlarmIsOn",
    "Alarm {alarm} is on: {problem}.",
)
ALARMS_NOTIFY_NOBODY = _code(
    "AlarmsNotifyNobody",
    "{alarms} alarms of stack {stack} notify nobody: they have no action.",
)
ALARMS_MISSING = _code(
    "AlarmsMissing",
    "Stack {stack} has no alarms.",
)

# Quotas of the account.
CONCURRENCY_TOO_LOW = _code(
    "ConcurrencyTooLow",
    "The functions of this account without reserved concurrency may run {unreserved} at once. If "
    "EC2 interrupts all {spot} Spot instances, the last node is cordoned about {seconds} s later.",
)
STARTS_TOO_SLOW = _code(
    "StartsTooSlow",
    "Lambda starts {rate} durable executions a second. If EC2 interrupts all {spot} Spot "
    "instances, the last retirement starts about {seconds} s later.",
)
TERMINATIONS_LIMITED = _code(
    "TerminationsLimited",
    "{count} Spot instances are in groups without a terminate hook of Leeway. EC2 accepts "
    "{bucket} terminations at once and {rate} a second, so the last one is terminated about "
    "{seconds} s later.",
)
VCPU_QUOTA_REACHED = _code(
    "VcpuQuotaReached",
    "The instances of this account use {used} of {quota} vCPUs of the quota `{name}`, so EC2 "
    "launches no {type}.",
)
VCPU_QUOTA_NEAR = _code(
    "VcpuQuotaNear",
    "The instances of this account use {used} of {quota} vCPUs of the quota `{name}`.",
)

# The catalog and the clock.
CATALOG_ABSENT = _code(
    "CatalogAbsent",
    "Table {table} has no catalog of {region} that this version can read.",
)
CATALOG_OLD = _code(
    "CatalogOld",
    "The {part} of the catalog are {age} old.",
)
CLOCK_OFF = _code(
    "ClockOff",
    "The clock of this machine is {seconds} s {direction} AWS's. The functions are not affected; "
    "deadlines of `leeway drain` are.",
)

# Auto Scaling groups.
GROUP_AT_MAXIMUM = _code(
    "GroupHasNoRoom",
    "Group {group} is at its maximum of {maximum}, so a replacement comes after the old node is "
    "gone.",
)
GROUP_OF_ONE_ZONE = _code(
    "GroupOfOneZone",
    "Group {group} has one zone, {zone}. Without capacity there it gets no successor.",
)
GROUP_OF_ONE_TYPE = _code(
    "GroupOfOneType",
    "Group {group} launches Spot instances of one type, {type}. EC2 often interrupts all of them "
    "together, and then has no successor.",
)
GROUP_WITH_LAUNCH_CONFIGURATION = _code(
    "GroupWithLaunchConfiguration",
    "Group {group} uses launch configuration {configuration}, with which LaunchInstances does not "
    "work: a replacement comes after the old instance has left.",
)
GROUP_LAUNCHES_SUSPENDED = _code(
    "GroupLaunchesSuspended",
    "Process Launch of group {group} is suspended, so Leeway drains its nodes without successors.",
)
GROUP_PROCESSES_SUSPENDED = _code(
    "GroupProcessesSuspended",
    "Processes of group {group} are suspended: {processes}. {effect}.",
)
GROUP_REBALANCES = _code(
    "GroupRebalances",
    "Capacity Rebalancing is on in group {group}: after a rebalance recommendation the group "
    "replaces the instance itself, beyond the disruption budget.",
)
HOOK_OF_OTHERS = _code(
    "HookOfOthers",
    "Hook {hook} of group {group} notifies somebody else, who answers it: it waits for "
    "{transition} as well as Leeway's.",
)
HOOK_TOO_SHORT = _code(
    "HookTooShort",
    "Hook {hook} of group {group} waits {timeout} s for a heartbeat. A function that starts late "
    "misses it; at least {limit} s are safe.",
)
HOOK_TOO_LONG = _code(
    "HookTooLong",
    "Hook {hook} of group {group} keeps an instance for {timeout} s if Leeway does not run.",
)
HOOK_ABANDONS = _code(
    "HookAbandons",
    "Hook {hook} of group {group} abandons instances: the group terminates good ones whenever "
    "Leeway answers late.",
)

# A second handler of the same notices.
SECOND_HANDLER_IN_CLUSTER = _code(
    "SecondHandlerInCluster",
    "{kind} {name} in namespace {namespace} runs {program}, which drains the same nodes as Leeway.",
)
SECOND_HANDLER_RULE = _code(
    "SecondHandlerRule",
    "Rule {rule} sends events `{event}` to {target}: its reader acts on them as well as Leeway.",
)
KARPENTER_READS_NOTICES = _code(
    "KarpenterReadsNotices",
    "Karpenter in namespace {namespace} reads notices from queue {queue}, and the Cluster "
    "manifest lets Leeway take its nodes: both drain them.",
)
MANAGED_GROUPS_TAKEN = _code(
    "ManagedGroupsTaken",
    "The Cluster manifest lets Leeway take managed node groups: EKS drains {groups} as well.",
)

# What users wrote, and pools.
CLUSTER_PAUSED = _code(
    "ClusterIsPaused",
    "Cluster {cluster} is paused: Leeway begins no voluntary retirement.",
)
CLUSTER_IN_DRY_RUN = _code(
    "ClusterInDryRun",
    "Cluster {cluster} is in dry run: Leeway reports decisions and changes nothing.",
)
POOL_WITHOUT_LIMITS = _code(
    "PoolWithoutLimits",
    "Pool {pool} has no spec.limits, so everybody who may create pods can have nodes launched "
    "until Leeway's nodes of the cluster cost {most}.",
)
MANIFEST_HAS_ERRORS = _code(
    "ManifestHasErrors",
    "{problem}.",
)
POOL_IS_PAUSED = _code(
    "PoolIsPaused",
    "Leeway launches nothing from pool {pool}: {problem}.",
)
POOL_NEVER_LAUNCHED = _code(
    "PoolNeverLaunched",
    "No node of pool {pool} has ever joined: nobody knows yet whether its nodes can.",
)
POOL_NOT_LAUNCHABLE = _code(
    "PoolNotLaunchable",
    "Nothing can be launched from pool {pool}: {problem}.",
)
NODE_ROLE_MISSING = _code(
    "NodeRoleMissing",
    "IAM has no role {role}, which pool {pool} names.",
)
NODE_ROLE_NOT_ALLOWED = _code(
    "NodeRoleNotAllowed",
    "The parameter NodeRoleArns of stack {stack} does not name role {role} of pool {pool}, so "
    "Leeway may launch no node with it.",
)
NODE_ROLE_WITHOUT_POLICY = _code(
    "NodeRoleWithoutPolicy",
    "Role {role} of pool {pool} has no managed policy {policy}: {effect} unless another policy "
    "grants the same.",
)

# Rights in the cluster.
RIGHT_MISSING = _code(
    "RightMissing",
    "Group {group} may not {verb} {resource}{where} in cluster {cluster}.",
)
CLUSTER_NOT_ACTIVE = _code(
    "ClusterNotActive",
    "Cluster {cluster} is {status}.",
)

# What the functions found about their own rights.
PROBES_NOT_ANSWERED = _code(
    "ProbesNotAnswered",
    "Function {function} did not say which calls AWS refuses it: {problem}.",
)
STATEMENT_MISSING = _code(
    "StatementMissing",
    "AWS refuses {function} {calls}: its role lacks statement {statement} of template.yaml, or "
    "another policy denies it. {problem}.",
)
SERVICE_NOT_REACHED = _code(
    "ServiceNotReached",
    "Function {function} gets no answer of {service}: {problem}.",
)
PROBE_UNCLEAR = _code(
    "ProbeUnclear",
    "Function {function} asked for {call} and got an answer that says nothing about its right: "
    "{problem}.",
)
CLUSTER_REFUSES_FUNCTION = _code(
    "ClusterRefusesFunction",
    "Function {function} could not ask the API server of cluster {cluster} for its rights: "
    "{problem}.",
)
FUNCTION_WITHOUT_RIGHTS = _code(
    "FunctionWithoutRights",
    "With its own token, function {function} may not {rights} in cluster {cluster}: its access "
    "entry does not give it the rights of group {group}.",
)
