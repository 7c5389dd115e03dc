"""What Auto Scaling groups launch now, by boto3: groups, and versions of launch templates."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import batched
from typing import Any

from leeway.aws.autoscaling import GROUPS_PER_CALL
from leeway.aws.errors import aws_errors
from leeway.instances.group_template import GroupMember, GroupNow, Template
from leeway.ports.aws import CloudRefused, CloudUnavailable

_PARAMETER = "resolve:ssm:"
"""The prefix of an AMI that a parameter of Systems Manager names."""


class AwsGroupTemplates:
    """The GroupTemplates Protocol; `autoscaling`, `ec2` and `ssm` return boto3's clients.

    EC2 changes no version of a launch template, so a version that the group names by its number is
    read once.
    """

    def __init__(
        self, autoscaling: Callable[[], Any], ec2: Callable[[], Any], ssm: Callable[[], Any]
    ) -> None:
        self._autoscaling = autoscaling
        self._ec2 = ec2
        self._ssm = ssm
        self._known: dict[tuple[str, str], Template] = {}

    def now(self, groups: Collection[str]) -> Mapping[str, GroupNow]:
        """Read groups: one call for each 100, and one for each launch template whose version is
        not known. A group that does not exist is left out."""
        found: dict[tuple[str, str], Template | str] = {}
        return {
            group["AutoScalingGroupName"]: self._now(group, found)
            for names in batched(sorted(groups), GROUPS_PER_CALL, strict=False)
            for group in self._described(names)
        }

    def _described(self, names: Sequence[str]) -> list[dict[str, Any]]:
        with aws_errors():
            pages = (
                self._autoscaling()
                .get_paginator("describe_auto_scaling_groups")
                .paginate(AutoScalingGroupNames=list(names), MaxRecords=GROUPS_PER_CALL)
            )
            return [group for page in pages for group in page["AutoScalingGroups"]]

    def _now(self, group: dict[str, Any], found: dict[tuple[str, str], Template | str]) -> GroupNow:
        mixed = group.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
        overrides = mixed.get("Overrides") or []
        common = group.get("LaunchTemplate") or mixed.get("LaunchTemplateSpecification")
        template = self._resolved(common, found) if common else None
        own, by_requirements = {}, []
        for one in overrides:
            overridden = self._overridden(one, template, found)
            if not (instance_type := one.get("InstanceType")):
                by_requirements.append(overridden)
            elif overridden != template:
                own[instance_type] = overridden
        launched = [template, *own.values(), *by_requirements]
        unread = [one for one in launched if isinstance(one, str)]
        known = template if isinstance(template, Template) else None
        return GroupNow(
            name=group["AutoScalingGroupName"],
            desired=group["DesiredCapacity"],
            maximum=group["MaxSize"],
            members=tuple(_members(group)),
            template=known,
            own={name: one for name, one in own.items() if isinstance(one, Template)},
            by_requirements=tuple(one for one in by_requirements if isinstance(one, Template)),
            types=_types(overrides, known),
            configuration=group.get("LaunchConfigurationName", ""),
            unread=unread[0] if unread else "",
        )

    def _overridden(
        self,
        override: dict[str, Any],
        common: Template | str | None,
        found: dict[tuple[str, str], Template | str],
    ) -> Template | str | None:
        """Return what an override launches: `common`, unless it has a launch template or an AMI of
        its own."""
        own = override.get("LaunchTemplateSpecification")
        template = self._resolved(own, found) if own else common
        image = override.get("ImageId")
        if image and isinstance(template, Template):
            return replace(template, image=image)
        return template

    def _resolved(
        self, specification: dict[str, Any], found: dict[tuple[str, str], Template | str]
    ) -> Template | str:
        """Return a version of a launch template; why it cannot be read as a text."""
        key = specification["LaunchTemplateId"], specification.get("Version") or "$Default"
        if key in self._known:
            return self._known[key]
        if key not in found:
            try:
                found[key] = self._read(*key)
            except (CloudRefused, CloudUnavailable) as error:
                name = specification.get("LaunchTemplateName") or key[0]
                found[key] = f"launch template {name} cannot be read: {error}"
        return found[key]

    def _read(self, template: str, version: str) -> Template:
        described = template_version(
            self._ec2(), {"LaunchTemplateId": template, "Version": version}
        )
        data = described["LaunchTemplateData"]
        image = str(data.get("ImageId") or "")
        varies = image.startswith(_PARAMETER)
        if varies:
            image = self._named_by(image.removeprefix(_PARAMETER))
        read = Template(
            template,
            described.get("LaunchTemplateName", ""),
            str(described["VersionNumber"]),
            image,
            data.get("InstanceType") or "",
        )
        if version.isdecimal() and not varies:
            self._known[template, version] = read
        return read

    def _named_by(self, parameter: str) -> str:
        """Return the AMI that a parameter names now; empty if it cannot be read: then only another
        version of the template is a difference."""
        with suppress(CloudRefused), aws_errors():
            found = self._ssm().get_parameters(Names=[parameter])["Parameters"]
            return str(found[0]["Value"]) if found else ""
        return ""


def template_version(ec2: Any, specification: Mapping[str, Any]) -> dict[str, Any]:
    """Read the version of a launch template that an Auto Scaling group or one of its overrides
    names; the group may leave out the version, and one of id and name.

    Raises:
        CloudUnavailable, CloudRefused: EC2 did not answer, or has no such version.
    """
    key = "LaunchTemplateId" if specification.get("LaunchTemplateId") else "LaunchTemplateName"
    version = specification.get("Version") or "$Default"
    with aws_errors():
        answer = ec2.describe_launch_template_versions(
            **{key: specification[key]}, Versions=[version]
        )
    versions: list[dict[str, Any]] = answer["LaunchTemplateVersions"]
    if not versions:
        raise CloudRefused(f"launch template {specification[key]} has no version {version}")
    return versions[0]


def _members(group: dict[str, Any]) -> Iterator[GroupMember]:
    for one in group.get("Instances") or []:
        template = one.get("LaunchTemplate") or {}
        yield GroupMember(
            instance=one["InstanceId"],
            instance_type=one.get("InstanceType") or "",
            lifecycle_state=one["LifecycleState"],
            template=template.get("LaunchTemplateId") or "",
            version=str(template.get("Version") or ""),
            configuration=one.get("LaunchConfigurationName") or "",
            protected=bool(one.get("ProtectedFromScaleIn")),
            units=int(one.get("WeightedCapacity") or 1),
        )


def _types(overrides: Sequence[dict[str, Any]], template: Template | None) -> frozenset[str]:
    """Return the types that a group may launch; none if an override has requirements instead."""
    if not overrides:
        return frozenset({template.instance_type} if template and template.instance_type else ())
    types = frozenset(one.get("InstanceType") or "" for one in overrides)
    return frozenset() if "" in types else types
