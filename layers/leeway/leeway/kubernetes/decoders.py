"""Readies the decoders of Kubernetes objects before several threads can meet them unready.

msgspec, by which lightkube decodes, works out how to read a type at its first use, and publishes
that before it is complete: it must, for types that hold each other. A second thread that uses the
type, or one that is part of it, in that moment reads through a null pointer, and the whole process
dies of it (SIGSEGV, seen with msgspec 0.22). A drain's first answers come in several
threads at once. Modules are imported by one thread: so here all of it is worked out on import.
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
    """Where a list stands, and by which token it goes on, empty where it does not."""

    resourceVersion: str = ""  # noqa: N815 (Kubernetes's name)
    following: str = field(name="continue", default="")


class PodList(Struct):
    """Pods, as only an API server lists them: what lacks the kind may be anybody's, and that a node
    has no pods is not believed of just anybody."""

    kind: Literal["PodList"]
    metadata: ListMeta
    items: list[Pod]


LISTED = (Node, PodDisruptionBudget, VolumeAttachment)
READ = (*LISTED, DaemonSet, Event, PersistentVolume, Pod, PodList, Status, WatchEvent)
"""What is decoded, as lists or one by one."""

for kind in READ:
    Decoder(kind)
for kind in LISTED:
    decode_list(b'{"items":[]}', kind)
