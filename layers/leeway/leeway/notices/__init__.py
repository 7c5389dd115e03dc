"""What AWS tells us about instances: EventBridge events, parsed once and typed from there on."""

from leeway.notices.model import (
    InstanceId,
    InterruptionAction,
    LifecycleHook,
    MalformedNotice,
    Notice,
    NoticeKind,
    UnknownNotice,
)
from leeway.notices.parse import parse_notice

__all__ = [
    "InstanceId",
    "InterruptionAction",
    "LifecycleHook",
    "MalformedNotice",
    "Notice",
    "NoticeKind",
    "UnknownNotice",
    "parse_notice",
]
