"""Puts together `receive_notice`."""

from functools import cache, partial

from leeway.cloud.functions import LambdaExecutions
from leeway.reception import Reception
from leeway.records import Retirement
from leeway.wiring.clients import client, instances, prepare, records, settings


@cache
def reception() -> Reception:
    """Build the use case."""
    return Reception(
        records=records(),
        instances=instances(),
        retire_node=LambdaExecutions(partial(client, "lambda"), settings().retire_node, "retire"),
        clusters=settings().clusters,
    )


prepare(["dynamodb", "lambda", "ec2"], [Retirement])
