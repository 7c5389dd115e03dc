"""Evaluates the statements of policies as IAM does, and lists its checks of the calls of EC2 that
create, tag and end instances.

Rules: "Policy evaluation logic" and "IAM JSON policy elements: Condition operators" in IAM's guide;
Service Authorization Reference, "Actions, resources, and condition keys for Amazon EC2"; EC2's
guides "Example policies for working with launch templates" and "EC2 Fleet prerequisites". moto's
engine ignores the operators that it does not know, so that a condition would allow everything. What
this module does not know is an error.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from leeway_sandbox.aws.cloud import ACCOUNT

type Values = str | Sequence[str]


class NotEvaluatedError(NotImplementedError):
    """A statement has an element that this module does not know."""


@dataclass(frozen=True)
class Request:
    """One check of IAM. `context` has the condition keys that the service sends."""

    action: str
    resource: str
    context: Mapping[str, Values] = field(default_factory=dict)


def refused(
    statements: Iterable[Mapping[str, Any]], requests: Iterable[Request]
) -> Iterable[Request]:
    """Yield the requests that the statements do not allow: a call needs all checks of its
    service."""
    given = list(statements)
    return (one for one in requests if not _allows(given, one))


def listed(value: Any) -> list[Any]:
    """Return an element of a policy as a list: it may be one value."""
    return [value] if isinstance(value, str | bool | Mapping) else list(value)


def _allows(statements: list[Mapping[str, Any]], request: Request) -> bool:
    return {one["Effect"] for one in statements if _applies(one, request)} == {"Allow"}


def _applies(statement: Mapping[str, Any], request: Request) -> bool:
    if unknown := statement.keys() - {"Sid", "Effect", "Action", "Resource", "Condition"}:
        raise NotEvaluatedError(f"{unknown} is not evaluated")
    actions = [action.lower() for action in listed(statement["Action"])]
    return (
        any(_matches(request.action.lower(), action) for action in actions)
        and any(_matches(request.resource, one) for one in listed(statement["Resource"]))
        and all(
            _holds(operator, key, listed(values), request.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _holds(operator: str, key: str, wanted: Sequence[str], context: Mapping[str, Values]) -> bool:
    """Whether one condition is true; all of a statement's conditions must be."""
    if any("${" in str(value) for value in wanted):
        raise NotEvaluatedError("policy variables are not evaluated")
    lowered = {name.lower(): value for name, value in context.items()}
    found = lowered.get(key.lower())
    if operator == "Null":
        (absent,) = wanted
        return (found is None) == (str(absent).lower() == "true")
    quantifier, _, plain = operator.rpartition(":")
    if plain.endswith("IfExists"):
        plain = plain.removesuffix("IfExists")
        if found is None:
            return True
    matches = _OPERATORS.get(plain)
    if matches is None or quantifier not in ("", "ForAllValues", "ForAnyValue"):
        raise NotEvaluatedError(f"{operator} is not evaluated")
    if quantifier == "ForAllValues":
        return all(matches(value, wanted) for value in listed(found or []))
    if found is None:
        # "A missing key": a negated operator is then true, the others are false.
        return plain in _NEGATED
    if quantifier == "ForAnyValue":
        return any(matches(value, wanted) for value in listed(found))
    (value,) = listed(found)
    return matches(value, wanted)


def _like(value: str, wanted: Sequence[str]) -> bool:
    return any(_matches(value, pattern) for pattern in wanted)


_OPERATORS: dict[str, Callable[[str, Sequence[str]], bool]] = {
    "StringEquals": lambda value, wanted: value in wanted,
    "StringNotEquals": lambda value, wanted: value not in wanted,
    "StringLike": _like,
    "StringNotLike": lambda value, wanted: not _like(value, wanted),
    "ArnEquals": _like,
    "ArnLike": _like,
    "Bool": lambda value, wanted: value.lower() in [one.lower() for one in wanted],
}
_NEGATED = {name for name in _OPERATORS if "Not" in name}


def _matches(value: str, pattern: str) -> bool:
    """Match IAM's wildcards `*` and `?`; a bracket is not special."""
    return fnmatchcase(value, pattern.replace("[", "[[]"))


REGION = "us-east-1"
"""The region of every deployed template."""

type Tags = Mapping[str, str]

_OWN = f"arn:aws:ec2:{REGION}:{ACCOUNT}:"
IMAGE = f"arn:aws:ec2:{REGION}::image/ami-1"
INSTANCE, VOLUME = f"{_OWN}instance/i-1", f"{_OWN}volume/vol-1"
FLEET, TEMPLATE = f"{_OWN}fleet/fleet-1", f"{_OWN}launch-template/lt-1"
ALL_TEMPLATES = f"{_OWN}launch-template/*"
INTERFACE = f"{_OWN}network-interface/eni-1"
SPOT_REQUEST = f"{_OWN}spot-instances-request/sir-1"
SUBNET, GROUP = f"{_OWN}subnet/subnet-1", f"{_OWN}security-group/sg-1"

LAUNCHED_BY_GROUPS = (IMAGE, SUBNET, GROUP, FLEET, TEMPLATE, INSTANCE, INTERFACE, VOLUME)
"""What Auto Scaling checks ec2:CreateFleet of the caller of LaunchInstances for. Sources: EC2 Auto
Scaling's guide, "Launching instances with synchronous provisioning"; AWS managed policy
BedrockAgentCoreRuntimeInstancesOperatorRolePolicy."""


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
