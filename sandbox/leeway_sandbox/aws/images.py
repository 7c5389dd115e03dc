"""The AMIs from which nodes boot, and the SSM parameters that name them.

Stands in for the EKS optimized AMIs of AWS, which moto lacks. Ids are made up and stay the same;
the names are shaped as AWS's. DescribeImages is answered here, because moto ignores filters and
owners if ids are given, an unknown id among known ones, and that AMIs are deprecated.

Sources: EKS user guide, "Retrieve recommended Amazon Linux AMI IDs", "… Bottlerocket AMI IDs" and
"… Microsoft Windows AMI IDs". AL2 AMIs end with Kubernetes 1.32.
"""

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import moto.ssm.models as ssm
from moto.core.responses import ActionResult
from moto.ec2.exceptions import InvalidAMIIdError, MalformedAMIIdError
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.models.instances import Instance
from moto.ec2.responses.amis import AmisResponse
from moto.ec2.utils import generic_filter

from leeway_sandbox.aws.user_data import Family

type Architecture = Literal["arm64", "x86_64"]

VERSIONS = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36")
LAST_AL2_VERSION = 32  # the minor version
RELEASES = ("20260901", "20261101")  # the last one is the recommended one
BOTTLEROCKET_RELEASES = ("1.48.0", "1.52.0")
WINDOWS_RELEASES = ("2026.09.10", "2026.11.12")
WINDOWS_EDITIONS = (
    "2019-English-Core",
    "2019-English-Full",
    "2022-English-Core",
    "2022-English-Full",
    "2025-English-Core",
    "2025-English-Full",
)
EKS_OWNER, BOTTLEROCKET_OWNER, WINDOWS_OWNER = "602401143452", "092701018921", "801119661308"
FAMILY_TAG = "sandbox.leeway.sh/ami-family"
"""The tag of a custom AMI that names the family as which it boots."""

_PREFIXES = (
    "/aws/service/eks/optimized-ami",
    "/aws/service/bottlerocket",
    "/aws/service/ami-windows-latest",
)
_FAMILIES: tuple[tuple[str, Family], ...] = (
    (r"amazon-eks-node-al2023-.*", "AL2023"),
    (r"amazon-eks-((gpu|arm64)-)?node-[\d.]+-v.*", "AL2"),
    (r"bottlerocket-aws-k8s-.*", "Bottlerocket"),
    (r"Windows_Server-.*-EKS_Optimized-.*", "Windows"),
)
_VERSION = re.compile(r"(?:-|k8s-)(1\.\d{2})(?=-|$)")
_DEPRECATED = "2022-06-01T00:00:00.000Z"
"""When AWS deprecated the AMIs that moto brings, which are of 2017 or older: it deprecates public
AMIs after two years. Source: EC2 user guide, "Deprecate an Amazon EC2 AMI"."""


@dataclass(frozen=True)
class NodeImage:
    """An AMI, and the SSM parameters whose value is its id."""

    name: str
    owner: str
    architecture: Architecture
    created: datetime
    parameters: tuple[str, ...]
    platform: str | None = None
    root_device: str = "/dev/xvda"

    @property
    def id(self) -> str:
        """An id that depends on the name alone."""
        return f"ami-{hashlib.sha256(self.name.encode()).hexdigest()[:17]}"


@functools.cache
def node_images() -> tuple[NodeImage, ...]:
    """All of them."""
    return tuple(
        image
        for version in VERSIONS
        for build in (_al2023, _al2, _bottlerocket, _windows)
        for image in build(version)
    )


def _al2023(version: str) -> Iterator[NodeImage]:
    kinds: tuple[tuple[Architecture, str], ...] = (
        ("x86_64", "standard"),
        ("x86_64", "nvidia"),
        ("x86_64", "neuron"),
        ("arm64", "standard"),
        ("arm64", "nvidia"),
    )
    for architecture, kind in kinds:
        for release in RELEASES:
            name = f"amazon-eks-node-al2023-{architecture}-{kind}-{version}-v{release}"
            path = f"{_PREFIXES[0]}/{version}/amazon-linux-2023/{architecture}/{kind}"
            paths = _paths(path, name, is_last=release == RELEASES[-1], last="recommended")
            yield NodeImage(name, EKS_OWNER, architecture, _date(release), paths)


def _al2(version: str) -> Iterator[NodeImage]:
    if int(version.partition(".")[2]) > LAST_AL2_VERSION:
        return
    kinds: tuple[tuple[Architecture, str, str], ...] = (
        ("x86_64", "amazon-eks-node", "amazon-linux-2"),
        ("x86_64", "amazon-eks-gpu-node", "amazon-linux-2-gpu"),
        ("arm64", "amazon-eks-arm64-node", "amazon-linux-2-arm64"),
    )
    for architecture, prefix, kind in kinds:
        for release in RELEASES:
            name = f"{prefix}-{version}-v{release}"
            path = f"{_PREFIXES[0]}/{version}/{kind}"
            paths = _paths(path, name, is_last=release == RELEASES[-1], last="recommended")
            yield NodeImage(name, EKS_OWNER, architecture, _date(release), paths)


def _bottlerocket(version: str) -> Iterator[NodeImage]:
    architectures: tuple[Architecture, ...] = ("x86_64", "arm64")
    for architecture in architectures:
        for flavour in ("", "-nvidia"):
            for release, date in zip(BOTTLEROCKET_RELEASES, RELEASES, strict=True):
                variant = f"aws-k8s-{version}{flavour}"
                named = "aarch64" if architecture == "arm64" else architecture
                name = f"bottlerocket-{variant}-{named}-v{release}-5b0ff1d4"
                path = f"{_PREFIXES[1]}/{variant}/{architecture}"
                is_last = release == BOTTLEROCKET_RELEASES[-1]
                paths = _paths(path, release, is_last=is_last, last="latest")
                yield NodeImage(name, BOTTLEROCKET_OWNER, architecture, _date(date), paths)


def _windows(version: str) -> Iterator[NodeImage]:
    for edition in WINDOWS_EDITIONS:
        for release in WINDOWS_RELEASES:
            base = f"Windows_Server-{edition}-EKS_Optimized-{version}"
            paths = (f"{_PREFIXES[2]}/{base}",) if release == WINDOWS_RELEASES[-1] else ()
            yield NodeImage(
                f"{base}-{release}",
                WINDOWS_OWNER,
                "x86_64",
                _date(release.replace(".", "")),
                paths,
                platform="windows",
                root_device="/dev/sda1",
            )


def _paths(path: str, release: str, *, is_last: bool, last: str) -> tuple[str, ...]:
    return (f"{path}/{release}", *([f"{path}/{last}"] if is_last else []))


def _date(release: str) -> datetime:
    return datetime.strptime(release, "%Y%m%d").replace(tzinfo=UTC)


def family_of(image: Ami) -> Family | None:
    """How an AMI boots: by its tag, or by its name, or None."""
    tags = image.ec2_backend.tags.get(image.id, {})
    for pattern, family in _FAMILIES:
        if tags.get(FAMILY_TAG) == family:
            return family
        if FAMILY_TAG not in tags and re.fullmatch(pattern, image.name or ""):
            return family
    return None


def version_of(image: Ami) -> str:
    """The Kubernetes version in an AMI's name; the newest one if there is none."""
    found = _VERSION.search(image.name or "")
    return found[1] if found else VERSIONS[-1]


def accelerator_of(image: Ami) -> Literal["nvidia", "neuron"] | None:
    """The kind of accelerator whose drivers an AMI has."""
    name = image.name or ""
    if "-neuron-" in name:
        return "neuron"
    return "nvidia" if "-nvidia-" in name or "-gpu-" in name else None


_SNAPSHOTS: dict[Family, dict[str, int]] = {
    "AL2": {"/dev/xvda": 20},
    "AL2023": {"/dev/xvda": 20},
    "Bottlerocket": {"/dev/xvda": 4, "/dev/xvdb": 20},
    "Windows": {"/dev/sda1": 50},
}
"""The sizes in GiB of the snapshots of an AMI, by device."""


def snapshots_of(image: Ami) -> dict[str, tuple[str, int]]:
    """The snapshots of an AMI, by device: id and size in GiB. None of an AMI whose family is not
    known."""
    family = family_of(image)
    sizes = _SNAPSHOTS[family] if family else {}
    return {
        device: (f"snap-{hashlib.sha256(f'{image.id}{device}'.encode()).hexdigest()[:17]}", size)
        for device, size in sizes.items()
    }


def image_of(instance: Instance) -> Ami | None:
    """The AMI of an instance, if it is known."""
    image: Ami | None = instance.ec2_backend.amis.get(instance.image_id)
    return image


def install() -> None:
    """Let moto know these AMIs and parameters, and describe AMIs by ids, filters and owners."""
    load = AmiBackend._load_amis
    # moto has read its file of AMIs. With this variable it leaves out the 1,200 of ECS.
    os.environ["MOTO_AMIS_PATH"] = "amis.json"

    def load_amis(self: AmiBackend) -> None:
        load(self)
        for image in self.amis.values():
            vars(image)["deprecation_time"] = _DEPRECATED
        self.amis |= {image.id: _ami(self, image) for image in node_images()}

    AmiBackend._load_amis = load_amis  # type: ignore[method-assign]
    AmisResponse.describe_images = _describe_images  # type: ignore[method-assign]
    _install_parameters()


def _ami(backend: AmiBackend, image: NodeImage) -> Ami:
    return Ami(
        backend,
        image.id,
        name=image.name,
        description=f"{image.name} of the Leeway sandbox",
        owner_id=image.owner,
        owner_alias="amazon",
        public=True,
        virtualization_type="hvm",
        architecture=image.architecture,
        creation_date=image.created,
        platform=image.platform,
        image_location=f"amazon/{image.name}",
        hypervisor="xen",
        root_device_type="ebs",
        root_device_name=image.root_device,
    )


def _describe_images(self: AmisResponse) -> ActionResult:
    self.error_on_dryrun()
    ids: list[str] = self._get_param("ImageIds", [])
    backend = self.ec2_backend
    if malformed := [name for name in ids if not name.startswith("ami-")]:
        raise MalformedAMIIdError(malformed)
    if unknown := [name for name in ids if name not in backend.amis]:
        raise InvalidAMIIdError(unknown)
    found = backend.describe_images(
        owners=self._get_param("Owners", []), exec_users=self._get_param("ExecutableUsers", [])
    )
    if ids:
        found = [image for image in found if image.id in ids]
    elif not self._get_bool_param("IncludeDeprecated", False):
        found = [image for image in found if not hasattr(image, "deprecation_time")]
    return ActionResult({"Images": generic_filter(self._filters_from_querystring(), found)})


def _install_parameters() -> None:
    check = ssm.ParameterDict._check_loading_status

    def check_loading_status(self: ssm.ParameterDict, key: str) -> None:
        check(self, key)
        if str(key or "").startswith("/aws/service") and "node_images" not in vars(self):
            vars(self)["node_images"] = True
            for name, value in _parameters():
                dict.__setitem__(self, name, [_parameter(self, name, value)])

    ssm.ParameterDict._check_loading_status = check_loading_status  # type: ignore[method-assign]


def _parameters() -> Iterator[tuple[str, str]]:
    for image in node_images():
        version = image.name.rpartition("-v")[2]
        for path in image.parameters:
            yield f"{path}/image_id", image.id
            if path.startswith(_PREFIXES[0]):
                facts = {"schema_version": "2.0", "image_id": image.id, "image_name": image.name}
                yield path, json.dumps(facts)
                yield f"{path}/image_name", image.name
            elif path.startswith(_PREFIXES[1]):
                yield f"{path}/image_version", version


class _PublicParameter(ssm.Parameter):
    """A public parameter; moto requires the two methods for CloudFormation."""

    @classmethod
    def has_cfn_attr(cls, _attr: str) -> bool:
        """Never."""
        return False

    def is_created(self) -> bool:
        """Always."""
        return True


def _parameter(of: ssm.ParameterDict, name: str, value: str) -> ssm.Parameter:
    return _PublicParameter(
        account_id=of.account_id,
        name=name,
        value=value,
        parameter_type="String",
        description=None,
        allowed_pattern=None,
        keyid=None,
        last_modified_date=_date(RELEASES[-1]),
        version=1,
        data_type="aws:ec2:image" if name.endswith("/image_id") else "text",
    )
