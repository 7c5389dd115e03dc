"""The parts of the Lambda service, for its HTTP APIs."""

from dataclasses import dataclass

from sandbox.journal import Journal
from sandbox.lambda_service.definitions import Functions
from sandbox.lambda_service.event_sources import EventSources
from sandbox.lambda_service.events import Events
from sandbox.lambda_service.executions import Executions
from sandbox.lambda_service.faults import Faults
from sandbox.lambda_service.pools import Pools


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
