"""Leeway's stack, by boto3's CloudFormation client."""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from botocore.exceptions import ClientError
from leeway.reasons import clause

from leeway_cli.cluster_setup.desired import LeewayStack
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.stack import names_of

CLUSTER_NAMES = "ClusterNames"
CAPABILITIES = ("CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND")
"""The stack has roles, and its template the transform of SAM."""

POLL_SECONDS = 3.0
"""Between two reads of a stack that is being updated."""

_BUSY = "_IN_PROGRESS"
_UPDATED = frozenset({"UPDATE_COMPLETE", "CREATE_COMPLETE"})
_UNCHANGED = "No updates are to be performed"


class CloudFormation:
    """The Stacks Protocol, and changes; `client` makes boto3's CloudFormation client. Every method
    raises botocore's errors."""

    def __init__(
        self, client: Callable[[], Any], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._client = client
        self._sleep = sleep

    def stack(self, name: str) -> LeewayStack:
        """Read Leeway's stack, by DescribeStacks and GetTemplateSummary.

        Raises:
            CannotBeDoneError: the region has no such stack, or it is not a stack of Leeway.
        """
        found = self._describe(name)
        outputs = {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", ())}
        if "TableName" not in outputs:
            status = found.get("StackStatus", "")
            raise CannotBeDoneError(
                f"Stack {name} ({status}) has no output TableName, so it is not a deployment of "
                "Leeway."
            )
        summary = self._client().get_template_summary(StackName=name)
        groups = _groups(summary.get("Metadata"))
        given = _parameters(found)
        return LeewayStack(
            name=name,
            table=outputs["TableName"],
            groups={outputs[f"{r}Arn"]: g for r, g in groups.items() if f"{r}Arn" in outputs},
            clusters=names_of(given.get(CLUSTER_NAMES, "")),
            node_roles=names_of(given.get("NodeRoleArns", "")),
            subnets=names_of(given.get("SubnetIds", "")),
            roles_without_arn=tuple(sorted(r for r in groups if f"{r}Arn" not in outputs)),
            parameters=tuple(given),
            status=found["StackStatus"],
            version=outputs.get("Version", ""),
        )

    def change_clusters(self, name: str, *, add: str = "", remove: str = "") -> None:
        """Add or remove a cluster in ClusterNames, keep all else, and wait for the update.

        Raises:
            CannotBeDoneError: CloudFormation did not update the stack.
        """
        found = self._wait(name)
        given = _parameters(found)
        before = names_of(given.get(CLUSTER_NAMES, ""))
        after = names_after(before, add=add, remove=remove)
        parameters = [
            {"ParameterKey": key, "UsePreviousValue": True} for key in given if key != CLUSTER_NAMES
        ]
        value = {"ParameterKey": CLUSTER_NAMES, "ParameterValue": ",".join(after)}
        try:
            self._client().update_stack(
                StackName=name,
                UsePreviousTemplate=True,
                Capabilities=list(CAPABILITIES),
                Parameters=[value, *parameters],
            )
        except ClientError as error:
            message = error.response["Error"].get("Message", "")
            if _UNCHANGED in message:
                return
            if "state and can not be updated" in message:
                raise CannotBeDoneError(
                    f"CloudFormation did not update stack {name}: {clause(message)}. Read its "
                    "events, and run the command again."
                ) from error
            raise
        status = self._wait(name)["StackStatus"]
        if status not in _UPDATED:
            raise CannotBeDoneError(
                f"CloudFormation did not update stack {name}: its status is {status}. Read its "
                "events, and run the command again."
            )

    def _wait(self, name: str) -> dict[str, Any]:
        """Return the description of the stack as soon as no update is in progress."""
        while True:
            found = self._describe(name)
            if not found["StackStatus"].endswith(_BUSY):
                return found
            self._sleep(POLL_SECONDS)

    def _describe(self, name: str) -> dict[str, Any]:
        client = self._client()
        try:
            found: dict[str, Any] = client.describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in str(error):
                raise CannotBeDoneError(
                    f"Region {client.meta.region_name} has no stack {name}. Check AWS_REGION and "
                    "--stack, or deploy Leeway first."
                ) from error
            raise
        return found


def names_after(before: Iterable[str], *, add: str = "", remove: str = "") -> tuple[str, ...]:
    """Return ClusterNames with a cluster added at the end, or without a cluster."""
    kept = [one for one in before if one != remove]
    return tuple(dict.fromkeys([*kept, *([add] if add else [])]))


def _parameters(stack: dict[str, Any]) -> dict[str, str]:
    return {one["ParameterKey"]: one["ParameterValue"] for one in stack.get("Parameters", ())}


def _groups(metadata: str | None) -> dict[str, str]:
    """Return `Metadata.AccessEntries`: the Kubernetes group of each role, by logical ID."""
    try:
        found = json.loads(metadata or "{}").get("AccessEntries")
    except (ValueError, AttributeError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(role): str(group) for role, group in found.items()}
