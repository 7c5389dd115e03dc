"""The EventBridge envelope that every notice arrives in."""

from collections.abc import Callable, Iterable
from datetime import UTC
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from leeway.notices.model import INSTANCE_ID, InstanceId, Notice, NoticeKind


def _as_list(value: Any) -> Any:
    # Capacity reservation warnings put a bare string where every other event has a list.
    return [value] if isinstance(value, str) else value


Text = Annotated[str, StringConstraints(min_length=1)]
InstanceIdText = Annotated[InstanceId, StringConstraints(pattern=f"^{INSTANCE_ID}$")]


class Envelope(BaseModel):
    """The fields that are the same for every event, whatever its source.

    Source: EventBridge user guide, "Events structure".
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Text
    source: Text
    detail_type: Annotated[Text, Field(alias="detail-type")]
    account: Annotated[str, StringConstraints(pattern=r"^\d{12}$")]
    region: Text
    time: AwareDatetime
    resources: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    detail: dict[str, Any]
    replay: Annotated[str, Field(alias="replay-name")] = ""

    def notice(self, kind: NoticeKind, instances: Iterable[str], **announced: Any) -> Notice:
        """Build the notice that this event is, with what only its kind announces."""
        return Notice(
            id=self.id,
            kind=kind,
            account=self.account,
            region=self.region,
            time=self.time.astimezone(UTC),
            instances=tuple(InstanceId(instance) for instance in instances),
            replay=self.replay,
            **announced,
        )


class Detail(BaseModel):
    """Base of every event's `detail`: unknown fields are AWS's to add."""

    model_config = ConfigDict(frozen=True, extra="ignore")


type Parsers = dict[str, Callable[[Envelope], Notice]]
"""What a source module offers: for each detail-type, the parser of its events."""
