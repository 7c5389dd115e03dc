"""admit_node: one durable execution admits one instance."""

from typing import Any

from leeway.execution.attempt import parse_attempt_id
from leeway.execution.durable import DurableContext, DurableSteps, durable_execution
from leeway.wiring.admit_node import admit_node
from leeway.wiring.clients import log_execution, probed


@durable_execution
@probed
def handler(event: Any, context: DurableContext) -> dict[str, Any]:
    """Admit an instance; replayed from its last finished step when the function dies."""
    log_execution(context.execution_context.durable_execution_arn)
    attempt = parse_attempt_id(event)
    outcome = admit_node().admit(attempt, DurableSteps(context))
    return outcome.to_dict() if outcome else {"result": "superseded"}
