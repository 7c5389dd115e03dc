"""Notices: EventBridge events about instances, parsed once into typed values.

Import `parse_notice` from `leeway.notices.parse`. It is not exported here, because retire_node does
not parse events, and the pydantic models of the events would lengthen its cold start.
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
