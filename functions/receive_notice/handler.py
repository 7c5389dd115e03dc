"""receive_notice: receives every notice, and starts the retirement or admission it leads to."""

from typing import Any

from leeway.wiring.clients import probed
from leeway.wiring.receive_notice import receive


@probed
def handler(event: Any, context: object) -> dict[str, Any]:
    """Receive one EventBridge event. An event that fails goes to the dead-letter queue."""
    return receive(event)
