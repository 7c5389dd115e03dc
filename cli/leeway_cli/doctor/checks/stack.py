"""The stack: its functions with their aliases, what invokes them, and what they left behind."""

from collections.abc import Iterator

from leeway.reasons import counted

from leeway_cli.doctor import reasons
from leeway_cli.doctor.facts import Facts, RuleFacts, known, spot_of_clusters
from leeway_cli.doctor.finding import About, Finding, Severity, aws, deploy, shell
from leeway_cli.doctor.names import (
    BUYER,
    EVENTS,
    RECEIVER,
    function_name,
    matches,
    schedule_names,
)

_IDLE = "Inactive"
_OF_STORMS = ("-receive-notice", "-retire-node")
"""The state of a function that Lambda has taken off its network; an invocation wakes it up.
Source: Lambda developer guide, "Lambda function states"."""


def check_stack(facts: Facts) -> Iterator[Finding]:
    """Check that the stack is settled, of this version, and has clusters."""
    stack = known(facts.stack)
    if stack is None:
        return
    subject = f"stack {stack.name}"
    if not stack.status.endswith("_COMPLETE") or stack.status.startswith("DELETE"):
        broken = stack.status.endswith("_FAILED") or stack.status.startswith("DELETE")
        yield About(reasons.STACK_NOT_SETTLED, subject).finding(
            Severity.FAILS if broken else Severity.WARNS,
            f"Stack {stack.name} is {stack.status}, so its resources may be of two versions.",
            aws("cloudformation describe-stack-events", stack_name=stack.stack_name),
        )
    if stack.version != facts.version:
        yield About(reasons.VERSIONS_DIFFER, subject).warns(
            f"Stack {stack.name} is of version {stack.version or 'unknown'}, and this command "
            f"line is of {facts.version}.",
            shell(*stack.upgrade()),
        )
    if not stack.clusters:
        yield About(reasons.STACK_WITHOUT_CLUSTERS, subject).fails(
            f"The parameter ClusterNames of stack {stack.name} is empty, so Leeway ignores every "
            "notice."
        )


def check_functions(facts: Facts) -> Iterator[Finding]:
    """Check that Lambda can run every function."""
    stack, spot = known(facts.stack), len(spot_of_clusters(facts))
    for one in known(facts.functions) or ():
        about = About(reasons.FUNCTION_NOT_RUNNABLE, f"function {one.name}")
        if not one.state:
            name, mend = (stack.name, deploy(stack)) if stack else ("", "")
            yield about.fails(f"Stack {name} has no function {one.name}.", mend)
            continue
        if (one.state, one.update) != ("Active", "Successful"):
            state = one.state if one.state != "Active" else one.update
            problem = one.problem.rstrip(".") or "Lambda gives no reason"
            yield about.finding(
                Severity.WARNS if one.state == _IDLE else Severity.FAILS,
                f"Function {one.name} is {state}: {problem}.",
                aws("lambda get-function-configuration", function_name=one.name),
            )
        free = aws("lambda delete-function-concurrency", function_name=one.name)
        if one.reserved == 0:
            yield about.fails(
                f"The reserved concurrency of function {one.name} is 0, so that Lambda never "
                "invokes it.",
                free,
            )
        elif one.reserved is not None and one.reserved < spot and one.name.endswith(_OF_STORMS):
            yield about.warns(
                f"Function {one.name} may run {counted(one.reserved, 'time')} at once, and "
                f"{counted(spot, 'Spot instance')} can be interrupted at once.",
                free,
            )


def check_aliases(facts: Facts) -> Iterator[Finding]:
    """Check that the aliases of the durable functions point to published versions."""
    stack = known(facts.stack)
    for one in known(facts.aliases) or ():
        mend = deploy(stack) if stack else ""
        about = About(reasons.FUNCTION_NOT_RUNNABLE, f"alias {one.function}:{one.name}")
        if not one.version:
            yield about.fails(f"Function {one.function} has no alias {one.name}.", mend)
        elif not one.version.isdigit():
            yield about.fails(
                f"The alias {one.name} of {one.function} points to {one.version}, and a durable "
                "execution needs a published version.",
                mend,
            )


def check_rules(facts: Facts) -> Iterator[Finding]:
    """Check that EventBridge sends every notice to receive_notice."""
    stack, rules = known(facts.stack), known(facts.rules)
    if stack is None or rules is None:
        return
    receiver, mend = function_name(stack.name, RECEIVER), deploy(stack)

    def is_for_leeway(rule: RuleFacts) -> bool:
        return any(_function_of(target) == receiver for target in rule.targets)

    for event in EVENTS:
        candidates = [one for one in rules if matches(one.pattern, event)]
        ours = [one for one in candidates if is_for_leeway(one)]
        if any(one.enabled for one in ours):
            continue
        own = [one for one in candidates if _is_named_for(stack.stack_name, one.name)]
        problem, command = "there is no such rule", mend
        if ours:
            problem = f"rule {ours[0].name} is disabled"
            command = aws("events enable-rule", name=ours[0].name)
        elif own:
            problem = f"rule {own[0].name} has no such target"
        about = About(reasons.FUNCTION_NOT_INVOKED, f"events {event.detail_type}")
        yield about.fails(
            f"No rule of EventBridge sends events `{event.detail_type}` to {receiver}: {problem}.",
            command,
        )


def _is_named_for(stack_name: str, rule: str) -> bool:
    """Whether CloudFormation can have named a rule of receive_notice so. A name of a rule has 64
    characters at most, so it shortens the name of the stack in it."""
    begin, logical_id, _ = rule.rpartition("-ReceiveNotice")
    return bool(logical_id) and stack_name.startswith(begin)


def _function_of(arn: str) -> str:
    """Return the name of a function by its ARN, with or without a qualifier."""
    parts = arn.split(":")
    return parts[6] if len(parts) > 6 and parts[2] == "lambda" else ""


def check_schedules(facts: Facts) -> Iterator[Finding]:
    """Check that the schedules exist, are enabled, and invoke their functions."""
    stack, schedules = known(facts.stack), known(facts.schedules)
    if stack is None or schedules is None:
        return
    found = {one.name: one for one in schedules}
    for name, function in schedule_names(stack.name, in_vpc=bool(stack.subnets)).items():
        one, full = found.get(name), function_name(stack.name, function)
        if one is None:
            problem = f"EventBridge Scheduler has no schedule {name} for {full}."
        elif not one.enabled:
            problem = f"The schedule {name} is disabled, so that nothing invokes {full}."
        elif _function_of(one.target) != full:
            problem = f"The schedule {name} invokes {one.target} instead of {full}."
        else:
            continue
        about = About(reasons.FUNCTION_NOT_INVOKED, f"schedule {name}")
        yield about.fails(problem, deploy(stack))


def check_consumers(facts: Facts) -> Iterator[Finding]:
    """Check that Lambda reads the queue of provision_nodes."""
    stack, consumers = known(facts.stack), known(facts.consumers)
    if stack is None or consumers is None:
        return
    name = function_name(stack.name, BUYER)
    about = About(reasons.FUNCTION_NOT_INVOKED, f"function {name}")
    if not consumers:
        missing = f"Function {name} has no event source mapping of its queue."
        yield about.fails(missing, deploy(stack))
    for one in consumers:
        if one.state not in ("Enabled", "Enabling", "Updating"):
            yield about.fails(
                f"The event source mapping of {name} is {one.state}, so that pending pods get no "
                "nodes.",
                aws("lambda update-event-source-mapping", uuid=one.id, enabled=None),
            )


def check_failures(facts: Facts) -> Iterator[Finding]:
    """Check that the queues of failed work are empty."""
    for one in known(facts.queues) or ():
        if one.messages:
            options = {"visibility_timeout": 0, "max_number_of_messages": 10}
            yield About(reasons.FAILURES_WAIT, f"queue {one.name}").warns(
                f"Queue {one.name} holds {counted(one.messages, 'message')} about work that "
                "failed.",
                aws("sqs receive-message", queue_url=one.url, **options),
            )


def check_alarms(facts: Facts) -> Iterator[Finding]:
    """Check that no alarm is on, and that alarms notify somebody."""
    stack, alarms = known(facts.stack), known(facts.alarms)
    if stack is None or alarms is None:
        return
    about = About(reasons.ALARMS_NOTIFY_NOBODY, f"stack {stack.name}")
    if not alarms:
        yield about.warns(f"Stack {stack.name} has no alarms.", deploy(stack))
    for one in alarms:
        if one.state == "ALARM":
            yield About(reasons.ALARM_IS_ON, f"alarm {one.name}").warns(
                f"Alarm {one.name} is on: {one.reason}.",
                aws("cloudwatch describe-alarm-history", alarm_name=one.name),
            )
    if silent := sum(not one.notifies for one in alarms):
        yield about.warns(
            f"{counted(silent, 'alarm notifies', 'alarms notify')} nobody: an alarm of stack "
            f"{stack.name} has an action only with AlarmTopicArn.",
            deploy(stack, AlarmTopicArn="TOPIC_ARN"),
        )
