"""The field of a manifest that EC2 refuses a launch for.

EC2 checks the launch template, which nobody wrote by hand, and answers with an error code and a
sentence about it. The table below has the refusals that EC2NodeClasses cause most often. Sources:
EC2 API reference, "Error codes for the Amazon EC2 API"; Karpenter, `ToReasonMessage`; the sentences
are those that users of Karpenter and boto3 have reported.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from leeway.launch.node_settings import NodeSettings
from leeway.manifests.node_class import Volume
from leeway.selection.offers.allocatable import GIB
from leeway.selection.resources import whole


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refusal that `pattern` finds in EC2's code and sentence. `place` names the field, and `why`
    says what is wrong with it, with the groups of the pattern."""

    pattern: str
    place: Callable[[NodeSettings, re.Match[str]], str]
    why: str


def refused_setting(refusal: str, settings: NodeSettings) -> str | None:
    """Return the field that caused a refusal, and what is wrong with it; None if the refusal is not
    in the table. `refusal` is EC2's error code and sentence."""
    for one in _REFUSALS:
        if found := re.search(one.pattern, refusal):
            return f"{one.place(settings, found)}: {one.why.format(**found.groupdict())}"
    return None


def _own(settings: NodeSettings, field: str) -> str:
    return f"EC2NodeClass {settings.node_class}, spec.{field}"


def _images(settings: NodeSettings, found: re.Match[str]) -> str:
    name = found.groupdict().get("image")
    ids = [one.id for one in settings.images.value]
    if name in ids and name is not None:
        return f"{settings.images.place}[{ids.index(name)}].id"
    return settings.images.place if settings.images.value else _own(settings, "amiFamily")


def _profile(settings: NodeSettings, _found: re.Match[str]) -> str:
    setting = settings.profile or settings.role
    return setting.place if setting else _own(settings, "role")


def _groups(settings: NodeSettings, _found: re.Match[str]) -> str:
    setting = settings.security_groups
    return setting.place if setting else _own(settings, "securityGroupSelectorTerms")


def _subnets(settings: NodeSettings, _found: re.Match[str]) -> str:
    return settings.subnets.place if settings.subnets else _own(settings, "subnetSelectorTerms")


def _tags(settings: NodeSettings, found: re.Match[str]) -> str:
    key = found.groupdict().get("key")
    with_key = [one for one in settings.tags if key in one.value]
    given = with_key or [one for one in settings.tags if one.value]
    return given[-1].place if given else _own(settings, "tags")


def _of_class(field: str) -> Callable[[NodeSettings, re.Match[str]], str]:
    return lambda settings, _: _own(settings, field)


def _volume(
    field: str, is_meant: Callable[[Volume, re.Match[str]], bool] = lambda *_: True
) -> Callable[[NodeSettings, re.Match[str]], str]:
    """A field of the first volume that a refusal may mean: EC2 names neither its device nor its
    position."""

    def place(settings: NodeSettings, found: re.Match[str]) -> str:
        for number, one in enumerate(settings.block_devices):
            if one.ebs is not None and is_meant(one.ebs, found):
                return _own(settings, f"blockDeviceMappings[{number}].ebs.{field}")
        return _own(settings, "blockDeviceMappings")

    return place


def _device(settings: NodeSettings, found: re.Match[str]) -> str:
    for number, one in enumerate(settings.block_devices):
        if one.device_name == found["device"]:
            return _own(settings, f"blockDeviceMappings[{number}].deviceName")
    return _own(settings, "blockDeviceMappings")


def _has_size(volume: Volume, found: re.Match[str]) -> bool:
    size = volume.volume_size
    return size is not None and -(-whole(size) // GIB) == int(found["size"])


def _is_too_high(volume: Volume, found: re.Match[str]) -> bool:
    """Whether the volume has more IOPS for each GiB than EC2 allows."""
    size = -(-whole(volume.volume_size) // GIB) if volume.volume_size else 1
    return volume.iops is not None and volume.iops / size > float(found["most"])


def _refusals() -> Iterator[_Refusal]:
    yield _Refusal(
        r"Volume of size (?P<size>\d+)GB is smaller than\s+snapshot '?(?P<snapshot>snap-\w+)'?"
        r".*?size ?>= ?(?P<least>\d+)GB",
        _volume("volumeSize", _has_size),
        "{size}Gi is smaller than snapshot {snapshot}, which needs {least}Gi",
    )
    yield _Refusal(
        r"Invalid device name '?(?P<device>[\w/]+)",
        _device,
        "{device} is no device name of EC2; the root device of most AMIs is /dev/xvda or /dev/sda1",
    )
    yield _Refusal(
        r"Snapshot\.NotFound.*?(?P<snapshot>snap-\w+)",
        _volume("snapshotID", lambda one, found: one.snapshot_id == found["snapshot"]),
        "EC2 knows no snapshot {snapshot}: it is of another region, was deleted, or is not shared "
        "with this account",
    )
    yield _Refusal(
        r"parameter iops is not supported for (?P<kind>\w+) volumes",
        _volume("iops", lambda one, found: one.volume_type == found["kind"]),
        "volumes of type {kind} take no iops",
    )
    yield _Refusal(
        r"[Ii]ops to volume size ratio of [\d.]+ is too high; maximum is (?P<most>\d+)",
        _volume("iops", _is_too_high),
        "a volume has at most {most} iops for each GiB of volumeSize",
    )
    yield _Refusal(
        r"[Tt]hroughput (\(MiBps\) to iops ratio|can only be specified)",
        _volume("throughput", lambda one, _: one.throughput is not None),
        "only gp3 volumes take a throughput, of at most 0.25 MiB per second for each of their iops",
    )
    yield _Refusal(
        r"InvalidAMIID\.(NotFound|Unavailable|Malformed).*?(?P<image>ami-\w+)",
        _images,
        "EC2 knows no image {image}: it is of another region, was deregistered, or is not shared "
        "with this account",
    )
    yield _Refusal(
        r"Not authorized for images: \[?(?P<image>ami-\w+)",
        _images,
        "image {image} is not shared with this account",
    )
    yield _Refusal(
        r"iamInstanceProfile\.\w+ is invalid|has no associated IAM Roles",
        _profile,
        "IAM has no such instance profile, or it has no role; EC2 sees a new one after a moment",
    )
    yield _Refusal(
        r"belong to different networks",
        _groups,
        "the security groups and the subnets are of different VPCs",
    )
    yield _Refusal(
        r"Invalid(SecurityGroupID|Group)\.NotFound|The security group '?(?P<group>sg-\w+)",
        _groups,
        "EC2 knows no such security group any more",
    )
    yield _Refusal(r"InvalidSubnetID\.NotFound", _subnets, "EC2 knows no such subnet any more")
    yield _Refusal(
        r"User data is limited to (?P<most>\d+) bytes",
        _of_class("userData"),
        "with what Leeway adds, the user data is larger than the {most} bytes that EC2 takes",
    )
    yield _Refusal(
        r"TagLimitExceeded|'(?P<key>[^']*)' is not a valid tag key|[Tt]ag keys? starting with",
        _tags,
        "EC2 refuses a key of the tags, or their number",
    )
    yield _Refusal(
        r"KMS ?[Kk]ey",
        _volume("kmsKeyID", lambda one, _: one.kms_key_id is not None),
        "the KMS key does not exist, is disabled, or its policy does not let EC2 use it",
    )


_REFUSALS = tuple(_refusals())
