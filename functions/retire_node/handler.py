"""retire_node: one durable execution retires one instance."""

from dataclasses import asdict
from typing import Any

from leeway.execution.attempt import parse_attempt_id
from leeway.execution.durable import DurableContext, DurableSteps, durable_execution
from leeway.retirement.context import Attempt
from leeway.retirement.reasons import SUPERSEDED
from leeway.retirement.retire_node import retire_node
from leeway.wiring.clients import log_execution, probed
from leeway.wiring.retire_node import ports


@durable_execution
@probed
def handler(event: Any, context: DurableContext) -> dict[str, Any]:
    """Retire an instance. A crash replays the execution from its last finished step."""
    log_execution(context.execution_context.durable_execution_arn)
    outcome = retire_node(Attempt(parse_attempt_id(event), DurableSteps(context), ports()))
    return outcome.to_dict() if outcome else {"result": "superseded"} | asdict(SUPERSEDED())
