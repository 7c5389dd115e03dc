"""Parses events of source `aws.autoscaling`: lifecycle actions that wait for an answer."""

from typing import Annotated

from pydantic import Field

from leeway.notices.envelope import Detail, Envelope, InstanceIdText, Parsers, Text
from leeway.notices.model import LifecycleHook, Notice, NoticeKind

SOURCE = "aws.autoscaling"
TEST_NOTIFICATION = "autoscaling:TEST_NOTIFICATION"

WARM_POOL = "WarmPool"
"""The destination of an instance that enters the warm pool of its group. Source: EC2 Auto Scaling
user guide, "Warm pool example events and patterns"."""


class _LifecycleAction(Detail):
    instance_id: Annotated[InstanceIdText, Field(alias="EC2InstanceId")]
    group: Annotated[Text, Field(alias="AutoScalingGroupName")]
    hook: Annotated[Text, Field(alias="LifecycleHookName")]
    destination: Annotated[str, Field(alias="Destination")] = ""


def _is_test(envelope: Envelope) -> bool:
    """Return whether the event is the test notification that Auto Scaling sends when a hook is
    created."""
    detail = envelope.detail
    return TEST_NOTIFICATION in (detail.get("Event"), detail.get("LifecycleTransition"))


def _lifecycle_action(envelope: Envelope, kind: NoticeKind) -> Notice:
    if _is_test(envelope):
        return envelope.notice(NoticeKind.TEST_NOTIFICATION, [])
    detail = _LifecycleAction.model_validate(envelope.detail)
    hook = LifecycleHook(group=detail.group, name=detail.hook)
    into_pool = detail.destination == WARM_POOL
    return envelope.notice(kind, [detail.instance_id], hook=hook, into_pool=into_pool)


def _terminate(envelope: Envelope) -> Notice:
    return _lifecycle_action(envelope, NoticeKind.TERMINATE_HOOK)


def _launch(envelope: Envelope) -> Notice:
    return _lifecycle_action(envelope, NoticeKind.LAUNCH_HOOK)


PARSERS: Parsers = {
    "EC2 Instance-terminate Lifecycle Action": _terminate,
    "EC2 Instance-launch Lifecycle Action": _launch,
}
