"""Reads what is being retired, which pools were deleted, and what the disruption budget allows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from leeway.aws.records import DynamoRecords
from leeway.manifests.configuration import deleted_pools
from leeway.policy.rules import ClusterPolicy
from leeway.provisioning.cluster_state import ClusterState
from leeway.retirement.disruption_budget import read_ledger
from leeway.retirement.record import Retirement
from leeway.wiring.clients import client, table

from leeway_cli.errors import CannotBeDoneError, aws_errors
from leeway_cli.output import write_stderr
from leeway_cli.stack import cluster_name, find_stack


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """The instances with an open retirement, how many more may begin now (None if it is not known),
    and when pools were deleted."""

    retiring: frozenset[str] = frozenset()
    most: int | None = None
    deleted: Mapping[str, datetime] = field(default_factory=dict)


def read_records(
    cluster: str, stack: str, policy: ClusterPolicy, state: ClusterState
) -> StoredRecords:
    """Read the records of a cluster. Without its name or without a deployment, none is known.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    if not cluster:
        return StoredRecords()
    name, database = cluster_name(cluster), partial(client, "dynamodb")
    try:
        deployment = find_stack(stack)
    except CannotBeDoneError as error:
        write_stderr(f"warning: retirements and the disruption budget are not known: {error}")
        return StoredRecords()
    with aws_errors(deployment.where):
        found = DynamoRecords(database, deployment.table).open_records(name).records
        ledger = read_ledger(table(name=deployment.table), name)
        deleted = deleted_pools(deployment.manifests(), name)
    ready = sum(one.ready for one in state.details.values())
    most = ledger.left(ready, policy.churn, state.read_at)
    retiring = frozenset(r.instance for r in found if isinstance(r, Retirement))
    return StoredRecords(retiring, most, deleted)
