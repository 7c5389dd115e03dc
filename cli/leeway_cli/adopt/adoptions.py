"""The records of adoptions in the table, by boto3.

Keys: `pk` = ADOPTION#<cluster>, `sk` = ADOPTION. `changes` is the JSON of what adopt changed, in
order. `holder` is the process that works on the cluster, until the epoch second `until`. Each write
has a condition on both, so of two processes only one works on a cluster at a time.
"""

import getpass
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from leeway.aws.errors import aws_errors, conditional_write
from leeway.table import RecordChanged
from leeway.typed_json import adapter_of

from leeway_cli.cluster_setup.difference import Change
from leeway_cli.errors import CannotBeDoneError

CLAIM_SECONDS = 60
"""How long a process may go without a step. A process that was killed blocks the next one for this
time."""


def new_holder() -> str:
    """Return the name of this process as the holder of a claim: user, host, process, and a random
    part, since process ids repeat."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()} process {os.getpid()} {uuid4().hex[:8]}"


@dataclass
class Adoption:
    """The record of one cluster, which this process has claimed. `now` returns epoch seconds."""

    client: Callable[[], Any]
    table: str
    cluster: str
    now: Callable[[], float]
    holder: str = field(default_factory=new_holder)
    changes: dict[str, Change] = field(default_factory=dict)

    def read(self) -> None:
        """Read the changes without a claim, for a dry run."""
        with aws_errors():
            answer = self.client().get_item(
                TableName=self.table, Key=_key(self.cluster), ConsistentRead=True
            )
        self._keep(answer.get("Item") or {})

    def claim(self) -> None:
        """Claim the cluster and read its changes.

        Raises:
            CannotBeDoneError: another process works on the cluster.
        """
        free = "attribute_not_exists(holder) OR #until < :now OR holder = :me"
        values = {**self._holds(), ":now": _number(self.now())}
        try:
            item = self._update("SET holder = :me, #until = :until", free, values)
        except RecordChanged as error:
            raise CannotBeDoneError(self._claimed_by()) from error
        self._keep(item)

    def record(self, changes: Sequence[Change]) -> None:
        """Write the changes and renew the claim. They are written before they are made, so that
        a killed process leaves a record of each change that it may have made.

        Raises:
            CannotBeDoneError: the claim has expired, and another process has taken it.
        """
        text = adapter_of(list[Change]).dump_json([*changes]).decode()
        values = {**self._holds(), ":changes": {"S": text}}
        try:
            self._update(
                "SET holder = :me, #until = :until, changes = :changes", "holder = :me", values
            )
        except RecordChanged as error:
            raise CannotBeDoneError(
                f"Another process has taken over cluster {self.cluster}, since a step took too "
                "long. Run the command again."
            ) from error
        self.changes = {one.key: one for one in changes}

    def leave(self) -> None:
        """Give up the claim. A record without changes is deleted."""
        try:
            with conditional_write(self.cluster):
                if self.changes:
                    self.client().update_item(
                        TableName=self.table,
                        Key=_key(self.cluster),
                        UpdateExpression="REMOVE holder, #until",
                        ConditionExpression="holder = :me",
                        ExpressionAttributeNames={"#until": "until"},
                        ExpressionAttributeValues={":me": {"S": self.holder}},
                    )
                else:
                    self.client().delete_item(
                        TableName=self.table,
                        Key=_key(self.cluster),
                        ConditionExpression="holder = :me",
                        ExpressionAttributeValues={":me": {"S": self.holder}},
                    )
        except RecordChanged:
            return  # another process has taken the claim after it expired

    def _update(self, expression: str, condition: str, values: dict[str, Any]) -> dict[str, Any]:
        with conditional_write(self.cluster):
            answer = self.client().update_item(
                TableName=self.table,
                Key=_key(self.cluster),
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeNames={"#until": "until"},
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
            )
        item: dict[str, Any] = answer["Attributes"]
        return item

    def _holds(self) -> dict[str, Any]:
        return {":me": {"S": self.holder}, ":until": _number(self.now() + CLAIM_SECONDS)}

    def _keep(self, item: dict[str, Any]) -> None:
        text = item.get("changes", {}).get("S", "[]")
        found = adapter_of(list[Change]).validate_json(text)
        self.changes = {one.key: one for one in found}

    def _claimed_by(self) -> Any:
        with aws_errors():
            answer = self.client().get_item(
                TableName=self.table, Key=_key(self.cluster), ConsistentRead=True
            )
        item = answer.get("Item") or {}
        until = datetime.fromtimestamp(float(item.get("until", {}).get("N", "0")), UTC)
        holder = item.get("holder", {}).get("S", "unknown")
        return (
            f"{holder} works on cluster {self.cluster} until {until:%H:%M:%S} UTC. Run the command "
            "again after that time."
        )


def _key(cluster: str) -> dict[str, Any]:
    return {"pk": {"S": f"ADOPTION#{cluster}"}, "sk": {"S": "ADOPTION"}}


def _number(seconds: float) -> dict[str, str]:
    return {"N": str(int(seconds))}
