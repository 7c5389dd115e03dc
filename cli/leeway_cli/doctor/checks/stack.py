"""The stack: its status and version, its functions, and their aliases."""

from collections.abc import Iterator

from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import Facts, FunctionFacts, known
from leeway_cli.doctor.finding import Finding, fails, warns
from leeway_cli.doctor.mending import aws, deploy
from leeway_cli.doctor.spot import spot_instances

_IDLE = "Inactive"
"""The state of a function that Lambda has taken off its network; an invocation wakes it up.
Source: Lambda developer guide, "Lambda function states"."""


def check_stack(facts: Facts) -> Iterator[Finding]:
    """Check that the stack is settled, of this version, and has clusters."""
    stack = known(facts.stack)
    if stack is None:
        return
    subject = f"stack {stack.name}"
    if not stack.status.endswith("_COMPLETE") or stack.status.startswith("DELETE"):
        events = aws("cloudformation describe-stack-events", stack_name=stack.name)
        broken = stack.status.endswith("_FAILED") or stack.status.startswith("DELETE")
        severity = fails if broken else warns
        yield severity(
            reasons.STACK_NOT_SETTLED,
            subject,
            f"Stack {stack.name} is {stack.status}, so its resources may be of two versions.",
            events,
        )
    if stack.version != facts.version:
        yield warns(
            reasons.VERSIONS_DIFFER,
            subject,
            f"Stack {stack.name} is of version {stack.version or 'unknown'}, and this command "
            f"line is of {facts.version}.",
            deploy(stack.name),
        )
    if not stack.clusters:
        yield fails(
            reasons.STACK_WITHOUT_CLUSTERS,
            subject,
            f"The parameter ClusterNames of stack {stack.name} is empty, so Leeway ignores "
            "every notice.",
        )


def check_functions(facts: Facts) -> Iterator[Finding]:
    """Check that Lambda can run every function."""
    stack = known(facts.stack)
    for one in known(facts.functions) or ():
        subject = f"function {one.name}"
        if not one.state:
            name = stack.name if stack else ""
            yield fails(
                reasons.FUNCTION_NOT_RUNNABLE,
                subject,
                f"Stack {name} has no function {one.name}.",
                deploy(name),
            )
            continue
        if problem := _not_runnable(one):
            shown = aws("lambda get-function-configuration", function_name=one.name)
            severity = warns if one.state == _IDLE else fails
            state = one.state if one.state != "Active" else one.update
            yield severity(
                reasons.FUNCTION_NOT_RUNNABLE,
                subject,
                f"Function {one.name} is {state}: {problem}.",
                shown,
            )
        yield from _reserved(one, spot_instances(facts))


def _not_runnable(one: FunctionFacts) -> str:
    if one.state == "Active" and one.update == "Successful":
        return ""
    return one.problem.rstrip(".") or "Lambda gives no reason"


def _reserved(one: FunctionFacts, spot: int) -> Iterator[Finding]:
    if one.reserved is None:
        return
    free = aws("lambda delete-function-concurrency", function_name=one.name)
    subject = f"function {one.name}"
    if one.reserved == 0:
        yield fails(
            reasons.FUNCTION_NOT_RUNNABLE,
            subject,
            f"The reserved concurrency of function {one.name} is 0, so that Lambda never "
            "invokes it.",
            free,
        )
    elif one.reserved < spot and one.name.endswith(("-receive-notice", "-retire-node")):
        yield warns(
            reasons.FUNCTION_NOT_RUNNABLE,
            subject,
            f"Function {one.name} may run {one.reserved} times at once, and {spot} Spot "
            "instances can be interrupted at once.",
            free,
        )


def check_aliases(facts: Facts) -> Iterator[Finding]:
    """Check that the aliases of the durable functions point to published versions."""
    stack = known(facts.stack)
    for one in known(facts.aliases) or ():
        mend = deploy(stack.name if stack else "")
        subject = f"alias {one.function}:{one.name}"
        if not one.version:
            yield fails(
                reasons.FUNCTION_NOT_RUNNABLE,
                subject,
                f"Function {one.function} has no alias {one.name}.",
                mend,
            )
        elif not one.version.isdigit():
            yield fails(
                reasons.FUNCTION_NOT_RUNNABLE,
                subject,
                f"The alias {one.name} of {one.function} points to {one.version}, and a durable "
                "execution needs a published version.",
                mend,
            )
