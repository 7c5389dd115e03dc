"""What invokes the functions: rules, schedules, a queue; and what they left behind."""

from collections.abc import Iterator

from leeway_cli.cluster_setup.desired import LeewayStack
from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import Facts, RuleFacts, known
from leeway_cli.doctor.finding import Finding, fails, warns
from leeway_cli.doctor.mending import aws, deploy
from leeway_cli.doctor.names import BUYER, EVENTS, RECEIVER, Event, function_name, schedule_names
from leeway_cli.doctor.patterns import matches


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
