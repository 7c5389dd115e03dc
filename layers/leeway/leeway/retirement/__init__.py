"""One instance's way out: its turn, cordon, successor, drain, finish, report."""

from leeway.retirement.results import STEP_RESULTS
from leeway.retirement.retire_node import RetireNode
from leeway.retirement.surroundings import Surroundings, Telemetry

__all__ = ["STEP_RESULTS", "RetireNode", "Surroundings", "Telemetry"]
