"""Builds the decoders of Kubernetes objects on import, in one thread.

lightkube decodes with msgspec, which builds the type information of a class on its first use and
publishes it before it is complete, because types may refer to each other. A second thread that uses
the class at that moment reads a null pointer, and the process crashes (SIGSEGV, observed with
msgspec 0.22). A drain decodes its first answers in several threads. Importing a module is done by
one thread, so the import of this module builds all decoders.
"""

from typing import Any

from lightkube.core.decoders import WatchEvent
from lightkube.models.meta_v1 import Status
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Event, Node, PersistentVolume, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.resources.storage_v1 import VolumeAttachment
from msgspec import Raw, Struct, ValidationError, field
from msgspec.json import Decoder, decode, encode


class ListMeta(Struct):
    """A list's resource version, and its continue token: empty on the last page."""

    resourceVersion: str = ""  # noqa: N815 (Kubernetes's name)
    next_page: str = field(name="continue", default="")


class ObjectList[T](Struct):
    """A list, or a page of one. An answer without kind or metadata is an error: a proxy may have
    sent it, and it must not count as a list without objects."""

    kind: str
    metadata: ListMeta
    items: list[T] = field(default_factory=list)


BUDGETS = Decoder(ObjectList[PodDisruptionBudget])
NODES = Decoder(ObjectList[Node])
PODS = Decoder(ObjectList[Pod])
VOLUME_ATTACHMENTS = Decoder(ObjectList[VolumeAttachment])

KINDS = (
    DaemonSet,
    Event,
    Node,
    PersistentVolume,
    Pod,
    PodDisruptionBudget,
    Status,
    VolumeAttachment,
    WatchEvent,
)
"""The kinds that the adapters decode, as lists or as single objects."""

for kind in KINDS:
    Decoder(kind)


def read_json[T](content: bytes | Raw, decoder: Decoder[T]) -> T:
    """Decode JSON of an API server. A field that is null is a missing field: the API server writes
    null for a list or map of Go that was never made, and for a time that is not set.

    Raises:
        MsgspecError: it is no JSON, or does not have the shape of the type.
    """
    try:
        return decoder.decode(content)
    except ValidationError:
        if b"null" not in bytes(content):
            raise
        return decoder.decode(encode(without_nulls(decode(content))))


def without_nulls(value: Any) -> Any:
    """Return JSON without the fields that are null."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value
