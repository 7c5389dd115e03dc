"""Asks AWS and a cluster, with the role of this function, whether they allow its calls.

`leeway doctor` invokes each function with `{"leeway": "probe", "cluster": NAME}`; the answer lists
every call, the statement of template.yaml that grants it, and what AWS says about it.

A probe changes nothing. EC2 and Lambda get dry runs. The table gets writes whose condition never
holds, of a key that nothing else uses. All others get reads, or requests for something that does
not exist: AWS checks the right first, and then finds nothing. A service that checks in another
order hides a missing right, and never reports one that is there.

Not asked are rights that Lambda uses for the function (logs, checkpoints, failed events), those
that other services check of the function (`iam:PassRole` for schedules), and those on IAM's roles
of nodes, whose names the function does not know.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from leeway.aws.errors import code_of
from leeway.aws.fleets import Ec2LaunchTemplates
from leeway.aws.market import pricing_region
from leeway.instances.facts import GROUP_TAG
from leeway.launch.node_settings import CLUSTER_TAG, cluster_tags
from leeway.launch.templates import VERSION, OwnedTemplate, tag_list
from leeway.parallel import in_parallel
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.printable import printable
from leeway.wiring.clients import FAIL_FAST_TRIES, client, session, settings
from leeway.wiring.clusters import connections

ALLOWED, DENIED, UNREACHABLE, UNCLEAR, NOTHING = (
    "allowed",
    "denied",
    "unreachable",
    "unclear",
    "nothing to ask about",
)
"""What an answer says. `unclear` is an error that is no refusal; for the last, the cluster has no
group, instance or launch template that the call could be about."""

_AT_ONCE = 8
_SOME = 100
_DENIALS = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_DRY = frozenset({"DryRunOperation"})
_KEY = "leeway-probe"
_NEVER = "attribute_exists(pk) AND attribute_not_exists(pk)"
_NO_INSTANCE = "i-00000000000000000"
_ON_RESOURCE = re.compile(r"is not authorized to perform: (\S+) on resource: (\S+)")
_RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
_LONGEST_PROBLEM = 300


class _NothingToAskAbout(Exception):
    """The cluster has nothing that a call could be about."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One call. `statement` is the Sid that grants it, `answers` are codes of errors that only a
    caller with the right gets. `statements` tells the Sid by action and kind of resource, if EC2
    checks several for one call."""

    call: str
    statement: str
    ask: Callable[["_Cluster"], object]
    answers: frozenset[str] = frozenset()
    about: str = ""
    statements: Mapping[tuple[str, str], str] = field(default_factory=dict)


def answers(cluster: str) -> dict[str, Any]:
    """Make all probes of this function. `cluster` is a name of the stack, or empty."""
    function = os.environ["POWERTOOLS_SERVICE_NAME"]
    if cluster and cluster not in settings().clusters:
        return {"function": function, "answers": [], "problem": "ClusterNames has no such cluster"}
    asked = _Cluster(cluster)
    found = in_parallel(partial(_answer, asked), PROBES[function], _AT_ONCE)
    rules = _rules(cluster) if cluster and function in _WITH_TOKEN else None
    return {"function": function, "cluster": cluster, "answers": found, "kubernetes": rules}


def _answer(cluster: "_Cluster", probe: Probe) -> dict[str, str]:
    statement, problem = probe.statement, ""
    try:
        probe.ask(cluster)
        verdict = ALLOWED
    except _NothingToAskAbout:
        verdict = NOTHING
    except ClientError as error:
        code = code_of(error)
        problem = str(error.response.get("Error", {}).get("Message", ""))
        if code in _DENIALS:
            verdict, statement = DENIED, _statement(probe, problem)
        else:
            verdict = ALLOWED if code in probe.answers else UNCLEAR
            problem = f"{code}: {problem}"
    except BotoCoreError as error:
        verdict, problem = UNREACHABLE, f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - the other answers are worth having
        verdict, problem = UNCLEAR, f"{type(error).__name__}: {error}"
    shown = "" if verdict in (ALLOWED, NOTHING) else problem.partition(" Encoded auth")[0]
    return {
        "call": probe.call,
        "about": probe.about,
        "statement": statement,
        "answer": verdict,
        "problem": printable(shown)[:_LONGEST_PROBLEM],
    }


def _statement(probe: Probe, problem: str) -> str:
    """Return the Sid that grants what was denied: EC2's message names one of its checks."""
    found = _ON_RESOURCE.search(problem)
    if found is None:
        return probe.statement
    action, resource = found.groups()
    kind = resource.rpartition(":")[2].partition("/")[0]
    return probe.statements.get((action, kind), probe.statement)


def _rules(cluster: str) -> dict[str, Any]:
    """Return what the API server says that this function's token may do; `problem` says why it
    says nothing."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"},
    }
    try:
        answer = connections().get(cluster).request("POST", _RULES, body=body)
        status = answer.get("status") or {}
    except Exception as error:  # noqa: BLE001 - the other answers are worth having
        return {"problem": printable(f"{error}")[:_LONGEST_PROBLEM], "rules": []}
    return {"problem": "", "rules": status.get("resourceRules") or []}


class _Cluster:
    """What there is in a cluster that a call can be about; read when a probe needs it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def named(self) -> str:
        if not self.name:
            raise _NothingToAskAbout
        return self.name

    @property
    def template(self) -> str:
        found = self._templates
        if not found:
            raise _NothingToAskAbout
        return max(found, key=lambda one: one.created_at).name

    @property
    def group(self) -> str:
        """A group with the tag of the cluster. Its instances have the same tag."""
        for tags, _ in self._instances:
            if tags.get("eks:cluster-name") == self.name and GROUP_TAG in tags:
                return tags[GROUP_TAG]
        raise _NothingToAskAbout

    def instance(self, matches: Callable[[Mapping[str, str]], bool]) -> str:
        """Return an instance of the cluster whose tags match."""
        for tags, name in self._instances:
            if matches(tags):
                return name
        raise _NothingToAskAbout

    @cached_property
    def _templates(self) -> Sequence[OwnedTemplate]:
        with _or_nothing():
            return Ec2LaunchTemplates(partial(_client, "ec2")).owned_by(self.named)

    @cached_property
    def _instances(self) -> Sequence[tuple[Mapping[str, str], str]]:
        filters = [
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
            {"Name": "tag:eks:cluster-name", "Values": [self.named]},
        ]
        of_leeway = {"Name": f"tag:{CLUSTER_TAG}", "Values": [self.named]}
        with _or_nothing():
            ec2 = _client("ec2")
            pages = (
                ec2.describe_instances(Filters=some, MaxResults=_SOME)
                for some in (filters, [filters[0], of_leeway])
            )
            return [
                ({tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}, one["InstanceId"])
                for page in pages
                for reserved in page["Reservations"]
                for one in reserved["Instances"]
            ]


@contextmanager
def _or_nothing() -> Iterator[None]:
    """A description that fails is a probe of its own: no other one is about its right."""
    try:
        yield
    except (CloudRefused, CloudUnavailable, ClientError, BotoCoreError) as error:
        raise _NothingToAskAbout from error


def _client(service: str) -> Any:
    return client(service, tries=FAIL_FAST_TRIES)


def _item(prefix: str) -> dict[str, Any]:
    return {"pk": {"S": f"{prefix}#{_KEY}"}, "sk": {"S": _KEY}}


def _table(call: str, statement: str, prefixes: Iterable[str]) -> list[Probe]:
    """Return one call of the table for each kind of key."""

    def ask(prefix: str, _: _Cluster) -> object:
        dynamodb, table = _client("dynamodb"), {"TableName": settings().table}
        key = _item(prefix)
        match call:
            case "GetItem":
                return dynamodb.get_item(**table, Key=key)
            case "PutItem":
                return dynamodb.put_item(**table, Item=key, ConditionExpression=_NEVER)
            case "DeleteItem":
                return dynamodb.delete_item(**table, Key=key, ConditionExpression=_NEVER)
            case "BatchGetItem":
                return dynamodb.batch_get_item(RequestItems={settings().table: {"Keys": [key]}})
            case "BatchWriteItem":
                delete = [{"DeleteRequest": {"Key": key}}]
                return dynamodb.batch_write_item(RequestItems={settings().table: delete})
            case _:
                values = {":pk": key["pk"]}
                return dynamodb.query(
                    **table,
                    KeyConditionExpression="pk = :pk",
                    ExpressionAttributeValues=values,
                    Limit=1,
                )

    never = frozenset({"ConditionalCheckFailedException"})
    return [
        Probe(f"dynamodb:{call}", statement, partial(ask, one), never, f"{one}#")
        for one in prefixes
    ]


def _keep(statement: str, *prefixes: str) -> list[Probe]:
    return [*_table("GetItem", statement, prefixes), *_table("PutItem", statement, prefixes)]


def _by_cluster(statement: str) -> Probe:
    return Probe(
        "dynamodb:Query",
        statement,
        lambda cluster: _client("dynamodb").query(
            TableName=settings().table,
            IndexName="by-cluster",
            KeyConditionExpression="#cluster = :cluster",
            ExpressionAttributeNames={"#cluster": "cluster"},
            ExpressionAttributeValues={":cluster": {"S": cluster.name or _KEY}},
            Limit=1,
        ),
        about="index by-cluster",
    )


def _describe(statement: str, *operations: str) -> list[Probe]:
    """Return dry runs of calls of EC2 that only read."""

    def ask(operation: str, _: _Cluster) -> object:
        ec2 = _client("ec2")
        return getattr(ec2, _method(ec2, operation))(DryRun=True)

    return [Probe(f"ec2:{one}", statement, partial(ask, one), _DRY) for one in operations]


def _find_images() -> Probe:
    """Return a read of the parameter of an AMI of AWS."""
    return Probe(
        "ssm:GetParameters",
        "FindImages",
        lambda _: _client("ssm").get_parameters(Names=[_IMAGE]),
    )


def _method(aws: Any, operation: str) -> str:
    methods: Mapping[str, str] = aws.meta.method_to_api_mapping
    return next(name for name, of in methods.items() if of == operation)


def _groups(statement: str, *operations: str) -> list[Probe]:
    """Return calls that describe a group and an instance that do not exist."""
    arguments: Mapping[str, Mapping[str, Any]] = {
        "DescribeAutoScalingGroups": {"AutoScalingGroupNames": [_KEY]},
        "DescribeAutoScalingInstances": {"InstanceIds": [_NO_INSTANCE]},
        "DescribeInstanceRefreshes": {"AutoScalingGroupName": _KEY},
        "DescribeLifecycleHooks": {"AutoScalingGroupName": _KEY},
    }

    def ask(operation: str, _: _Cluster) -> object:
        scaling = _client("autoscaling")
        return getattr(scaling, _method(scaling, operation))(**arguments[operation])

    missing = frozenset({"ValidationError"})
    return [
        Probe(f"autoscaling:{one}", statement, partial(ask, one), missing) for one in operations
    ]


def _targets(statement: str) -> list[Probe]:
    """Return calls that describe the target groups of load balancers; it is no error if there is
    none."""

    def ask(operation: str, _: _Cluster) -> object:
        balancers = _client("elbv2")
        for group in balancers.describe_target_groups(PageSize=1)["TargetGroups"]:
            return getattr(balancers, operation)(TargetGroupArn=group["TargetGroupArn"])
        raise _NothingToAskAbout

    return [
        Probe(
            "elasticloadbalancing:DescribeTargetGroups",
            statement,
            lambda _: _client("elbv2").describe_target_groups(PageSize=1),
        ),
        *(
            Probe(f"elasticloadbalancing:{one}", statement, partial(ask, operation))
            for one, operation in (
                ("DescribeTargetHealth", "describe_target_health"),
                ("DescribeTargetGroupAttributes", "describe_target_group_attributes"),
            )
        ),
    ]


def _hook(operation: str, statement: str) -> Probe:
    """Return an answer to a lifecycle hook that does not exist, for an instance that does not
    exist, of a group of the cluster."""

    def ask(cluster: _Cluster) -> object:
        scaling = _client("autoscaling")
        waiting = {
            "AutoScalingGroupName": cluster.group,
            "LifecycleHookName": _KEY,
            "InstanceId": _NO_INSTANCE,
        }
        if operation == "CompleteLifecycleAction":
            return scaling.complete_lifecycle_action(**waiting, LifecycleActionResult="CONTINUE")
        return scaling.record_lifecycle_action_heartbeat(**waiting)

    return Probe(f"autoscaling:{operation}", statement, ask, frozenset({"ValidationError"}))


def _terminate(statement: str, matches: Callable[[Mapping[str, str]], bool], about: str) -> Probe:
    return Probe(
        "ec2:TerminateInstances",
        statement,
        lambda cluster: _client("ec2").terminate_instances(
            DryRun=True, InstanceIds=[cluster.instance(matches)]
        ),
        _DRY,
        about,
    )


def _find_api_server() -> Probe:
    return Probe(
        "eks:DescribeCluster",
        "FindApiServers",
        lambda cluster: _client("eks").describe_cluster(name=cluster.named),
    )


def _find_role(cluster: _Cluster) -> object:
    """Read the access entry of a role that cannot exist, in the account of the functions."""
    _, partition, _, _, account, _ = os.environ[_STARTS[0]].split(":", 5)
    role = f"arn:{partition}:iam::{account}:role/{_KEY}"
    return _client("eks").describe_access_entry(clusterName=cluster.named, principalArn=role)


def _start(statement: str, *variables: str) -> list[Probe]:
    """Return dry runs of invocations. `variables` have the ARNs of the functions. Lambda refuses to
    invoke a durable function that may run for more than 15 minutes and wait for it; its
    documentation does not say whether that includes dry runs."""

    def ask(variable: str, _: _Cluster) -> object:
        return _client("lambda").invoke(
            FunctionName=os.environ[variable], InvocationType="DryRun", Payload=b"{}"
        )

    durable = frozenset({"InvalidParameterValueException"})
    return [
        Probe(
            "lambda:InvokeFunction",
            statement,
            partial(ask, one),
            durable,
            one.removeprefix("LEEWAY_").lower(),
        )
        for one in variables
    ]


def _send(statement: str) -> Probe:
    """Return a message with a delay of its own, which SQS refuses for a FIFO queue."""

    def ask(cluster: _Cluster) -> object:
        return _client("sqs").send_message(
            QueueUrl=os.environ["LEEWAY_PROVISION_QUEUE"],
            MessageBody="{}",
            MessageGroupId=cluster.name or _KEY,
            MessageDeduplicationId=_KEY,
            DelaySeconds=1,
        )

    refused = frozenset({"InvalidParameterValue", "InvalidParameterValueException"})
    return Probe("sqs:SendMessage", statement, ask, refused)


def _tell(statement: str) -> Probe:
    """Return an event whose detail is no JSON: EventBridge answers the call, and puts no event."""

    def ask(_: _Cluster) -> object:
        entry = {"Source": "leeway", "DetailType": "Leeway Probe", "Detail": "no JSON"}
        return _client("events").put_events(Entries=[entry])

    return Probe("events:PutEvents", statement, ask)


_TEMPLATE_MISSING = "InvalidLaunchTemplateName.NotFoundException"
_OTHER_ARCHITECTURE = ("InvalidParameterValue", "InvalidParameterCombination", "Unsupported")
_TYPE = "m5.large"
_CREATED = ("fleet", "instance", "network-interface", "spot-instances-request", "volume")
_USED = ("image", "security-group", "snapshot", "subnet")
_OF_LAUNCHES = {
    **{
        (f"ec2:{one}", kind): "UseResources"
        for one in ("CreateFleet", "RunInstances")
        for kind in _USED
    },
    **{("ec2:CreateFleet", kind): "CreateFleetsTaggedForTheClusters" for kind in _CREATED},
    **{("ec2:RunInstances", kind): "LaunchInstancesTaggedForTheClusters" for kind in _CREATED},
    **{("ec2:CreateTags", kind): "TagOnlyAtCreation" for kind in (*_CREATED, "launch-template")},
    ("ec2:CreateFleet", "launch-template"): "LaunchFromTemplatesOfLeeway",
    ("ec2:RunInstances", "launch-template"): "LaunchFromTemplatesOfLeeway",
    ("ec2:CreateLaunchTemplate", "launch-template"): "CreateTemplatesTaggedForTheClusters",
    ("iam:PassRole", "role"): "GiveNodesTheirRole",
}
"""The statements about what EC2 checks for a launch, by action and kind of resource."""


def _tags(cluster: str, *kinds: str) -> list[dict[str, Any]]:
    return [{"ResourceType": one, "Tags": tag_list(cluster_tags(cluster))} for one in kinds]


def _fleet(
    template: Callable[[_Cluster], str], cluster: _Cluster, *, tagged: bool = True
) -> object:
    named = {"LaunchTemplateName": template(cluster), "Version": VERSION}
    return _client("ec2").create_fleet(
        DryRun=True,
        Type="instant",
        LaunchTemplateConfigs=[
            {"LaunchTemplateSpecification": named, "Overrides": [{"InstanceType": _TYPE}]}
        ],
        TargetCapacitySpecification={
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "on-demand",
        },
        TagSpecifications=_tags(cluster.named, "fleet", "instance", "volume") if tagged else [],
    )


def _launch_by_group() -> Probe:
    """Return a dry run of a fleet as Auto Scaling requests one. Its launch template does not exist,
    so that EC2 checks nothing after CreateFleet."""
    return Probe(
        "ec2:CreateFleet",
        "LaunchByGroups",
        partial(_fleet, lambda _: _KEY, tagged=False),
        _DRY | {_TEMPLATE_MISSING},
    )


def _run(cluster: _Cluster) -> object:
    return _client("ec2").run_instances(
        DryRun=True,
        MinCount=1,
        MaxCount=1,
        InstanceType=_TYPE,
        LaunchTemplate={"LaunchTemplateName": cluster.template, "Version": VERSION},
        TagSpecifications=_tags(cluster.named, "instance", "volume"),
    )


def _create_template(cluster: _Cluster) -> object:
    return _client("ec2").create_launch_template(
        DryRun=True,
        LaunchTemplateName=_KEY,
        LaunchTemplateData={"InstanceType": _TYPE},
        TagSpecifications=_tags(cluster.named, "launch-template"),
    )


def _launches() -> list[Probe]:
    """Return dry runs of the calls that launch nodes."""
    fleets = "CreateFleetsTaggedForTheClusters"
    return [
        Probe(
            "ec2:CreateFleet",
            fleets,
            partial(_fleet, lambda cluster: cluster.template),
            _DRY,
            "by a launch template that exists",
            _OF_LAUNCHES,
        ),
        Probe(
            "ec2:CreateFleet",
            fleets,
            partial(_fleet, lambda _: _KEY),
            _DRY | {_TEMPLATE_MISSING},
            "by a launch template that does not exist",
            {
                **_OF_LAUNCHES,
                ("ec2:CreateFleet", "launch-template"): "NameTemplatesThatEc2DoesNotFind",
            },
        ),
        Probe(
            "ec2:RunInstances",
            "LaunchInstancesTaggedForTheClusters",
            _run,
            _DRY.union(_OTHER_ARCHITECTURE),
            statements=_OF_LAUNCHES,
        ),
        Probe(
            "ec2:CreateLaunchTemplate",
            "CreateTemplatesTaggedForTheClusters",
            _create_template,
            _DRY,
            statements=_OF_LAUNCHES,
        ),
    ]


def _delete_schedule(_: _Cluster) -> object:
    group = os.environ["LEEWAY_SCHEDULE_GROUP"]
    return _client("scheduler").delete_schedule(Name=_KEY, GroupName=group)


def _catalog(_: _Cluster) -> object:
    region = pricing_region(str(session().region_name))
    pricing = session().client("pricing", region_name=region)
    return pricing.get_products(ServiceCode="AmazonEC2", MaxResults=1)


def _queue(_: _Cluster) -> object:
    url = os.environ["LEEWAY_PROVISION_QUEUE"]
    return _client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])


_IMAGE = "/aws/service/ami-amazon-linux-latest/al2023-ami-minimal-kernel-default-arm64"


def _joined(tags: Mapping[str, str]) -> bool:
    return "aws:eks:cluster-name" in tags


def _only_tagged(tags: Mapping[str, str]) -> bool:
    return not _joined(tags) and "eks:cluster-name" in tags


def _never_joined(tags: Mapping[str, str]) -> bool:
    return not _joined(tags) and tags.get("leeway.sh/owner") == "leeway"


_RECORDS = "KeepRecordsAndWhatIsUnavailable"


def _copy_manifests() -> Iterator[Probe]:
    for call in ("DeleteItem", "PutItem"):
        yield from _table(call, "CopyManifestsOfClusters", ("MANIFESTS",))


_MANIFESTS = "ReadManifestsAndWhatIsUnavailable"
_STARTS = ("LEEWAY_RETIRE_NODE", "LEEWAY_ADMIT_NODE")

_OF_NOTICES = (
    *_table("BatchGetItem", "ReadInstances", ("RETIREMENT", "ADMISSION", "INSTANCE")),
    *_table("PutItem", _RECORDS, ("RETIREMENT", "ADMISSION", "OFFERINGS")),
    *_table("PutItem", "ClaimWhatOneDoesForAll", ("CLAIM",)),
    *_table("Query", _MANIFESTS, ("MANIFESTS", "OFFERINGS")),
)
"""The calls of the functions that receive notices."""

PROBES: Mapping[str, Sequence[Probe]] = {
    "receive_notice": (
        *_OF_NOTICES,
        *_describe(
            "FindInstancesAndWhatIsAnnouncedForThem",
            "DescribeInstanceStatus",
            "DescribeInstances",
            "DescribeSpotInstanceRequests",
        ),
        *_start("StartRetirementsAdmissionsAndCleaning", *_STARTS, "LEEWAY_RECONCILE"),
        Probe(
            "scheduler:DeleteSchedule",
            "ScheduleNoticesToCome",
            _delete_schedule,
            frozenset({"ResourceNotFoundException"}),
        ),
    ),
    "retire_node": (
        *_keep(
            "KeepRecords",
            *("RETIREMENT", "DETACHED", "CHURN", "OFFERINGS"),
            *("CACHE", "CLAIM", "PROGRESS", "ENDPOINT", "CAPACITY", "SURGES"),
        ),
        *_table("Query", _MANIFESTS, ("MANIFESTS", "OFFERINGS")),
        *_groups(
            "Look",
            "DescribeAutoScalingGroups",
            "DescribeAutoScalingInstances",
            "DescribeInstanceRefreshes",
            "DescribeLifecycleHooks",
        ),
        *_describe("Look", "DescribeInstances", "DescribeLaunchTemplateVersions"),
        *_targets("Look"),
        _find_api_server(),
        _terminate("EndInstancesThatJoinedTheClusters", _joined, "an instance that joined"),
        _terminate("EndInstancesOnlyTaggedForTheClusters", _only_tagged, "a tagged instance"),
        _launch_by_group(),
        _hook("RecordLifecycleActionHeartbeat", "WorkOnGroupsTaggedForTheClusters"),
        _hook("CompleteLifecycleAction", "WorkOnGroupsTaggedForTheClusters"),
        _tell("TellWhatWasDone"),
        _send("RequestNodes"),
    ),
    "admit_node": (
        *_keep("KeepRecords", "ADMISSION", "ENDPOINT", "POOLS"),
        *_groups("Look", "DescribeLifecycleHooks"),
        *_describe("Look", "DescribeInstances", "DescribeInstanceTypes"),
        _terminate(
            "EndLaunchedInstancesThatNeverJoin", _never_joined, "an instance that never joined"
        ),
        _find_api_server(),
        _hook("RecordLifecycleActionHeartbeat", "AnswerHooksOfGroupsTaggedForTheClusters"),
        _hook("CompleteLifecycleAction", "AnswerHooksOfGroupsTaggedForTheClusters"),
        _tell("TellWhatWasDone"),
    ),
    "keep_headroom": (
        *_table("DeleteItem", "RememberHeadroom", ("HEADROOM",)),
        *_table("PutItem", "RememberHeadroom", ("HEADROOM",)),
        *_table("Query", "RememberHeadroom", ("HEADROOM",)),
        *_keep("RememberApiServers", "ENDPOINT"),
        *_table("Query", "ReadManifests", ("MANIFESTS",)),
        _find_api_server(),
    ),
    "watch_pods": (
        *_keep("HoldTheLease", "LEASE"),
        *_keep("RememberApiServers", "ENDPOINT"),
        *_table("Query", "ReadManifests", ("MANIFESTS",)),
        _find_api_server(),
        _send("WakeTheBuyer"),
    ),
    "reconcile": (
        *_OF_NOTICES,
        *_keep("RememberApiServers", "ENDPOINT"),
        *_table(
            "Query",
            "ReadLaunchesPausedPoolsRollsAndSurges",
            ("LAUNCH", "MANUALLAUNCH", "POOLS", "GROUPS", "SURGES"),
        ),
        *_table("PutItem", "KeepRollsOfGroups", ("GROUPS",)),
        *_copy_manifests(),
        *_keep("RecordCostsAndRestoredSizes", "COST", "SURGES"),
        *_table(
            "GetItem",
            "ReadCatalogSleepingPoolsAndDisruptionBudget",
            ("CATALOG", "PROVISIONING", "CHURN"),
        ),
        *_table("BatchWriteItem", "KeepTheIndex", ("INSTANCE",)),
        _by_cluster("ReadByCluster"),
        *_groups(
            "Look",
            "DescribeAutoScalingGroups",
            "DescribeInstanceRefreshes",
            "DescribeLifecycleHooks",
        ),
        *_describe(
            "Look",
            "DescribeCapacityReservations",
            "DescribeInstanceStatus",
            "DescribeInstances",
            "DescribeLaunchTemplateVersions",
            "DescribeLaunchTemplates",
            "DescribeSpotInstanceRequests",
        ),
        _find_images(),
        Probe(
            "ec2:DeleteLaunchTemplate",
            "DeleteUnusedLaunchTemplatesOfLeeway",
            lambda cluster: _client("ec2").delete_launch_template(
                DryRun=True, LaunchTemplateName=cluster.template
            ),
            _DRY,
        ),
        _find_api_server(),
        *_start("StartRetirementsAdmissionsAndCleaning", *_STARTS, "LEEWAY_RECONCILE"),
        _hook("CompleteLifecycleAction", "AnswerHooksOfGroupsTaggedForTheClusters"),
    ),
    "refresh_catalog": (
        *_keep("KeepTheCatalog", "CATALOG"),
        *_describe(
            "ReadWhatIsOffered",
            "DescribeAvailabilityZones",
            "DescribeInstanceTypeOfferings",
            "DescribeInstanceTypes",
            "DescribeSpotPriceHistory",
        ),
        Probe("pricing:GetProducts", "ReadPrices", _catalog),
    ),
    "provision_nodes": (
        Probe("sqs:GetQueueAttributes", "ReceiveMessages", _queue),
        *_keep(
            "KeepRecords",
            *("LAUNCH", "PROVISIONING", "CAPACITY", "RETIREMENT"),
            *("ADMISSION", "OFFERINGS", "ENDPOINT", "POOLS"),
        ),
        *_table(
            "Query",
            "ReadLaunchesRequestsAndManifests",
            ("LAUNCH", "MANUALLAUNCH", "CAPACITY", "OFFERINGS", "MANIFESTS", "POOLS"),
        ),
        *_copy_manifests(),
        *_groups("Look", "DescribeAutoScalingInstances"),
        *_describe(
            "Look",
            "DescribeCapacityReservations",
            "DescribeImages",
            "DescribeInstances",
            "DescribeLaunchTemplates",
            "DescribeSecurityGroups",
            "DescribeSubnets",
        ),
        _find_images(),
        _find_api_server(),
        *_start("StartAdmissionsAndRetirements", *_STARTS),
        _by_cluster("ReadByCluster"),
        *_table("GetItem", "ReadDisruptionBudgetAndCatalog", ("CHURN", "CATALOG")),
        Probe(
            "eks:DescribeAccessEntry",
            "FindClustersThatRolesJoin",
            _find_role,
            frozenset({"InvalidRequestException", "ResourceNotFoundException"}),
        ),
        *_launches(),
    ),
}
"""The calls of each function. A test compares them with the statements of template.yaml."""

_WITH_TOKEN = frozenset(PROBES) - {"receive_notice", "refresh_catalog"}
