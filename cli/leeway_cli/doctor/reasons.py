"""The codes of the findings of `leeway doctor`: one for each thing that somebody has to mend.

The sentence of a finding says what is wrong; programs and runbooks match on the code.
"""

from leeway.reasons import ReasonCode

_RUNBOOK = "leeway-doctor-has-findings"


def _code(name: str, sentence: str) -> ReasonCode:
    return ReasonCode(name, sentence, _RUNBOOK)


PART_NOT_READ = _code("PartNotRead", "The doctor could not read something.")

STACK_NOT_SETTLED = _code(
    "StackNotSettled", "An update of the stack failed, or has not ended, or the stack is deleted."
)
VERSIONS_DIFFER = _code(
    "VersionsDiffer", "The stack and this command line are of different versions of Leeway."
)
STACK_WITHOUT_CLUSTERS = _code(
    "StackWithoutClusters", "ClusterNames of the stack is empty, so Leeway ignores every notice."
)
FUNCTION_NOT_RUNNABLE = _code(
    "FunctionNotRunnable", "Lambda cannot run a function of the stack, or too few at once."
)
FUNCTION_NOT_INVOKED = _code(
    "FunctionNotInvoked", "A rule, a schedule or a queue does not invoke its function."
)
FAILURES_WAIT = _code("FailuresWait", "A queue holds messages about work that failed.")
ALARM_IS_ON = _code("AlarmIsOn", "An alarm of the stack is on.")
ALARMS_NOTIFY_NOBODY = _code(
    "AlarmsNotifyNobody", "The stack has no alarms, or alarms without an action."
)
QUOTA_TOO_LOW = _code(
    "QuotaTooLow", "A quota of the account is too low for the Spot instances of the clusters."
)
CATALOG_OLD = _code("CatalogOld", "The catalog of instance types is missing or old.")
CLOCK_OFF = _code("ClockOff", "The clock of this machine differs from the clock of AWS.")

CLUSTER_SETTING_DIFFERS = _code(
    "ClusterSettingDiffers",
    "A setting that `leeway adopt` writes is missing or differs, or cannot be written.",
)
POLICIES_MISSING = _code(
    "AdmissionPoliciesMissing",
    "An API server is older than Kubernetes 1.30: no policy limits the rights of Leeway's groups.",
)
RIGHT_MISSING = _code(
    "RightMissing", "AWS or an API server refuses a function or a group something that it needs."
)
PROBE_NOT_ANSWERED = _code(
    "ProbeNotAnswered", "A function does not say which of its calls AWS refuses."
)
ENDPOINT_NOT_REACHABLE = _code(
    "EndpointNotReachable", "The functions cannot reach the API server of a cluster."
)
GROUP_LIMITS_REPLACEMENT = _code(
    "GroupLimitsReplacement", "The settings of an Auto Scaling group delay or prevent successors."
)
HOOK_UNSAFE = _code(
    "HookUnsafe", "A lifecycle hook holds instances too long, too short, or for somebody else."
)
TARGETS_CUT_OFF = _code(
    "TargetsCutOff", "Pods or nodes end while a load balancer keeps connections to them."
)
READINESS_GATE_MISSING = _code(
    "ReadinessGateMissing", "Pods count as available before a load balancer sends to them."
)
SECOND_HANDLER = _code(
    "SecondHandler", "Another program acts on the same notices or drains the same nodes."
)
CLUSTER_INACTIVE = _code("ClusterInactive", "A cluster is paused or in dry run.")
MANIFEST_HAS_ERRORS = _code("ManifestHasErrors", "A stored manifest has an error.")
POOL_NOT_LAUNCHABLE = _code(
    "PoolNotLaunchable", "Leeway launches no nodes from a pool, or they cannot join."
)
POOL_NEVER_LAUNCHED = _code("PoolNeverLaunched", "No node of a pool has ever joined.")
RESERVATION_UNUSED = _code(
    "ReservationUnused", "A capacity reservation is paid for, and a pool that selects it uses none."
)
RESERVATION_ENDS = _code(
    "ReservationEnds", "A capacity reservation that a pool uses ends within a week."
)
POOL_WITHOUT_LIMITS = _code(
    "PoolWithoutLimits", "A pool has no spec.limits, so that whoever creates pods spends."
)
