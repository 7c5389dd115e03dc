"""Readies the decoders of Kubernetes objects before several threads can meet them unready.

msgspec, by which lightkube decodes, works out how to read a type at its first use, and publishes
that before it is complete: it must, for types that hold each other. A second thread that uses the
type, or one that is part of it, in that moment reads through a null pointer, and the whole process
dies of it (SIGSEGV, seen with msgspec 0.22). A drain's first answers come in several
threads at once. Modules are imported by one thread: so here all of it is worked out on import.
"""

from lightkube.core.decoders import decode_list
from lightkube.models.meta_v1 import Status
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Event, Node, PersistentVolume, Pod, PodEviction
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.resources.storage_v1 import VolumeAttachment
from msgspec.json import Decoder

LISTED = (Node, Pod, PodDisruptionBudget, VolumeAttachment)
READ = (*LISTED, DaemonSet, Event, PersistentVolume, PodEviction, Status)
"""What is decoded, as lists or one by one."""

for kind in READ:
    Decoder(kind)
for kind in LISTED:
    decode_list(b'{"items":[]}', kind)
