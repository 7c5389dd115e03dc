"""Puts together `receive_notice`."""

from leeway.arrivals import Arrival
from leeway.records import Retirement
from leeway.wiring.clients import prepare
from leeway.wiring.reception import reception

__all__ = ["reception"]

prepare(["dynamodb", "lambda", "ec2"], [Retirement, Arrival])
