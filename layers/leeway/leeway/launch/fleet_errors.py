"""The errors of a fleet's answer, what a run does about each, and the field of a manifest that EC2
refuses a launch for.

EC2 checks the launch template, which nobody wrote by hand, and answers with an error code and a
sentence about it. Sources: EC2 API reference, "Error codes for the Amazon EC2 API"; Karpenter's
classification of unavailable offerings, and its `ToReasonMessage`; the sentences are those that
users of Karpenter and boto3 have reported.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from leeway.launch.fleets import FleetError
from leeway.launch.node_settings import NodeSettings
from leeway.manifests.node_class import Volume
from leeway.reasons import Reason, ReasonCode, clause, some
from leeway.selection.labels import RESERVED
from leeway.selection.offers.allocatable import GIB
from leeway.selection.offers.catalog import ANY, Unavailable, spot_quota
from leeway.selection.resources import whole

CAPACITY_UNAVAILABLE = ReasonCode(
    "CapacityUnavailable",
    "EC2 has no {capacity_type} capacity for {types} in {zones} now ({codes}): Leeway uses other "
    "offerings for three minutes.",
)

RESERVATION_FULL = ReasonCode(
    "ReservationFull",
    "Capacity reservation {reservation} has no free instance for {types} in {zones} ({codes}), "
    "although EC2 said that it has: another account or workload uses it too. Leeway uses other "
    "capacity for three minutes, where the pool allows it.",
)

QUOTA_REACHED = ReasonCode(
    "QuotaReached",
    "The account has reached an EC2 quota with {capacity_type} {types} in {zones} ({codes}): "
    "request an increase in Service Quotas.",
    "an-ec2-quota-is-reached",
)

SPOT_ROLE_MISSING = ReasonCode(
    "SpotRoleMissing",
    "The account has no role AWSServiceRoleForEC2Spot, without which EC2 launches no Spot "
    "instance: Leeway uses on-demand capacity where a pool allows it. Create the role with `aws "
    "iam create-service-linked-role --aws-service-name spot.amazonaws.com`, or run `leeway adopt`.",
    "the-account-has-no-spot-role",
)
SUBNET_WITHOUT_ADDRESSES = ReasonCode(
    "SubnetWithoutAddresses",
    "Subnet {subnets} has too few free addresses, so Leeway launches no node there: free addresses "
    "in it, or add a subnet{place}.",
    "a-subnet-has-no-free-addresses",
)
LAUNCH_REFUSED = ReasonCode(
    "LaunchRefused",
    "EC2 refuses a launch of pool {pool}: {remedy} ({error}).",
    "a-launch-is-refused",
)
LAUNCH_REPEATED = ReasonCode(
    "LaunchRepeated",
    "EC2 has not carried out a launch of pool {pool} ({code}): {why}, so Leeway repeats it.",
)

REFUSALS = frozenset(
    one.name
    for one in (
        CAPACITY_UNAVAILABLE,
        RESERVATION_FULL,
        QUOTA_REACHED,
        SPOT_ROLE_MISSING,
        SUBNET_WITHOUT_ADDRESSES,
        LAUNCH_REFUSED,
    )
)
"""The reasons that say what EC2 has refused. A run that ends too early says them first."""

DENIED = "UnauthorizedOperation"
"""EC2's code for a missing permission. EC2 also answers it if a launch template does not exist: it
then checks the permission for a template without tags."""

_NO_CAPACITY = frozenset(
    {
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "InvalidCapacityReservationId.NotFound",  # it has ended since it was read
        "InvalidFleetConfiguration",  # the zone does not offer the type
        "ReservationCapacityExceeded",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
        "Unsupported",
    }
)

_QUOTAS = frozenset(
    {
        "InstanceLimitExceeded",
        "MaxFleetCountExceeded",
        "MaxScheduledInstanceCapacityExceeded",
        "VcpuLimitExceeded",
    }
)

_SPOT_QUOTAS = frozenset({"MaxSpotInstanceCountExceeded"})

_SPOT_ROLE = frozenset({"AuthFailure.ServiceLinkedRoleCreationNotPermitted"})

_SUBNETS = frozenset({"InsufficientFreeAddressesInSubnet"})

_FORBIDDEN = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "OptInRequired",
        "PendingVerification",
        DENIED,
    }
)

_THROTTLED = frozenset(
    {
        "EC2ThrottledException",
        "InternalError",
        "InternalFailure",
        "RequestLimitExceeded",
        "RequestThrottled",
        "ServiceUnavailable",
        "Throttling",
        "Unavailable",
    }
)

_TEMPLATES = frozenset(
    {"InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"}
)

_MISCONFIGURED = ("Invalid", "Missing", "Malformed", "TagLimitExceeded", "IncorrectState")
"""Beginnings of the codes of wrong templates, AMIs, security groups, profiles and volumes."""


class Cause(StrEnum):
    """What an error is about."""

    CAPACITY = "capacity"
    QUOTA = "quota"
    SPOT_ROLE = "spot role"
    SUBNET = "subnet"
    PERMISSION = "permission"
    SETTINGS = "settings"
    TEMPLATE = "template"
    THROTTLING = "throttling"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Consequences:
    """What the errors of a fleet lead to.

    `unavailable` are offerings that no run requests for some minutes, each with the code of its
    error; `avoided` are offerings that this run does not request again. `exhausted` are ids of
    subnets. `blocked` says why the run launches nothing more from the pool. `repeat`: the same
    request may succeed.
    """

    unavailable: Mapping[Unavailable, str]
    avoided: frozenset[Unavailable]
    exhausted: frozenset[str]
    blocked: Reason | None
    repeat: bool
    reasons: tuple[Reason, ...]


def cause_of(code: str) -> Cause:
    """Return what an error code is about."""
    for codes, cause in _CAUSES:
        if code in codes:
            return cause
    return Cause.SETTINGS if code.startswith(_MISCONFIGURED) else Cause.UNKNOWN


def consequences_of(
    pool: str,
    errors: Iterable[FleetError],
    *,
    denied_before: bool = True,
    settings: NodeSettings | None = None,
) -> Consequences:
    """Decide what the errors of a pool's fleet lead to. `denied_before`: EC2 has denied a launch of
    the pool in this run. Its first denial may mean a deleted launch template, and is no reason yet.
    `settings` are those of the pool, of which a reason names the wrong one.

    A permission or a setting blocks the pool only if it is the cause of every error: otherwise
    other overrides can still succeed. EC2's unavailable offerings are written down for all runs,
    those with any other error are not: a wrong setting must not make offerings unavailable.
    """
    by_cause: dict[Cause, list[FleetError]] = {}
    doubtful = False
    for error in errors:
        if error.code == DENIED and not denied_before:
            doubtful = True
        else:
            by_cause.setdefault(cause_of(error.code), []).append(error)
    found = [(cause, by_cause[cause]) for cause in Cause if cause in by_cause]
    return Consequences(
        unavailable=dict(_offerings(found, _UNAVAILABLE)),
        avoided=frozenset(dict(_offerings(found, _AVOIDED))),
        exhausted=frozenset(
            one.override.subnet for one in by_cause.get(Cause.SUBNET, ()) if one.override
        ),
        blocked=None if doubtful else _blocked(pool, found, settings),
        repeat=doubtful or not _PASSING.isdisjoint(by_cause),
        reasons=tuple(_reason(pool, cause, some, settings) for cause, some in found),
    )


_PASSING = frozenset({Cause.TEMPLATE, Cause.THROTTLING})
"""The same launch may succeed in the next round: EC2 throttles less then, and a launch template
that was deleted is created again."""

_STOPPING = frozenset({Cause.PERMISSION, Cause.SETTINGS})

_UNAVAILABLE = frozenset({Cause.CAPACITY, Cause.QUOTA, Cause.SPOT_ROLE})

_AVOIDED = frozenset({*_STOPPING, Cause.UNKNOWN})

_CAUSES = (
    (_NO_CAPACITY, Cause.CAPACITY),
    (_QUOTAS | _SPOT_QUOTAS, Cause.QUOTA),
    (_SPOT_ROLE, Cause.SPOT_ROLE),
    (_SUBNETS, Cause.SUBNET),
    (_TEMPLATES, Cause.TEMPLATE),
    (_FORBIDDEN, Cause.PERMISSION),
    (_THROTTLED, Cause.THROTTLING),
)

type _ByCause = Sequence[tuple[Cause, Sequence[FleetError]]]


def _offerings(found: _ByCause, causes: Collection[Cause]) -> Iterator[tuple[Unavailable, str]]:
    for cause, errors in found:
        for error in errors if cause in causes else ():
            if (offering := _offering(error)) is not None:
                yield offering, error.code


def _blocked(pool: str, found: _ByCause, settings: NodeSettings | None) -> Reason | None:
    """An error of the whole call blocks as well, unless the call may succeed later."""
    if found and all(cause in _STOPPING for cause, _ in found):
        return _reason(pool, *found[0], settings)
    for cause, errors in found:
        if cause not in _PASSING and any(_offering(one) is None for one in errors):
            return _reason(pool, cause, errors, settings)
    return None


def _offering(error: FleetError) -> Unavailable | None:
    if error.code in _SPOT_ROLE:
        return Unavailable(ANY, ANY, error.capacity_type)
    if error.override is None:
        return None
    if error.capacity_type == RESERVED:
        return Unavailable(error.reservation, error.override.zone, RESERVED)
    kind = error.override.instance_type
    if error.code in _SPOT_QUOTAS and (quota := spot_quota(kind)):
        return Unavailable(quota, ANY, error.capacity_type)
    return Unavailable(kind, error.override.zone, error.capacity_type)


def launch_refused(
    pool: str, refusal: str, remedy: str, settings: NodeSettings | None = None
) -> Reason:
    """Return the reason of a refusal, with the field of the manifest that causes it, if it is
    known, or else the remedy. `refusal` is EC2's error code and sentence."""
    known = refused_setting(refusal, settings) if settings is not None else None
    return LAUNCH_REFUSED(
        pool=pool, remedy=f"correct {known}" if known else remedy, error=clause(refusal)
    )


def _reason(
    pool: str, cause: Cause, errors: Sequence[FleetError], settings: NodeSettings | None
) -> Reason:
    first = errors[0]
    types = _some(one.override.instance_type for one in errors if one.override)
    zones = _some(one.override.zone for one in errors if one.override)
    offering = {"capacity_type": first.capacity_type, "types": types, "zones": zones}
    error = f"{first.code}: {first.message}"
    match cause:
        case Cause.CAPACITY if first.capacity_type == RESERVED:
            codes = _some(one.code for one in errors)
            full = first.reservation
            return RESERVATION_FULL(reservation=full, types=types, zones=zones, codes=codes)
        case Cause.CAPACITY:
            return CAPACITY_UNAVAILABLE(**offering, codes=_some(one.code for one in errors))
        case Cause.QUOTA:
            return QUOTA_REACHED(**offering, codes=_some(one.code for one in errors))
        case Cause.SPOT_ROLE:
            return SPOT_ROLE_MISSING()
        case Cause.SUBNET:
            subnets = _some(one.override.subnet for one in errors if one.override)
            return SUBNET_WITHOUT_ADDRESSES(subnets=subnets, place="")
        case Cause.TEMPLATE:
            why = "a launch template was deleted and is created again"
            return LAUNCH_REPEATED(pool=pool, code=first.code, why=why)
        case Cause.THROTTLING:
            return LAUNCH_REPEATED(pool=pool, code=first.code, why="EC2 throttles launches")
        case Cause.PERMISSION:
            remedy = "grant the missing permission"
        case Cause.SETTINGS:
            remedy = "correct its EC2NodeClass"
        case Cause.UNKNOWN:
            what = f"{first.capacity_type} {types} in {zones}"
            remedy = f"Leeway uses other offerings than {what} for three minutes"
    return launch_refused(pool, error, remedy, settings)


def _some(names: Iterable[str]) -> str:
    return some(dict.fromkeys(names)) or "any"


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
