"""The messages of the provisioning queue, as Lambda delivers them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from leeway.manifests.cluster import NAME
from leeway.printable import printable
from leeway.provisioning.reasons import MESSAGE_FOR_OTHER_CLUSTER, MESSAGE_NOT_VALID
from leeway.reasons import Reason

LONGEST_WHY = 200
"""Characters of the reasons of a run in its log line and status."""


class ProvisionMessage(BaseModel):
    """A request for a run, at the time `at` (epoch seconds) if that is later. `why` is for logs and
    the status."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    cluster: Annotated[str, StringConstraints(pattern=NAME)]
    why: str = ""
    at: Annotated[int, Field(ge=0)] = 0


class SqsRecord(BaseModel):
    """A message in the form of Lambda's event source mapping."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    message_id: Annotated[str, Field(alias="messageId")]
    receipt: Annotated[str, Field(alias="receiptHandle")] = ""
    body: str


class SqsEvent(BaseModel):
    """A batch of messages."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    records: Annotated[tuple[SqsRecord, ...], Field(alias="Records")]


@dataclass(frozen=True, slots=True)
class ClusterMessages:
    """The messages of one batch for one cluster: one run serves them all."""

    cluster: str
    why: str
    ids: tuple[str, ...]
    receipts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch by cluster, its messages for later, and why some of its messages are dropped."""

    clusters: tuple[ClusterMessages, ...]
    later: tuple[tuple[SqsRecord, ProvisionMessage], ...]
    dropped: tuple[Reason, ...]


def read_batch(event: Any, clusters: Collection[str]) -> Batch:
    """Read a batch. `clusters` are those of the stack: a message for another one is dropped, as one
    that is not valid is, because a repetition would not help.

    Raises:
        ValidationError: the event is not one of SQS.
    """
    found: dict[str, list[tuple[SqsRecord, str]]] = {}
    later = []
    dropped = []
    for record in SqsEvent.model_validate(event).records:
        try:
            message = ProvisionMessage.model_validate_json(record.body)
        except ValidationError as error:
            dropped.append(MESSAGE_NOT_VALID(problem=_first(error)))
            continue
        if message.cluster in clusters and message.at:
            later.append((record, message))
        elif message.cluster in clusters:
            found.setdefault(message.cluster, []).append((record, message.why))
        else:
            dropped.append(MESSAGE_FOR_OTHER_CLUSTER(cluster=message.cluster))
    return Batch(
        tuple(
            ClusterMessages(
                cluster,
                _merged(why for _, why in messages),
                tuple(record.message_id for record, _ in messages),
                tuple(record.receipt for record, _ in messages if record.receipt),
            )
            for cluster, messages in found.items()
        ),
        tuple(later),
        tuple(dropped),
    )


def _merged(reasons: Iterable[str]) -> str:
    return printable("; ".join(dict.fromkeys(filter(None, reasons))))[:LONGEST_WHY]


def _first(error: ValidationError) -> str:
    """The first error, without the message's own text: a sender could write lines of a log."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "body"
    return f"{place}: {first['type']}"
