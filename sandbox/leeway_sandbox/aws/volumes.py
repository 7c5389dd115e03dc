"""Refuses the volumes of a launch that EC2 refuses, with its codes and sentences.

Sources: EC2 API reference, "EbsBlockDevice" and "Error codes for the Amazon EC2 API"; EBS user
guide, "Amazon EBS volume types"; the sentences are those that users of EC2 have reported.
"""

import re
from collections.abc import Mapping
from typing import Any

from moto.core.exceptions import ServiceException
from moto.ec2.models.amis import Ami

from leeway_sandbox.aws.images import snapshots_of

_DEVICE = re.compile(r"/dev/sda1|/dev/xvda|(/dev/)?(sd|xvd)[b-z]([a-z])?")
_WITH_IOPS = {"gp3": 500, "io1": 50, "io2": 1000}
"""The IOPS for each GiB that a volume has at most, by its type."""

_BASE_IOPS = 3000  # of gp3
_MOST_THROUGHPUT = 0.25  # MiB per second for each of the iops


def check_volumes(ec2: Any, image: Ami, mappings: list[Mapping[str, Any]]) -> None:
    """Raise EC2's error for the first volume that it does not create for an instance."""
    snapshots = snapshots_of(image)
    for one in mappings:
        name, ebs = str(one.get("DeviceName") or ""), one.get("Ebs")
        if name and not _DEVICE.fullmatch(name):
            raise _refusal("InvalidBlockDeviceMapping", f"Invalid device name {name}")
        if ebs is not None:
            _check_size(ec2, name, ebs, snapshots)
            _check_speed(ebs)


def _check_size(
    ec2: Any, device: str, ebs: Mapping[str, Any], snapshots: Mapping[str, tuple[str, int]]
) -> None:
    named, size = ebs.get("SnapshotId"), ebs.get("VolumeSize")
    if named and named not in ec2.snapshots:
        raise _refusal("InvalidSnapshot.NotFound", f"The snapshot '{named}' does not exist.")
    snapshot, least = snapshots.get(device, ("", 0))
    if named:
        snapshot, least = named, int(ec2.snapshots[named].volume.size)
    if size is not None and int(size) < least:
        raise _refusal(
            "InvalidBlockDeviceMapping",
            f"Volume of size {size}GB is smaller than snapshot '{snapshot}', expect size>= "
            f"{least}GB",
        )


def _check_speed(ebs: Mapping[str, Any]) -> None:
    kind, iops, throughput = (ebs.get(key) for key in ("VolumeType", "Iops", "Throughput"))
    kind = kind or "gp2"
    if iops is not None and kind not in _WITH_IOPS:
        raise _refusal(
            "InvalidParameterCombination",
            f"The parameter iops is not supported for {kind} volumes.",
        )
    if throughput is not None and kind != "gp3":
        raise _refusal(
            "InvalidParameterCombination", "throughput can only be specified for volumeType gp3."
        )
    size = ebs.get("VolumeSize")
    if iops is not None and size is not None:
        ratio, most = int(iops) / int(size), _WITH_IOPS[kind]
        if ratio > most and int(iops) > _BASE_IOPS:
            raise _refusal(
                "InvalidParameterValue",
                f"Iops to volume size ratio of {ratio:.6f} is too high; maximum is {most}",
            )
    if throughput is not None:
        ratio = int(throughput) / int(iops or _BASE_IOPS)
        if ratio > _MOST_THROUGHPUT:
            raise _refusal(
                "InvalidParameterValue",
                f"Throughput (MiBps) to iops ratio of {ratio:.6f} is too high; maximum is "
                f"{_MOST_THROUGHPUT:.6f} MiBps per iops",
            )


def _refusal(code: str, message: str) -> ServiceException:
    return ServiceException(code, message)
