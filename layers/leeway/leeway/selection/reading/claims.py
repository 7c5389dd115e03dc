"""Claims that no node can meet: of volumes that are lost, deleted or never bound, and of devices.

kube-scheduler binds no pod with such a claim, so that a node for it would stay empty. Volumes of
pods that run are not examined: they are there. Sources: the plugins VolumeBinding and
DynamicResources of kube-scheduler; Karpenter's rules for claims, and its default for devices.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from leeway.reasons import Reason, ReasonCode
from leeway.selection.reading.objects import Document, is_terminating, name_of

VOLUME_CLAIM_NOT_MET = ReasonCode(
    "VolumeClaimNotMet",
    "{why}: no node can take the pod until this changes.",
    "a-pod-waits-for-a-claim",
)
DEVICE_CLAIMS_NOT_PLANNED = ReasonCode(
    "DeviceClaimsNotPlanned",
    "The pod has device claims (resourceClaims), and Leeway does not know which nodes have the "
    "devices.",
    "a-pod-waits-for-a-claim",
)

BOUND = "pv.kubernetes.io/bind-completed"
"""The annotation of a claim whose binding is complete. Source: Kubernetes, "Well-Known Labels,
Annotations and Taints"."""


def has_device_claims(spec: Document) -> bool:
    """Whether a pod has claims of Dynamic Resource Allocation, in its spec or in a container."""
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return bool(spec.get("resourceClaims")) or any(
        (one.get("resources") or {}).get("claims") for one in containers
    )


def has_claim(volume: Document) -> bool:
    """Whether a volume of a pod has a PersistentVolumeClaim, or gets one."""
    return bool(volume.get("persistentVolumeClaim") or volume.get("ephemeral"))


@dataclass(frozen=True, slots=True)
class VolumeClaims:
    """The claims of a cluster by `namespace/name`, its volumes and its classes by name, as its API
    server stores them. `unknown` says of a kind and a key whether Leeway could not read it."""

    claims: Mapping[str, Document]
    volumes: Mapping[str, Document]
    classes: Mapping[str, Document]
    default_class: str
    unknown: Callable[[str, str], bool]

    def why_not_met(self, volumes: Iterable[Document], namespace: str, pod: str) -> Reason | None:
        """Return why the claim of one of these volumes of a pod can't be met; None if all can."""
        each = (self._of_volume(one, namespace, pod) for one in volumes if has_claim(one))
        why = next((text for found in each for text in found), None)
        return None if why is None else VOLUME_CLAIM_NOT_MET(why=why)

    def _of_volume(self, volume: Document, namespace: str, pod: str) -> Iterator[str]:
        named = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        key = f"{namespace}/{named or f'{pod}-{volume.get("name")}'}"
        claim = self.claims.get(key)
        title = f"PersistentVolumeClaim {key}"
        if claim is not None:
            yield from self._of_claim(claim, title)
        elif self.unknown("PersistentVolumeClaim", key):
            return
        elif named:
            yield f"{title} does not exist"
        else:  # a controller is about to create it
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
            name = (template.get("spec") or {}).get("storageClassName")
            yield from self._of_class(self.default_class if name is None else name, title)

    def _of_claim(self, claim: Document, title: str) -> Iterator[str]:
        spec = claim.get("spec") or {}
        volume = spec.get("volumeName")
        if is_terminating(claim):
            yield f"{title} is being deleted"
        elif (claim.get("status") or {}).get("phase") == "Lost":
            yield f"{title} has lost its PersistentVolume {volume}"
        elif not volume:
            yield from self._of_class(spec.get("storageClassName") or "", title)
        else:
            yield from self._of_bound(claim, volume, title)

    def _of_bound(self, claim: Document, volume: str, title: str) -> Iterator[str]:
        found = self.volumes.get(volume)
        if found is None and not self.unknown("PersistentVolume", volume):
            yield f"PersistentVolume {volume} of {title} does not exist"
        elif found is not None and is_terminating(found):
            yield f"PersistentVolume {volume} of {title} is being deleted"
        elif BOUND not in ((claim.get("metadata") or {}).get("annotations") or {}):
            yield f"{title} is not bound to PersistentVolume {volume} yet"

    def _of_class(self, name: str, title: str) -> Iterator[str]:
        found = self.classes.get(name)
        if not name:
            yield f"{title} has neither a volume nor a storage class"
        elif found is not None and found.get("volumeBindingMode") == "Immediate":
            yield (
                f"{title} has no volume yet, and StorageClass {name_of(found)} binds volumes "
                "before pods are placed (volumeBindingMode: Immediate)"
            )
        elif found is None and not self.unknown("StorageClass", name):
            yield f"StorageClass {name} of {title} does not exist"
