"""The EventBridge envelope, which is the same for all events."""

from collections.abc import Callable, Iterable
from datetime import UTC
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from leeway.notices.model import INSTANCE_ID, InstanceId, Notice, NoticeKind


def _as_list(value: Any) -> Any:
    # Events of capacity reservations have a string where all other events have a list.
    return [value] if isinstance(value, str) else value


Text = Annotated[str, StringConstraints(min_length=1)]
InstanceIdText = Annotated[InstanceId, StringConstraints(pattern=f"^{INSTANCE_ID}$")]


class Envelope(BaseModel):
    """The fields that all events have.

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
        """Return the notice of this event; `announced` are fields that only its kind has."""
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
    """The base of all event details. Unknown fields are ignored, because AWS may add fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


type Parsers = dict[str, Callable[[Envelope], Notice]]
"""The parsers of a source: detail-type → parser."""
