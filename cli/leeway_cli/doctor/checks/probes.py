"""What the functions say that AWS and the API servers refuse them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from leeway.wiring.probes import DENIED, UNCLEAR, UNREACHABLE

from leeway_cli.adopt.settings.leeway_stack import LeewayStack
from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import (
    Answer,
    ClusterFacts,
    Facts,
    FunctionAnswers,
    known,
)
from leeway_cli.doctor.finding import About, Finding, aws, deploy, shell
from leeway_cli.doctor.rights import Right, rights_of

_LAUNCHES = frozenset(
    {
        "ec2:CreateFleet",
        "ec2:CreateLaunchTemplate",
        "ec2:RunInstances",
        "eks:DescribeAccessEntry",
    }
)
"""Calls that no function may make if the stack has no NodeRoleArns."""


def check_answers(facts: Facts) -> Iterator[Finding]:
    """Check what the functions answered: one finding for each cause."""
    stack, answers = known(facts.stack), known(facts.answers) or ()
    if stack is None:
        return
    yield from about_aws(stack, answers)
    clusters = {one.name: one for one in facts.clusters}
    for one in answers:
        cluster = clusters.get(one.cluster)
        # Without its access entry, which check_setup reports, a role has no right.
        if cluster is not None and _has_entry(cluster, *_role_of(stack, one.function)):
            rights = rights_of(wanted.body for wanted in facts.wanted_in(cluster))
            yield from about_cluster(stack, one, rights, known(cluster.rights) or ())


def about_aws(stack: LeewayStack, answers: Iterable[FunctionAnswers]) -> Iterator[Finding]:
    """Return findings about functions that do not answer, and about calls of AWS."""
    denied: dict[tuple[str, str], list[Answer]] = {}
    unreachable: dict[tuple[str, str], Answer] = {}
    for function in answers:
        about = About(reasons.PROBE_NOT_ANSWERED, f"function {function.name}")
        if function.problem:
            yield about.fails(
                f"Function {function.name} did not say which calls AWS refuses it: "
                f"{function.problem}.",
                shell("aws", "logs", "tail", f"/aws/lambda/{function.name}"),
            )
        for one in function.answers:
            if one.call in _LAUNCHES and not stack.node_roles:
                continue
            if one.answer == DENIED:
                denied.setdefault((function.name, one.statement), []).append(one)
            elif one.answer == UNREACHABLE:
                service = one.call.partition(":")[0]
                unreachable.setdefault((function.name, service), one)
            elif one.answer == UNCLEAR:
                yield about.warns(
                    f"Function {function.name} asked for {one.shown} and got an answer that says "
                    f"nothing about its right: {one.problem}.",
                )
    for (name, statement), some in denied.items():
        yield About(reasons.RIGHT_MISSING, f"function {name}").fails(
            f"AWS refuses {name} {', '.join(dict.fromkeys(one.shown for one in some))}: its "
            f"role lacks statement {statement} of template.yaml, or another policy denies it. "
            f"{some[0].problem}.",
            deploy(stack),
        )
    for (name, service), one in unreachable.items():
        yield About(reasons.PROBE_NOT_ANSWERED, f"function {name}").fails(
            f"Function {name} gets no answer of {service}: {one.problem}.",
            aws("lambda get-function-configuration", function_name=name),
        )


def about_cluster(
    stack: LeewayStack,
    one: FunctionAnswers,
    rights: Iterable[Right],
    lacking: Iterable[Right] = (),
) -> Iterator[Finding]:
    """Return findings about the token of a function. `rights` are those in rbac/; `lacking` are
    those that a group does not have, which are findings about the group."""
    role, group = _role_of(stack, one.function)
    about = About(reasons.RIGHT_MISSING, f"function {one.name}", one.cluster)
    if one.cluster_problem:
        yield about.fails(
            f"Function {one.name} could not ask the API server of cluster {one.cluster} for its "
            f"rights: {one.cluster_problem}.",
            aws("eks describe-access-entry", cluster_name=one.cluster, principal_arn=role),
        )
        return
    of_group = {(each.group, each.verb, each.resource) for each in lacking}
    missing = [
        f"{right.verb} {right.resource}"
        for right in rights
        if one.rules is not None
        and right.group == group
        and not right.namespace
        and (right.group, right.verb, right.resource) not in of_group
        and not any(_grants(rule, right) for rule in one.rules)
    ]
    if missing:
        yield about.fails(
            f"With its own token, function {one.name} may not {', '.join(missing)} in cluster "
            f"{one.cluster}: its access entry does not give it the rights of group {group}.",
            shell("leeway", "adopt", one.cluster),
        )


def _role_of(stack: LeewayStack, function: str) -> tuple[str, str]:
    """Return the ARN of a function's role, and the group of its access entry."""
    role = "".join(word.title() for word in function.split("-")) + "Role"
    named = ((arn, group) for arn, group in stack.groups.items() if role in arn)
    return next(named, ("", ""))


def _has_entry(cluster: ClusterFacts, role: str, group: str) -> bool:
    """Whether the access entry of a role has its group, or is not known."""
    entries = known(cluster.entries)
    if entries is None:
        return True
    return any(one.principal == role and group in one.groups for one in entries)


def _grants(rule: Mapping[str, Any], right: Right) -> bool:
    asked = {"verbs": right.verb, "apiGroups": right.api_group, "resources": right.resource}
    return all({value, "*"} & {*(rule.get(key) or ())} for key, value in asked.items())
