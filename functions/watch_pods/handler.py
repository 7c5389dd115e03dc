"""watch_pods: wakes the buyer each minute, and as soon as pods fit nowhere."""

from dataclasses import asdict
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext
from leeway.wiring.clients import probed
from leeway.wiring.watch_pods import clusters, watch_pods


@probed
def handler(event: Any, context: LambdaContext) -> dict[str, Any]:
    """Wake the buyers of all clusters, then watch unless another run does; the event has no
    parameters."""
    return asdict(watch_pods().run(clusters(), context.get_remaining_time_in_millis() / 1000))
