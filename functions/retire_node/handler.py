"""retire_node: one durable execution retires one instance."""

from typing import Any

from aws_durable_execution_sdk_python import DurableContext, durable_execution
from leeway.execution.attempt import parse_attempt_id
from leeway.execution.durable import DurableSteps
from leeway.wiring.clients import log_execution
from leeway.wiring.retire_node import retire_node


@durable_execution
def handler(event: Any, context: DurableContext) -> dict[str, Any]:
    """Retire an instance; replayed from its last finished step when the function dies."""
    log_execution(context.execution_context.durable_execution_arn)
    order = parse_attempt_id(event)
    outcome = retire_node().retire(order, DurableSteps(context))
    return outcome.to_dict() if outcome else {"result": "superseded"}
