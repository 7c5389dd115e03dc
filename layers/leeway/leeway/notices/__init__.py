"""What AWS tells us about instances: EventBridge events, parsed once and typed from there on.

`parse` is imported from its own module, by those who parse: `retire_node` never does, and
pydantic's models of the events would be part of its cold start.
"""

from leeway.notices.model import (
    INSTANCE_ID,
    InstanceId,
    InterruptionAction,
    LifecycleHook,
    MalformedNotice,
    Notice,
    NoticeKind,
    UnknownNotice,
)

__all__ = [
    "INSTANCE_ID",
    "InstanceId",
    "InterruptionAction",
    "LifecycleHook",
    "MalformedNotice",
    "Notice",
    "NoticeKind",
    "UnknownNotice",
]
