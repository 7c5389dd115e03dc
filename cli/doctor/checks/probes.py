"""What the functions say that AWS and the API servers refuse them."""

from collections.abc import Iterator, Mapping
from typing import Any

from leeway.wiring.probes import DENIED, UNCLEAR, UNREACHABLE

from cli.cluster_setup.desired import LeewayStack
from cli.doctor import reasons
from cli.doctor.facts import Answer, ClusterFacts, Facts, FunctionAnswers, known
from cli.doctor.finding import Finding, fails, warns
from cli.doctor.mending import aws, deploy, shell
from cli.doctor.rights import Right, rights_of

_LAUNCHES = frozenset({"ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:RunInstances"})
"""Calls that no function may make if the stack has no NodeRoleArns."""


def check_answers(facts: Facts) -> Iterator[Finding]:
    """Check what the functions answered: one finding for each cause."""
    stack = known(facts.stack)
    answers = known(facts.answers) or ()
    if stack is None:
        return
    for one in answers:
        if one.problem:
            yield fails(
                reasons.PROBES_NOT_ANSWERED,
                f"function {one.name}",
                shell("aws", "logs", "tail", f"/aws/lambda/{one.name}"),
                function=one.name,
                problem=one.problem,
            )
    yield from _about_aws(stack, answers)
    clusters = {one.name: one for one in facts.clusters}
    rights = rights_of(one.body for one in facts.wanted_objects)
    for one in answers:
        cluster = clusters.get(one.cluster)
        if cluster is not None and one.rules is not None:
            yield from _about_cluster(stack, cluster, one, rights)


def _about_aws(stack: LeewayStack, answers: tuple[FunctionAnswers, ...]) -> Iterator[Finding]:
    denied: dict[tuple[str, str], list[Answer]] = {}
    unreachable: dict[tuple[str, str], Answer] = {}
    for function in answers:
        for one in function.answers:
            if one.call in _LAUNCHES and not stack.node_roles:
                continue
            if one.answer == DENIED:
                denied.setdefault((function.name, one.statement), []).append(one)
            elif one.answer == UNREACHABLE:
                service = one.call.partition(":")[0]
                unreachable.setdefault((function.name, service), one)
            elif one.answer == UNCLEAR:
                yield warns(
                    reasons.PROBE_UNCLEAR,
                    f"function {function.name}",
                    function=function.name,
                    call=one.shown,
                    problem=one.problem,
                )
    for (name, statement), some in denied.items():
        yield fails(
            reasons.STATEMENT_MISSING,
            f"function {name}",
            deploy(stack.name),
            function=name,
            calls=", ".join(dict.fromkeys(one.shown for one in some)),
            statement=statement,
            problem=some[0].problem,
        )
    for (name, service), one in unreachable.items():
        yield fails(
            reasons.SERVICE_NOT_REACHED,
            f"function {name}",
            aws("lambda get-function-configuration", function_name=name),
            function=name,
            service=service,
            problem=one.problem,
        )


def _about_cluster(
    stack: LeewayStack, cluster: ClusterFacts, one: FunctionAnswers, rights: tuple[Right, ...]
) -> Iterator[Finding]:
    role, group = _role_of(stack, one.function)
    if not _has_entry(cluster, role, group):
        return  # check_setup reports the entry, which is the cause
    subject = f"function {one.name}"
    if one.cluster_problem:
        yield fails(
            reasons.CLUSTER_REFUSES_FUNCTION,
            subject,
            aws("eks describe-access-entry", cluster_name=cluster.name, principal_arn=role),
            cluster.name,
            function=one.name,
            cluster=cluster.name,
            problem=one.cluster_problem,
        )
        return
    # A right that the group does not have either is a finding about the group.
    of_group = {(m.group, m.verb, m.resource) for m in known(cluster.rights) or ()}
    missing = [
        f"{right.verb} {right.resource}"
        for right in rights
        if right.group == group
        and not right.namespace
        and (right.group, right.verb, right.resource) not in of_group
        and not any(_grants(rule, right) for rule in one.rules or ())
    ]
    if missing:
        yield fails(
            reasons.FUNCTION_WITHOUT_RIGHTS,
            subject,
            shell("leeway", "adopt", cluster.name),
            cluster.name,
            function=one.name,
            rights=", ".join(missing),
            cluster=cluster.name,
            group=group,
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
