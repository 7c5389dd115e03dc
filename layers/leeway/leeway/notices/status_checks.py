"""Parses events of source `leeway`: the status checks of an instance fail, or pass again.

AWS sends no event for that. `reconcile` calls DescribeInstanceStatus and creates the event.
"""

from typing import Annotated, Literal

from pydantic import Field

from leeway.notices.envelope import Detail, Envelope, InstanceIdText, Parsers
from leeway.notices.model import Notice, NoticeKind

SOURCE = "leeway"
IMPAIRED = "Leeway Instance Status Impaired"


class _Impaired(Detail):
    instance_id: Annotated[InstanceIdText, Field(alias="instance-id")]
    status: Literal["impaired", "ok"] = "impaired"


def _impaired(envelope: Envelope) -> Notice:
    detail = _Impaired.model_validate(envelope.detail)
    over = {detail.instance_id} if detail.status == "ok" else set()
    return envelope.notice(NoticeKind.IMPAIRED_STATUS, [detail.instance_id], over=frozenset(over))


PARSERS: Parsers = {IMPAIRED: _impaired}
