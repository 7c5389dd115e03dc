"""receive_notice: receives every notice, and starts the retirement or admission it leads to."""

from typing import Any

from leeway.interruption.receive_notice import NotAllInstancesReceived
from leeway.notices import MalformedNotice, UnknownNotice
from leeway.wiring.clients import probed
from leeway.wiring.receive_notice import receive_notice, telemetry


@probed
def handler(event: Any, context: object) -> dict[str, Any]:
    """Receive one EventBridge event. An event that fails goes to the dead-letter queue."""
    try:
        receipt = receive_notice().receive(event)
    except (MalformedNotice, UnknownNotice, NotAllInstancesReceived) as error:
        if isinstance(error, NotAllInstancesReceived):
            telemetry().received(error.receipt)
        telemetry().rejected(event, error)
        raise
    telemetry().received(receipt)
    return receipt.to_dict()
