"""provision_nodes: the one buyer of a cluster, launches nodes for pods that have no place."""

from typing import Any

from leeway.wiring.clients import probed
from leeway.wiring.provision_nodes import provision_nodes


@probed
def handler(event: Any, context: Any) -> dict[str, Any]:
    """Receive a batch of messages. SQS delivers those that are returned again."""
    seconds = context.get_remaining_time_in_millis() / 1000
    failed = provision_nodes().receive(event, seconds)
    return {"batchItemFailures": [{"itemIdentifier": one} for one in failed]}
