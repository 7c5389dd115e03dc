"""The decoders of Kubernetes objects, which are built on import, in one thread.

lightkube decodes with msgspec, which builds the type information of a class on its first use and
publishes it before it is complete, because types may refer to each other. A second thread that uses
the class at that moment reads a null pointer, and the process crashes (SIGSEGV, observed with
msgspec 0.22). A drain decodes its first answers in several threads. Functions that read no such
object do not import this module: building the decoders is a tenth of an import.
"""

from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.core_v1 import Event, Node, PersistentVolume, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.resources.storage_v1 import VolumeAttachment
from msgspec.json import Decoder

from leeway.kubernetes.list_watch import ObjectList

BUDGETS = Decoder(ObjectList[PodDisruptionBudget])
NODES = Decoder(ObjectList[Node])
PODS = Decoder(ObjectList[Pod])
VOLUME_ATTACHMENTS = Decoder(ObjectList[VolumeAttachment])

KINDS = (DaemonSet, Event, Node, PersistentVolume, Pod, PodDisruptionBudget, VolumeAttachment)
"""The kinds that the adapters decode, as lists or as single objects."""

for kind in KINDS:
    Decoder(kind)
