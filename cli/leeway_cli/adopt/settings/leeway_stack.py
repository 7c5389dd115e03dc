"""Leeway's stack, and the name of the cluster in its parameter ClusterNames."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from botocore.exceptions import ClientError
from leeway.reasons import clause

from leeway_cli.adopt.settings.objects import ClusterObject
from leeway_cli.adopt.settings.setting import Kind
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.stack import STACK_SET, names_of, stack_of_stack_set

if TYPE_CHECKING:
    from leeway_cli.adopt.services import Services

CLUSTER_NAMES = "ClusterNames"
CAPABILITIES = ("CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND")
"""The stack has roles, and its template the transform of SAM."""

POLL_SECONDS = 3.0
"""Between two reads of a stack that is being updated."""

_UUID = len("-00000000-0000-0000-0000-000000000000")
_BUSY = "_IN_PROGRESS"
_UPDATED = frozenset({"UPDATE_COMPLETE", "CREATE_COMPLETE"})
_UNCHANGED = "No updates are to be performed"


@dataclass(frozen=True, slots=True)
class ManagedCluster(Kind):
    """The name of the cluster in the parameter ClusterNames of Leeway's stack."""

    stack: str
    cluster: str
    setting: Literal["cluster-name"] = "cluster-name"

    @property
    def title(self) -> str:
        return f"name {self.cluster} in ClusterNames of stack {self.stack}"

    def reason(self, cluster: str, now: Self | None) -> str:
        return f"ClusterNames of stack {self.stack} does not have {cluster}."

    def call(self, cluster: str, now: Self | None) -> str:
        return self._update(f"add {cluster} to")

    def removal(self, cluster: str) -> str:
        return self._update(f"remove {cluster} from")

    def _update(self, change: str) -> str:
        return (
            f"cloudformation:UpdateStack StackName={self.stack} UsePreviousTemplate=true ({change} "
            "ClusterNames; every other parameter keeps its value)"
        )

    def write(self, services: "Services", now: Self | None) -> None:
        services.stacks.change_clusters(self.stack, add=self.cluster)

    def remove(self, services: "Services") -> None:
        services.stacks.change_clusters(self.stack, remove=self.cluster)


def read_cluster_name(services: "Services", asked: Iterable[Kind]) -> Iterator[Kind]:
    """Read ClusterNames if the setting is asked for."""
    for one in asked:
        if not isinstance(one, ManagedCluster):
            continue
        if one.cluster in services.stacks.stack(one.stack).clusters:
            yield one


@dataclass(frozen=True, slots=True)
class LeewayStack:
    """Leeway's stack as CloudFormation describes it. `groups` are the Kubernetes groups of its
    roles by ARN; `roles_without_arn` are roles of `Metadata.AccessEntries` without an output.
    `subnets` are those of its functions, empty outside of a VPC; `parameters` are the names of all
    parameters. `status` is CloudFormation's, `version` that of Leeway, empty if it states none.
    Names of functions begin with `name`, those that CloudFormation makes with `stack_name`, which
    is another one in a StackSet. `arn` is CloudFormation's; empty if it is not known."""

    name: str
    table: str
    groups: Mapping[str, str]
    clusters: tuple[str, ...] = ()
    node_roles: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    roles_without_arn: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    status: str = ""
    version: str = ""
    arn: str = ""

    @property
    def stack_name(self) -> str:
        """CloudFormation's name for the stack."""
        return self.arn.split("/")[1] if self.arn else self.name

    @property
    def stack_set(self) -> str:
        """The name of its StackSet; empty if it is in none."""
        name = self.stack_name
        return name[len(STACK_SET) : -_UUID] if name.startswith(STACK_SET) else ""

    def upgrade(self) -> tuple[str, ...]:
        """Return the words of the command that deploys another version."""
        if not self.stack_set:
            return self.deployment()
        words = ("aws", "cloudformation", "update-stack-set", "--stack-set-name", self.stack_set)
        options = ("--template-url", "STACKSET_JSON", "--capabilities", "CAPABILITY_IAM")
        return (*words, *options, "--parameters", *self._all({}))

    def deployment(self, **values: str) -> tuple[str, ...]:
        """Return the words of the command that deploys the stack again, with other values of some
        parameters."""
        if self.stack_set:
            return self._of_stack_set(values)
        given = [f"{key}={value}" for key, value in values.items()]
        overrides = ["--parameter-overrides", *given] if given else []
        return ("sam", "deploy", "--stack-name", self.name, *overrides)

    def update(self, **values: str) -> tuple[str, ...]:
        """Return the words of the command that only changes these parameters."""
        if self.stack_set:
            return self._of_stack_set(values)
        words = ("aws", "cloudformation", "update-stack", "--stack-name", self.name)
        options = ("--use-previous-template", "--capabilities", *CAPABILITIES, "--parameters")
        return (*words, *options, *self._all(values))

    def _of_stack_set(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Return the words of the update of this stack in its StackSet, which resets a parameter
        that it does not name. Source: CloudFormation API reference, UpdateStackInstances."""
        region, account = self.arn.split(":")[3:5]
        options = {
            "stack-set-name": self.stack_set,
            "regions": region,
            "deployment-targets": f"OrganizationalUnitIds=OU,Accounts={account},"
            "AccountFilterType=INTERSECTION",
        }
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        overrides = ["--parameter-overrides", *self._all(values)] if values else []
        return ("aws", "cloudformation", "update-stack-instances", *words, *overrides)

    def _all(self, values: Mapping[str, str]) -> Iterator[str]:
        """Yield all parameters as the AWS CLI reads them: with these values, or the previous."""
        for key, value in values.items():
            escaped = value.replace(",", "\\,")
            yield f"ParameterKey={key},ParameterValue={escaped}"
        for key in self.parameters:
            if key not in values:
                yield f"ParameterKey={key},UsePreviousValue=true"


def version_difference(stack: LeewayStack, objects: Sequence[ClusterObject]) -> str | None:
    """Return why the stack and these objects are of two versions; None if they fit together: each
    role's group has a binding, and each binding's group has a role."""
    bound = {
        subject["name"]
        for one in objects
        for subject in one.body.get("subjects", ())
        if subject.get("kind") == "Group"
    }
    granted = set(stack.groups.values())
    if stack.roles_without_arn:
        difference = f"it has no output with the ARN of {', '.join(stack.roles_without_arn)}"
    elif not granted:
        difference = "its template has no Metadata.AccessEntries"
    elif unbound := sorted(granted - bound):
        difference = f"no binding in rbac/ is for the group {', '.join(unbound)}"
    elif unused := sorted(bound - granted):
        difference = f"none of its roles has the group {', '.join(unused)}"
    else:
        return None
    return (
        f"Stack {stack.name} is of another version of Leeway: {difference}. Use the command line "
        "of the deployed version, or deploy this version first."
    )


class CloudFormation:
    """The stacks of a region; `client` makes boto3's CloudFormation client. Every method raises
    botocore's errors."""

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
        summary = self._client().get_template_summary(StackName=found["StackName"])
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
            arn=found["StackId"],
        )

    def change_clusters(self, name: str, *, add: str = "", remove: str = "") -> None:
        """Add or remove a cluster in ClusterNames, keep all else, and wait for the update.

        Raises:
            CannotBeDoneError: CloudFormation did not update the stack.
        """
        found = self._wait(name)
        if found["StackName"].startswith(STACK_SET):
            raise CannotBeDoneError(
                f"Stack {found['StackName']} is of a StackSet, which would undo a change of it. "
                f"Change {CLUSTER_NAMES} with `aws cloudformation update-stack-instances`: see "
                "docs/stacksets.md."
            )
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
                if in_stack_set := stack_of_stack_set(client, name):
                    return in_stack_set
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
