"""Node classes of the AMI family Ubuntu, converted to AL2 with Ubuntu's volume as Karpenter does.

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
"""The AMI families of node classes before v1."""

_VOLUME = {
    "deviceName": "/dev/sda1",
    "rootVolume": True,
    "ebs": {"encrypted": True, "volumeType": "gp3", "volumeSize": "20Gi"},
}


def without_ubuntu(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a node class with Ubuntu converted to AL2."""
    if spec.get("amiFamily") != "Ubuntu":
        return spec
    volumes = spec.get("blockDeviceMappings") or [_VOLUME]
    return {**spec, "amiFamily": AmiFamily.AL2.value, "blockDeviceMappings": volumes}


def notes_on(family: OldAmiFamily | None, *, images: bool) -> Iterator[Note]:
    """Warn how Ubuntu is converted. `images`: whether the node class selects images."""
    if family != "Ubuntu":
        return
    path = ("spec", "amiFamily")
    yield Note(
        path, "Ubuntu is converted to AL2, whose user data has the same format, as in Karpenter"
    )
    if not images:
        yield Note(path, "expected amiSelectorTerms: Leeway has no default image for Ubuntu")
