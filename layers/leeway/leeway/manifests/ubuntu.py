"""Node classes of Ubuntu, which later versions of Karpenter read as AL2 with Ubuntu's volume.

Source: Karpenter v1.0, the conversion of `karpenter.k8s.aws/v1beta1` EC2NodeClasses.
"""

from collections.abc import Iterator
from typing import Any, Literal

from leeway.manifests.problems import Note
from leeway.selection.offers.node_class import AmiFamily

OldAmiFamily = Literal[
    "AL2",
    "AL2023",
    "Bottlerocket",
    "Windows2019",
    "Windows2022",
    "Windows2025",
    "Custom",
    "Ubuntu",
]
"""The operating systems of node classes before v1."""

_VOLUME = {
    "deviceName": "/dev/sda1",
    "rootVolume": True,
    "ebs": {"encrypted": True, "volumeType": "gp3", "volumeSize": "20Gi"},
}


def without_ubuntu(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a node class's fields in which Ubuntu is what it is read as."""
    if spec.get("amiFamily") != "Ubuntu":
        return spec
    volumes = spec.get("blockDeviceMappings") or [_VOLUME]
    return {**spec, "amiFamily": AmiFamily.AL2.value, "blockDeviceMappings": volumes}


def notes_on(family: OldAmiFamily | None, *, images: bool) -> Iterator[Note]:
    """Say how Ubuntu is read. `images`: the node class says which images nodes boot."""
    if family != "Ubuntu":
        return
    path = ("spec", "amiFamily")
    yield Note(path, "Ubuntu is read as AL2, whose user data has the same form, as Karpenter does")
    if not images:
        yield Note(path, "no image of Ubuntu is known: amiSelectorTerms have to name one")
