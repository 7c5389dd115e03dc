"""The parts of the Lambda service, for its HTTP APIs."""

from dataclasses import dataclass

from leeway_sandbox.control import Journal
from leeway_sandbox.lambda_service.definitions import Functions
from leeway_sandbox.lambda_service.event_sources import EventSources
from leeway_sandbox.lambda_service.events import Events
from leeway_sandbox.lambda_service.executions import Executions
from leeway_sandbox.lambda_service.faults import Faults
from leeway_sandbox.lambda_service.pools import Pools


@dataclass(frozen=True)
class Service:
    """Functions, workers, executions, events, event sources, faults and journal."""

    functions: Functions
    pools: Pools
    executions: Executions
    events: Events
    event_sources: EventSources
    faults: Faults
    journal: Journal
