"""receive_notice: every notice comes here, and starts the retirements it asks for."""

from typing import Any

from leeway import wiring
from leeway.notices import MalformedNotice, UnknownNotice


def handler(event: Any, context: object) -> dict[str, Any]:
    """Receive one EventBridge event; one that is not a notice goes to the dead-letter queue."""
    try:
        receipt = wiring.reception().receive(event)
    except (MalformedNotice, UnknownNotice) as error:
        wiring.telemetry().rejected(error)
        raise
    wiring.telemetry().received(receipt)
    return receipt.to_dict()
