"""Reason codes of lifecycle hooks: why a hook is not held any more, or not answered."""

from leeway.reasons import ReasonCode

HOOK_MISSING = ReasonCode(
    "LifecycleHookMissing", "Group {group} has no lifecycle hook {hook} any more."
)

HOOK_HAS_TARGET = ReasonCode(
    "LifecycleHookHasTarget",
    "Lifecycle hook {hook} of group {group} notifies a target of its own, which answers it.",
)

HOOK_ANSWERED = ReasonCode(
    "LifecycleHookAnswered",
    "Lifecycle hook {hook} of group {group} does not wait any more: {error}.",
)

HEARTBEAT_FAILED = ReasonCode(
    "HeartbeatFailed",
    "The heartbeat for lifecycle hook {hook} of group {group} failed: {error}. It is retried.",
    "a-lifecycle-hook-times-out",
)

HOOK_TIMED_OUT = ReasonCode(
    "LifecycleHookTimedOut",
    "Lifecycle hook {hook} of group {group} has timed out without a heartbeat: {error}.",
    "a-lifecycle-hook-times-out",
)

ANSWER_REFUSED = ReasonCode(
    "HookAnswerRefused",
    "Auto Scaling refused the answer to lifecycle hook {hook} of group {group}: {error}. Leeway "
    "retries until the hook times out.",
    "a-lifecycle-hook-times-out",
)
