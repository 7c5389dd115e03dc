"""The AMI of a node: by an SSM public parameter of its family, or by the terms of its node class.

Sources: EKS user guide, "Retrieve recommended Amazon Linux AMI IDs", "Retrieve recommended
Bottlerocket AMI IDs" and "Retrieve recommended Microsoft Windows AMI IDs".
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from leeway.launch.node_settings import NodeSettings, NotLaunchable
from leeway.selection.offers.allocatable import AmiFamily
from leeway.selection.offers.machines import GPU_RESOURCES, NEURON, Machine


@dataclass(frozen=True, slots=True)
class Image:
    """An AMI. `architecture` is the name that EC2 uses, such as x86_64. `state` is that of EC2:
    only an available one can be launched."""

    id: str
    name: str
    architecture: str
    created_at: datetime
    root_device: str
    deprecated: bool = False
    state: str = "available"


type Accelerator = Literal["", "nvidia", "neuron"]

_EKS = "/aws/service/eks/optimized-ami"

_BOTTLEROCKET = "/aws/service/bottlerocket"

_WINDOWS = "/aws/service/ami-windows-latest"

_LATEST = "latest"


@dataclass(frozen=True, slots=True, order=True)
class ImageVariant:
    """The properties of a machine by which AMIs differ. `architecture` is EC2's name of it."""

    architecture: str
    accelerator: Accelerator = ""

    def __str__(self) -> str:
        return (
            f"{self.architecture} with {self.accelerator}"
            if self.accelerator
            else self.architecture
        )


def variant_of(machine: Machine) -> ImageVariant:
    """Return the variant of AMI that a machine needs."""
    architecture = "arm64" if machine.arm else "x86_64"
    if GPU_RESOURCES["nvidia"] in machine.devices:
        return ImageVariant(architecture, "nvidia")
    return ImageVariant(architecture, "neuron" if NEURON in machine.devices else "")


def variants_of(settings: NodeSettings) -> tuple[ImageVariant, ...]:
    """Return the variants of AMI that AWS publishes for the family of a node class. One that
    selects AMIs by other terms than an alias has one AMI for each architecture. Source: Karpenter's
    AWS provider, `DescribeImageQuery` of each family."""
    standard = (ImageVariant("arm64"), ImageVariant("x86_64"))
    terms = settings.images.value
    alias = terms[0].alias if terms else None
    if terms and alias is None:
        return standard
    family = _family_of_alias(alias) if alias else settings.template.pool.node_class.family
    if family.windows:
        return standard[1:]
    drivers = (ImageVariant("x86_64", "nvidia"), ImageVariant("x86_64", "neuron"))
    if family is AmiFamily.AL2:
        return (*standard, *drivers)
    return (*standard, ImageVariant("arm64", "nvidia"), *drivers)


def parameters_of(
    settings: NodeSettings, kubernetes: str, variants: Iterable[ImageVariant]
) -> Mapping[ImageVariant, str]:
    """Return the SSM parameter with the AMI's id for each variant. `kubernetes` is the version of
    the cluster, such as 1.34. Empty if the node class selects AMIs by other terms than an alias.

    Raises:
        NotLaunchable: the family is Custom, and no term selects an AMI.
    """
    terms = settings.images.value
    alias = terms[0].alias if terms else None
    if terms and alias is None:
        return {}
    if alias is not None:
        family = _family_of_alias(alias)
        release = alias.partition("@")[2]
    else:
        family, release = settings.template.pool.node_class.family, _LATEST
    if family is AmiFamily.CUSTOM:
        raise NotLaunchable(
            f"pool {settings.pool} has the AMI family Custom and no AMI: set spec.amiSelectorTerms "
            f"in EC2NodeClass {settings.node_class}"
        )
    return {one: _parameter(family, release, kubernetes, one) for one in sorted(variants)}


def image_by_parameter(
    settings: NodeSettings, variant: ImageVariant, parameter: str, values: Mapping[str, str]
) -> str:
    """Return the AMI's id that a parameter has.

    Raises:
        NotLaunchable: there is no such parameter.
    """
    if parameter in values:
        return values[parameter]
    place = settings.images.place if settings.images.value else "the AMI family of the pool"
    raise NotLaunchable(
        f"no AMI for {variant} matches {place}: AWS has no SSM parameter {parameter}"
    )


def image_by_terms(
    settings: NodeSettings, variant: ImageVariant, images: Collection[Image]
) -> Image:
    """Return the newest of the AMIs that the node class selects, for a variant's architecture. A
    deprecated AMI is used only if there is no other one; of two of the same second, the one with
    the later name is used, as Karpenter does.

    Raises:
        NotLaunchable: none that is available has the architecture.
    """
    available = [one for one in images if one.state == "available"]
    found = [one for one in available if one.architecture == variant.architecture]
    if found:
        return max(found, key=lambda one: (not one.deprecated, one.created_at, one.name))
    if unusable := next(unusable_images(settings, images), ""):
        raise NotLaunchable(unusable)
    others = ", ".join(f"{one.id} is for {one.architecture}" for one in available[:_MOST_SHOWN])
    raise NotLaunchable(
        f"no AMI for {variant} matches {settings.images.place}: {others or 'EC2 shows none'}"
    )


_MOST_SHOWN = 3


def unusable_images(settings: NodeSettings, images: Collection[Image]) -> Iterator[str]:
    """Say which AMIs the node class names that EC2 does not have, or that are not available. EC2
    gives one answer for all that it does not show to an account."""
    states = {one.id: one.state for one in images}
    for number, term in enumerate(settings.images.value):
        place = f"{settings.images.place}[{number}].id"
        if term.id and term.id not in states:
            yield (
                f"EC2 knows no image {term.id} ({place}): it is of another region, was "
                "deregistered, or is not shared with this account"
            )
        elif term.id and states[term.id] != "available":
            yield f"image {term.id} ({place}) is {states[term.id]}, not available"


def _family_of_alias(alias: str) -> AmiFamily:
    name = alias.partition("@")[0]
    return next(family for family in AmiFamily if family.value.lower() == name)


def _parameter(family: AmiFamily, release: str, kubernetes: str, variant: ImageVariant) -> str:
    match family:
        case AmiFamily.AL2023:
            return _al2023(release, kubernetes, variant)
        case AmiFamily.AL2:
            return _al2(release, kubernetes, variant)
        case AmiFamily.BOTTLEROCKET:
            flavour = "-nvidia" if variant.accelerator == "nvidia" else ""
            named = release.removeprefix("v")
            path = f"{_BOTTLEROCKET}/aws-k8s-{kubernetes}{flavour}/{variant.architecture}"
            return f"{path}/{named}/image_id"
        case _:
            year = family.value.removeprefix("Windows")
            return (
                f"{_WINDOWS}/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
            )


def _al2023(release: str, kubernetes: str, variant: ImageVariant) -> str:
    kind = variant.accelerator or "standard"
    path = f"{_EKS}/{kubernetes}/amazon-linux-2023/{variant.architecture}/{kind}"
    name = f"amazon-eks-node-al2023-{variant.architecture}-{kind}-{kubernetes}-{release}"
    return f"{path}/{'recommended' if release == _LATEST else name}/image_id"


def _al2(release: str, kubernetes: str, variant: ImageVariant) -> str:
    """One AMI has the drivers of both accelerators."""
    flavour = "gpu" if variant.accelerator else ("arm64" if variant.architecture == "arm64" else "")
    path = f"{_EKS}/{kubernetes}/amazon-linux-2{f'-{flavour}' if flavour else ''}"
    name = f"amazon-eks-{f'{flavour}-' if flavour else ''}node-{kubernetes}-{release}"
    return f"{path}/{'recommended' if release == _LATEST else name}/image_id"
