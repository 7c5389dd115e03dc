"""Puts together `receive_notice`."""

from functools import cache, partial

from leeway.cloud.functions import LambdaRetireNode
from leeway.reception import Reception
from leeway.records import Retirement
from leeway.wiring.clients import client, instances, prepare, records, settings


@cache
def reception() -> Reception:
    """Build the use case."""
    return Reception(
        records=records(),
        instances=instances(),
        retire_node=LambdaRetireNode(partial(client, "lambda"), settings().retire_node),
        clusters=settings().clusters,
    )


prepare(["dynamodb", "lambda", "ec2"], [Retirement])
