"""Puts together what receives notices, for all functions that do."""

import os
from functools import cache, partial

from leeway.aws.functions import LambdaCleanUp, LambdaExecutions, Pace
from leeway.aws.shared_cache import DynamoSharedCache
from leeway.aws.unavailable_offerings import DynamoUnavailableOfferings
from leeway.interruption.dependencies import Dependencies
from leeway.interruption.receive_notice import ReceiveNotice
from leeway.notices.synthetic import EventOrigin
from leeway.ports.functions import Schedules
from leeway.wiring.clients import (
    client,
    clock,
    configuration,
    instances,
    records,
    session,
    settings,
)


@cache
def place() -> EventOrigin:
    """Read which account and region this function is in."""
    return EventOrigin(os.environ["LEEWAY_ACCOUNT"], session().region_name)


@cache
def retirements() -> LambdaExecutions:
    """Build what starts `retire_node`."""
    return LambdaExecutions(
        partial(client, "lambda"), settings().retire_node, "retire", settings().table, _pace()
    )


@cache
def admissions() -> LambdaExecutions:
    """Build what starts `admit_node`."""
    return LambdaExecutions(
        partial(client, "lambda"), settings().admit_node, "admit", settings().table, _pace()
    )


@cache
def _pace() -> Pace:
    return Pace(clock())


def reception_with(schedules: Schedules) -> ReceiveNotice:
    """Build the use case, with what keeps notices that are to be received again later."""
    return ReceiveNotice(
        Dependencies(
            origin=place(),
            records=records(),
            instances=instances(),
            current=instances(),
            changes=instances(),
            policies=configuration(),
            retire_node=retirements(),
            schedules=schedules,
            offerings=DynamoUnavailableOfferings(partial(client, "dynamodb"), settings().table),
            clusters=frozenset(settings().clusters),
            clock=clock(),
            admissions=records(),
            admit_node=admissions(),
            clean_up=LambdaCleanUp(partial(client, "lambda"), settings().reconcile),
            claims=DynamoSharedCache(partial(client, "dynamodb"), settings().table),
        )
    )
