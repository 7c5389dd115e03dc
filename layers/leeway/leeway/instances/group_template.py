"""What an Auto Scaling group launches now, and how its instances differ from that.

Pure. Only AWS's own words count: Auto Scaling says from which version of which launch template each
instance was launched, EC2 says its AMI and its type. No tag can change them. What is not known, of
the instance or of the group, is no difference. Source: EC2 Auto Scaling user guide, "Use an
instance refresh with skip matching", which compares launch templates, their versions and types.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from leeway.reasons import counted


@dataclass(frozen=True, slots=True)
class Template:
    """A version of a launch template, as a number. `image` is the id of its AMI, empty if it names
    none or it cannot be resolved; `instance_type` is empty if it names none."""

    id: str
    name: str
    version: str
    image: str = ""
    instance_type: str = ""

    def __str__(self) -> str:
        return f"version {self.version} of launch template {self.name or self.id}"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """An instance of a group. `template` is the id of the launch template and `version` the version
    that it was launched from, `configuration` the name of its launch configuration; they are empty
    if Auto Scaling does not say them, as of an instance that was attached."""

    instance: str
    instance_type: str
    lifecycle_state: str
    template: str = ""
    version: str = ""
    configuration: str = ""
    protected: bool = False
    units: int = 1


@dataclass(frozen=True, slots=True)
class GroupNow:
    """A group as it is now.

    - `template`: what it launches; None for a launch configuration. `own`: what it launches for the
      instance types that have a launch template or an AMI of their own.
    - `by_requirements`: what its overrides with requirements launch. AWS does not say which of them
      an instance is of.
    - `types`: the types that it may launch; empty if they follow from requirements.
    - `unread`: why it is not known what it launches; empty if it is known.
    """

    name: str
    desired: int
    maximum: int
    members: tuple[GroupMember, ...] = ()
    template: Template | None = None
    own: Mapping[str, Template] = field(default_factory=dict)
    by_requirements: tuple[Template, ...] = ()
    types: frozenset[str] = frozenset()
    configuration: str = ""
    unread: str = ""

    @property
    def launches(self) -> str:
        """What it launches, in words: two groups, or times, with the same words launch the same."""
        templates = (self.template, *self.own.values(), *self.by_requirements)
        named = {f"{one} ({one.image})" if one.image else str(one) for one in templates if one}
        named |= {f"launch configuration {self.configuration}"} if self.configuration else set()
        return ", ".join([*sorted(named), *sorted(self.types)])

    def launches_for(self, member: GroupMember) -> tuple[Template, ...]:
        """What it may launch in place of a member, the member's own launch template first; nothing
        for a launch configuration."""
        if one := self.own.get(member.instance_type):
            return (one,)
        common = (self.template,) if self.template else ()
        return tuple(
            sorted(self.by_requirements or common, key=lambda one: one.id != member.template)
        )


def drift_of_member(member: GroupMember, image: str, group: GroupNow) -> tuple[str, ...]:
    """Return sentences about how an instance drifted from its group; none if it did not. `image` is
    the AMI that EC2 says it runs, empty if it is not known."""
    return (*_by_template(member, image, group), *_by_type(member, group))


def _by_template(member: GroupMember, image: str, group: GroupNow) -> tuple[str, ...]:
    """A member has drifted if it differs from all that the group may launch in its place."""
    now = group.launches_for(member)
    if not now:
        return tuple(_by_configuration(member, group))
    differences = [tuple(_differences(member, image, one)) for one in now]
    return () if () in differences else differences[0]


def _by_configuration(member: GroupMember, group: GroupNow) -> Iterator[str]:
    if member.configuration and member.configuration != group.configuration:
        yield _from(f"launch configuration {member.configuration}", group.launches)
    elif member.template:
        launched = f"version {member.version} of launch template {member.template}"
        yield _from(launched, group.launches)


def _differences(member: GroupMember, image: str, now: Template) -> Iterator[str]:
    if member.template:
        same = member.template == now.id
        launched = f"version {member.version}"
        launched = launched if same else f"{launched} of launch template {member.template}"
        if not same or (member.version.isdecimal() and member.version != now.version):
            yield _from(launched, str(now))
    elif member.configuration:
        yield _from(f"launch configuration {member.configuration}", str(now))
    if now.image and image and image != now.image:
        yield f"It runs {image}, and its group launches {now.image} now."


def _by_type(member: GroupMember, group: GroupNow) -> Iterator[str]:
    if group.types and member.instance_type not in group.types:
        several = len(group.types) > MOST_NAMED
        types = counted(len(group.types), "other type") if several else named(group.types)
        yield f"Its type is {member.instance_type}, and its group launches only {types} now."


MOST_NAMED = 4


def named(types: frozenset[str]) -> str:
    """Return the names of types in words."""
    *first, last = sorted(types)
    return f"{', '.join(first)} and {last}" if first else last


def _from(launched: str, now: str) -> str:
    return f"It was launched from {launched}, and its group launches from {now}."
