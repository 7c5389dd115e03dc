"""Builds the decoders of Kubernetes objects on import, in one thread.

lightkube decodes with msgspec, which builds the type information of a class on its first use and
publishes it before it is complete, because types may refer to each other. A second thread that uses
the class at that moment reads a null pointer, and the process crashes (SIGSEGV, observed with
msgspec 0.22). A drain decodes its first answers in several threads. Importing a module is done by
one thread, so the import of this module builds all decoders.
"""

from typing import Literal

from lightkube.core.decoders import WatchEvent, decode_list
from lightkube.models.meta_v1 import Status
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Event, Node, PersistentVolume, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.resources.storage_v1 import VolumeAttachment
from msgspec import Struct, field
from msgspec.json import Decoder


class ListMeta(Struct):
    """A list's resource version, and its continue token: empty on the last page."""

    resourceVersion: str = ""  # noqa: N815 (Kubernetes's name)
    next_page: str = field(name="continue", default="")


class PodList(Struct):
    """A list of pods. An answer without the kind is an error: a proxy may have sent it, and it must
    not count as a node without pods."""

    kind: Literal["PodList"]
    metadata: ListMeta
    items: list[Pod]


LIST_KINDS = (Node, PodDisruptionBudget, VolumeAttachment)
KINDS = (*LIST_KINDS, DaemonSet, Event, PersistentVolume, Pod, PodList, Status, WatchEvent)
"""The kinds that the adapters decode, as lists or as single objects."""

for kind in KINDS:
    Decoder(kind)
for kind in LIST_KINDS:
    decode_list(b'{"items":[]}', kind)
