"""Builds ReceiveNotice for the functions that receive notices: `receive_notice`, `reconcile`."""

import os
from functools import cache, partial

from leeway.aws.functions import LambdaCleanUp, LambdaExecutions, RateLimit
from leeway.catalog.unavailable import UnavailableOfferings
from leeway.interruption.receive_notice import ReceiveNotice
from leeway.notices.parse import EventOrigin
from leeway.ports.functions import Schedules
from leeway.wiring.clients import (
    client,
    clock,
    configuration,
    instances,
    session,
    settings,
    table,
)


@cache
def event_origin() -> EventOrigin:
    """Return the account and the region of this function."""
    return EventOrigin(os.environ["LEEWAY_ACCOUNT"], session().region_name)


@cache
def retirements() -> LambdaExecutions:
    """Build the adapter that starts `retire_node`."""
    return LambdaExecutions(
        partial(client, "lambda"), settings().retire_node, "retire", settings().table, _rate_limit()
    )


@cache
def admissions() -> LambdaExecutions:
    """Build the adapter that starts `admit_node`."""
    return LambdaExecutions(
        partial(client, "lambda"), settings().admit_node, "admit", settings().table, _rate_limit()
    )


@cache
def _rate_limit() -> RateLimit:
    return RateLimit(clock())


def receive_notice_with(schedules: Schedules) -> ReceiveNotice:
    """Build the use case; `schedules` keeps the notices that are delivered again later."""
    return ReceiveNotice(
        origin=event_origin(),
        table=table(),
        instances=instances(),
        policies=configuration(),
        retire_node=retirements(),
        schedules=schedules,
        offerings=UnavailableOfferings(table()),
        clusters=frozenset(settings().clusters),
        clock=clock(),
        admit_node=admissions(),
        clean_up=LambdaCleanUp(partial(client, "lambda"), settings().reconcile),
    )
