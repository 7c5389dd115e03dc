"""The stack: its functions with their aliases, what invokes them, and what they left behind."""

from collections.abc import Iterator

from leeway_cli.adopt.settings.leeway_stack import LeewayStack
from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import Facts, FunctionFacts, RuleFacts, known, spot_instances
from leeway_cli.doctor.finding import Finding, aws, deploy, fails, warns
from leeway_cli.doctor.names import (
    BUYER,
    EVENTS,
    RECEIVER,
    Event,
    function_name,
    matches,
    schedule_names,
)

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


def check_rules(facts: Facts) -> Iterator[Finding]:
    """Check that EventBridge sends every notice to receive_notice."""
    stack, rules = known(facts.stack), known(facts.rules)
    if stack is None or rules is None:
        return
    for event in EVENTS:
        candidates = [one for one in rules if matches(one.pattern, event)]
        if not any(one.enabled and _is_for_leeway(one, stack) for one in candidates):
            yield _not_received(stack, event, candidates)


def _is_for_leeway(rule: RuleFacts, stack: LeewayStack) -> bool:
    name = function_name(stack.name, RECEIVER)
    return any(_function_of(target) == name for target in rule.targets)


def _function_of(arn: str) -> str:
    """Return the name of a function by its ARN, with or without a qualifier."""
    parts = arn.split(":")
    return parts[6] if len(parts) > 6 and parts[2] == "lambda" else ""


def _not_received(stack: LeewayStack, event: Event, candidates: list[RuleFacts]) -> Finding:
    disabled = next((one for one in candidates if _is_for_leeway(one, stack)), None)
    own = next((one for one in candidates if one.name.startswith(f"{stack.name}-")), None)
    if disabled is not None:
        problem, mend = (
            f"rule {disabled.name} is disabled",
            aws("events enable-rule", name=disabled.name),
        )
    elif own is not None:
        problem, mend = f"rule {own.name} has no such target", deploy(stack.name)
    else:
        problem, mend = "there is no such rule", deploy(stack.name)
    return fails(
        reasons.FUNCTION_NOT_INVOKED,
        f"events {event.detail_type}",
        f"No rule of EventBridge sends events `{event.detail_type}` to "
        f"{function_name(stack.name, RECEIVER)}: {problem}.",
        mend,
    )


def check_schedules(facts: Facts) -> Iterator[Finding]:
    """Check that the schedules exist, are enabled, and invoke their functions."""
    stack, schedules = known(facts.stack), known(facts.schedules)
    if stack is None or schedules is None:
        return
    found = {one.name: one for one in schedules}
    for name, function in schedule_names(stack.name, in_vpc=bool(stack.subnets)).items():
        one, subject = found.get(name), f"schedule {name}"
        full = function_name(stack.name, function)
        if one is None:
            yield fails(
                reasons.FUNCTION_NOT_INVOKED,
                subject,
                f"EventBridge Scheduler has no schedule {name} for {full}.",
                deploy(stack.name),
            )
        elif not one.enabled:
            yield fails(
                reasons.FUNCTION_NOT_INVOKED,
                subject,
                f"The schedule {name} is disabled, so that nothing invokes {full}.",
                deploy(stack.name),
            )
        elif _function_of(one.target) != full:
            yield fails(
                reasons.FUNCTION_NOT_INVOKED,
                subject,
                f"The schedule {name} invokes {one.target} instead of {full}.",
                deploy(stack.name),
            )


def check_consumers(facts: Facts) -> Iterator[Finding]:
    """Check that Lambda reads the queue of provision_nodes."""
    stack, consumers = known(facts.stack), known(facts.consumers)
    if stack is None or consumers is None:
        return
    name = function_name(stack.name, BUYER)
    if not consumers:
        yield fails(
            reasons.FUNCTION_NOT_INVOKED,
            f"function {name}",
            f"Function {name} has no event source mapping of its queue.",
            deploy(stack.name),
        )
    for one in consumers:
        if one.state not in ("Enabled", "Enabling", "Updating"):
            yield fails(
                reasons.FUNCTION_NOT_INVOKED,
                f"function {name}",
                f"The event source mapping of {name} is {one.state}, so that pending pods get no "
                "nodes.",
                aws("lambda update-event-source-mapping", uuid=one.id, enabled=None),
            )


def check_failures(facts: Facts) -> Iterator[Finding]:
    """Check that the queues of failed work are empty."""
    for one in known(facts.queues) or ():
        if one.messages:
            read = aws(
                "sqs receive-message",
                queue_url=one.url,
                visibility_timeout=0,
                max_number_of_messages=10,
            )
            yield warns(
                reasons.FAILURES_WAIT,
                f"queue {one.name}",
                f"Queue {one.name} holds {one.messages} messages about work that failed.",
                read,
            )


def check_alarms(facts: Facts) -> Iterator[Finding]:
    """Check that no alarm is on, and that alarms notify somebody."""
    stack, alarms = known(facts.stack), known(facts.alarms)
    if stack is None or alarms is None:
        return
    subject = f"stack {stack.name}"
    if not alarms:
        yield warns(
            reasons.ALARMS_NOTIFY_NOBODY,
            subject,
            f"Stack {stack.name} has no alarms.",
            deploy(stack.name),
        )
    for one in alarms:
        if one.state == "ALARM":
            yield warns(
                reasons.ALARM_IS_ON,
                f"alarm {one.name}",
                f"Alarm {one.name} is on: {one.reason}.",
                aws("cloudwatch describe-alarm-history", alarm_name=one.name),
            )
    silent = sum(not one.notifies for one in alarms)
    if silent:
        topic = "AlarmTopicArn=TOPIC_ARN"
        yield warns(
            reasons.ALARMS_NOTIFY_NOBODY,
            subject,
            f"{silent} alarms of stack {stack.name} notify nobody: they have no action.",
            f"{deploy(stack.name)} --parameter-overrides {topic}",
        )
