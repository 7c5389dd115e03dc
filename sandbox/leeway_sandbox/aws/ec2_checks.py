"""The checks that IAM makes for the calls of EC2 that create, tag and end instances.

Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon EC2";
EC2's guides "Example policies for working with launch templates" and "EC2 Fleet prerequisites".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leeway_sandbox.aws.cloud import ACCOUNT
from leeway_sandbox.aws.policies import Request

REGION = "us-east-1"
"""The region of every deployed template."""

type Tags = Mapping[str, str]

_OWN = f"arn:aws:ec2:{REGION}:{ACCOUNT}:"
IMAGE = f"arn:aws:ec2:{REGION}::image/ami-1"
INSTANCE, VOLUME = f"{_OWN}instance/i-1", f"{_OWN}volume/vol-1"
FLEET, TEMPLATE = f"{_OWN}fleet/fleet-1", f"{_OWN}launch-template/lt-1"
ALL_TEMPLATES = f"{_OWN}launch-template/*"
INTERFACE = f"{_OWN}network-interface/eni-1"
SUBNET, GROUP = f"{_OWN}subnet/subnet-1", f"{_OWN}security-group/sg-1"


@dataclass(frozen=True)
class Launch:
    """A launch by a fleet: the tags of what it creates, by resource type, and of its template.

    `role` is the role in the template's instance profile. `found`: EC2 finds the template; if not,
    it checks CreateFleet for all templates, without the tags of one, and nothing else follows
    (kubernetes-sigs/karpenter, issue 2813). A launch without a template, by
    RunInstances alone, has no `template`.
    """

    tags: Mapping[str, Tags]
    template: Tags | None
    role: str
    through_fleet: bool = True
    found: bool = True
    created: Mapping[str, str] = field(
        default_factory=lambda: {
            "instance": INSTANCE,
            "volume": VOLUME,
            "network-interface": INTERFACE,
        }
    )

    def checks(self) -> list[Request]:
        """Return every check; IAM must allow all of them."""
        actions = ["ec2:CreateFleet", "ec2:RunInstances"][0 if self.through_fleet else 1 :]
        if not self.found:
            return self._of("ec2:CreateFleet")
        found = [pass_role(self.role)]
        for action in actions:
            found += self._of(action)
        return found

    def _of(self, action: str) -> list[Request]:
        used = {} if self.template is None else {"ec2:LaunchTemplate": TEMPLATE}
        found = [Request(action, arn, used) for arn in (IMAGE, SUBNET, GROUP)]
        if not self.found:
            requested = _requested(self.tags.get("fleet", {}))
            found.append(Request(action, ALL_TEMPLATES, {**used, **requested}))
        elif self.template is not None:
            found.append(Request(action, TEMPLATE, {**used, **resource_tags(self.template)}))
        created = dict(self.created)
        if action == "ec2:CreateFleet":
            created["fleet"] = FLEET
        for kind, arn in created.items():
            tags = self.tags.get(kind, {})
            found.append(Request(action, arn, {**used, **_requested(tags)}))
            if tags:
                found += create_tags(arn, tags, {}, by=action.removeprefix("ec2:"))
        return found


def create_template(tags: Tags) -> list[Request]:
    """Return the checks of CreateLaunchTemplate."""
    found = [Request("ec2:CreateLaunchTemplate", TEMPLATE, _requested(tags))]
    return found + (create_tags(TEMPLATE, tags, {}, by="CreateLaunchTemplate") if tags else [])


def create_tags(arn: str, tags: Tags, existing: Tags, *, by: str | None = None) -> list[Request]:
    """Return the check of CreateTags; `by` is the action that creates the resource, None if it
    exists."""
    created = {} if by is None else {"ec2:CreateAction": by}
    context = {**created, **_requested(tags), **resource_tags(existing), "aws:TagKeys": list(tags)}
    return [Request("ec2:CreateTags", arn, context)]


def terminate(tags: Tags) -> list[Request]:
    """Return the check of TerminateInstances of an instance with these tags."""
    return [Request("ec2:TerminateInstances", INSTANCE, resource_tags(tags))]


def pass_role(role: str, service: str = "ec2.amazonaws.com") -> Request:
    """Return the check of giving a role to a service."""
    return Request("iam:PassRole", role, {"iam:PassedToService": service})


def _requested(tags: Tags) -> dict[str, str]:
    return {f"aws:RequestTag/{key}": value for key, value in tags.items()}


def resource_tags(tags: Tags) -> dict[str, str]:
    """Return the condition keys of the tags that a resource has."""
    return {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
