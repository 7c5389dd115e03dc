"""Reads a SAM template as a deployment expands it: functions, rules, tables, queues, schedules."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from boto3 import Session
from samtranslator.parser.parser import Parser
from samtranslator.public.exceptions import InvalidDocumentException
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import intrinsics_multi_constructor

from leeway_sandbox.errors import SandboxError
from leeway_sandbox.intrinsics import Resolver
from leeway_sandbox.stack import Stack, read_stack

_LOCAL_CODE = {
    "AWS::Serverless::Function": "CodeUri",
    "AWS::Serverless::LayerVersion": "ContentUri",
}
_BUCKET = "sandbox"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads `!Ref` and other intrinsic functions as SAM does, eight times faster."""


_Loader.add_multi_constructor("!", intrinsics_multi_constructor)


@cache
def parse_template(text: str) -> Mapping[str, Any]:
    """Parse the text of a template. Callers share the result."""
    parsed: Mapping[str, Any] = yaml.load(text, _Loader)  # noqa: S506
    return parsed


@dataclass(frozen=True)
class FunctionResource:
    """A function. Times are in seconds, memory in MiB.

    ``code`` and ``layers`` are prepended to ``sys.path``. ``execution_timeout`` is None unless the
    function is durable. ``role`` is the logical id of its role, empty for a role outside of the
    template. ``services`` are the services in the policies of the role, without CloudWatch Logs,
    which Lambda calls. ``logs_to`` is the log group of its configuration, empty without one.
    """

    logical_id: str
    name: str
    arn: str
    handler: str
    code: Path
    layers: tuple[Path, ...]
    environment: Mapping[str, str]
    timeout: int
    memory: int
    execution_timeout: int | None
    aliases: tuple[str, ...]
    retries: int
    on_failure: str | None
    dead_letter: str | None
    role: str
    services: tuple[str, ...]
    recursive_loop: str
    logs_to: str


@dataclass(frozen=True)
class RuleResource:
    """A rule; ``targets`` are in the shape of EventBridge's PutTargets."""

    logical_id: str
    name: str
    arn: str
    bus: str
    pattern: Mapping[str, Any]
    state: str
    targets: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class ScheduleResource:
    """A schedule; ``definition`` is in the shape of EventBridge Scheduler's CreateSchedule."""

    logical_id: str
    name: str
    definition: Mapping[str, Any]


@dataclass(frozen=True)
class TableResource:
    """A table; ``definition`` is in the shape of DynamoDB's CreateTable."""

    logical_id: str
    name: str
    definition: Mapping[str, Any]
    expiry_attribute: str | None
    point_in_time_recovery: bool


@dataclass(frozen=True)
class QueueResource:
    """A queue; ``attributes`` are in the shape of SQS's CreateQueue."""

    logical_id: str
    name: str
    arn: str
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class EventSourceResource:
    """An event source mapping of an SQS queue.

    ``function`` is an ARN, with the alias if there is one; ``concurrency`` is the maximum of
    invocations at a time. ``window`` is in seconds.
    """

    logical_id: str
    function: str
    queue: str
    batch_size: int
    window: int
    partial_failures: bool
    concurrency: int | None


@dataclass(frozen=True)
class Permission:
    """A permission to invoke a function (a qualified ARN); ``source`` may be a pattern."""

    principal: str
    function: str
    source: str | None

    def allows(self, principal: str, function: str, source: str) -> bool:
        """Whether ``source`` of ``principal`` may invoke ``function``."""
        named = (self.principal, self.function) == (principal, function)
        return named and (self.source is None or fnmatchcase(source, self.source))


@dataclass(frozen=True)
class DeployedTemplate:
    """The resources of the template that the sandbox creates."""

    functions: tuple[FunctionResource, ...]
    rules: tuple[RuleResource, ...]
    tables: tuple[TableResource, ...]
    queues: tuple[QueueResource, ...]
    permissions: tuple[Permission, ...]
    access_entries: Mapping[str, str]
    """Role (logical id) → the Kubernetes group of its access entry in every cluster."""
    stack: Stack
    schedules: tuple[ScheduleResource, ...] = ()
    schedule_groups: tuple[str, ...] = ()
    event_sources: tuple[EventSourceResource, ...] = ()


def declared_parameters(path: Path) -> frozenset[str]:
    """Return the names of the parameters of a template."""
    return frozenset(parse_template(path.read_text()).get("Parameters", {}))


def read_template(
    path: Path,
    parameters: Mapping[str, Any],
    *,
    build: Path | None = None,
    stack: str = "leeway",
    region: str = "us-east-1",
    account: str = "123456789012",
) -> DeployedTemplate:
    """Expand a template with SAM's translator and resolve its expressions.

    ``parameters`` override the defaults of the template. Functions and layers come from the source
    tree, or from ``build`` (``.aws-sam/build``), where ``sam build`` wrote them.

    Raises:
        SandboxError: SAM refuses the template, or an expression cannot be resolved.
    """
    text = path.read_text()
    source = parse_template(text)
    given = json.dumps(dict(parameters), sort_keys=True)
    translated = copy.deepcopy(_translate(text, given, region))
    resolver = Resolver(translated, parameters, stack=stack, region=region, account=account)
    deployed = read_stack(stack, text, source, translated, resolver)
    return _Reader(translated, resolver, _places(source, path.parent, build)).read(deployed)


def _places(source: Mapping[str, Any], root: Path, build: Path | None) -> dict[str, Path]:
    """Return the folder for ``sys.path`` of each function and layer, by logical id."""
    places = {}
    common = source.get("Globals", {}).get("Function", {}).get("CodeUri", ".")
    for logical_id, resource in source["Resources"].items():
        key = _LOCAL_CODE.get(resource["Type"])
        if key is None:
            continue
        if build is None:
            places[logical_id] = (root / resource["Properties"].get(key, common)).resolve()
        else:
            inside = "python" if key == "ContentUri" else ""
            places[logical_id] = (build / logical_id / inside).resolve()
    return places


@cache
def _translate(text: str, parameters: str, region: str) -> dict[str, Any]:
    """Expand a template with parameters, which are JSON, in half a second. Callers share the
    result."""
    template = copy.deepcopy(dict(parse_template(text)))
    for logical_id, resource in template["Resources"].items():
        if key := _LOCAL_CODE.get(resource["Type"]):
            # The translator accepts only uploaded code. The key keeps the logical id, which the
            # translator changes for layers.
            resource.setdefault("Properties", {})[key] = f"s3://{_BUCKET}/{logical_id}"
    translator = Translator(None, Parser(), [], Session(region_name=region))
    try:
        translated: dict[str, Any] = translator.translate(
            template, json.loads(parameters), get_managed_policy_map=dict
        )
    except InvalidDocumentException as error:
        problem = "; ".join(cause.message for cause in error.causes)
        raise SandboxError(f"The SAM translator refuses the template: {problem}") from error
    finally:
        # Without this call the translator warns about unpublished metrics at exit.
        translator.metrics.publish()
    return translated


class _Reader:
    """Reads the resources of one translated template."""

    def __init__(
        self, template: Mapping[str, Any], resolver: Resolver, places: Mapping[str, Path]
    ) -> None:
        self._resolver = resolver
        self._places = places
        self._resources: Mapping[str, Any] = template["Resources"]

    def read(self, stack: Stack) -> DeployedTemplate:
        return DeployedTemplate(
            functions=tuple(self._function(name) for name in self._all("AWS::Lambda::Function")),
            rules=tuple(self._rule(name) for name in self._all("AWS::Events::Rule")),
            tables=tuple(self._table(name) for name in self._all("AWS::DynamoDB::Table")),
            queues=tuple(self._queue(name) for name in self._all("AWS::SQS::Queue")),
            permissions=tuple(self._permission(n) for n in self._all("AWS::Lambda::Permission")),
            schedules=tuple(self._schedule(n) for n in self._all("AWS::Scheduler::Schedule")),
            schedule_groups=tuple(
                self._resolver.name(n) for n in self._all("AWS::Scheduler::ScheduleGroup")
            ),
            access_entries=dict(stack.declared.get("Metadata", {}).get("AccessEntries", {})),
            stack=stack,
            event_sources=tuple(
                self._event_source(n) for n in self._all("AWS::Lambda::EventSourceMapping")
            ),
        )

    def _all(self, kind: str) -> list[str]:
        return [
            logical_id
            for logical_id, resource in self._resources.items()
            if resource["Type"] == kind and self._resolver.exists(logical_id)
        ]

    def _arn(self, logical_id: str) -> str:
        return str(self._resolver.attribute(logical_id, "Arn", logical_id))

    def _function(self, logical_id: str) -> FunctionResource:
        properties = self._resolver.properties(logical_id)
        name = self._resolver.name(logical_id)
        durable = properties.get("DurableConfig")
        events = self._event_config(name)
        destination = events.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")
        variables = properties.get("Environment", {}).get("Variables", {})
        return FunctionResource(
            logical_id=logical_id,
            name=name,
            arn=self._arn(logical_id),
            handler=properties["Handler"],
            code=self._place(properties["Code"]["S3Key"], logical_id),
            layers=tuple(self._layer(layer, logical_id) for layer in properties.get("Layers", [])),
            environment={key: str(value) for key, value in variables.items()},
            timeout=int(properties.get("Timeout", 3)),
            memory=int(properties.get("MemorySize", 128)),
            execution_timeout=int(durable["ExecutionTimeout"]) if durable else None,
            aliases=tuple(
                self._resources[alias]["Properties"]["Name"]
                for alias in self._all("AWS::Lambda::Alias")
                if self._resolver.properties(alias)["FunctionName"] == name
            ),
            retries=int(events.get("MaximumRetryAttempts", 2)),
            on_failure=destination,
            dead_letter=properties.get("DeadLetterConfig", {}).get("TargetArn"),
            role=self._role(logical_id),
            services=self._services(self._role(logical_id)),
            recursive_loop=properties.get("RecursiveLoop", "Terminate"),
            logs_to=str(properties.get("LoggingConfig", {}).get("LogGroup", "")),
        )

    def _event_config(self, function: str) -> dict[str, Any]:
        for logical_id in self._all("AWS::Lambda::EventInvokeConfig"):
            properties = self._resolver.properties(logical_id)
            if properties["FunctionName"] == function:
                return properties
        return {}

    def _layer(self, arn: str, function: str) -> Path:
        for logical_id in self._all("AWS::Lambda::LayerVersion"):
            if self._resolver.reference(logical_id, function) == arn:
                key = self._resources[logical_id]["Properties"]["Content"]["S3Key"]
                return self._place(key, function)
        raise SandboxError(f"{function}: the layer {arn} is not a resource of this template.")

    def _place(self, key: str, function: str) -> Path:
        place = self._places[key]
        if not place.is_dir():
            raise SandboxError(
                f"{function}: the folder {place} does not exist. Correct CodeUri or ContentUri, "
                "or run `make build`."
            )
        return place

    def _role(self, function: str) -> str:
        role = self._resources[function]["Properties"].get("Role", {})
        logical_id = role.get("Fn::GetAtt", [""])[0] if isinstance(role, dict) else ""
        return str(logical_id) if logical_id in self._resources else ""

    def _services(self, role: str) -> tuple[str, ...]:
        policies = self._resolver.properties(role).get("Policies", []) if role else []
        statements = [s for p in policies for s in _listed(p["PolicyDocument"]["Statement"])]
        actions = [a for s in statements for a in _listed(s.get("Action", []))]
        return tuple(sorted({action.partition(":")[0] for action in actions} - {"logs"}))

    def _rule(self, logical_id: str) -> RuleResource:
        properties = self._resolver.properties(logical_id)
        if "EventPattern" not in properties:
            raise SandboxError(
                f"{logical_id}: the sandbox supports rules with an EventPattern. For times, use "
                "AWS::Scheduler::Schedule (the SAM event ScheduleV2)."
            )
        return RuleResource(
            logical_id=logical_id,
            name=self._resolver.name(logical_id),
            arn=self._arn(logical_id),
            bus=properties.get("EventBusName", "default"),
            pattern=properties["EventPattern"],
            state=properties.get("State", "ENABLED"),
            targets=tuple(properties.get("Targets", [])),
        )

    def _schedule(self, logical_id: str) -> ScheduleResource:
        properties = self._resolver.properties(logical_id)
        name = self._resolver.name(logical_id)
        return ScheduleResource(logical_id, name, {**properties, "Name": name})

    def _table(self, logical_id: str) -> TableResource:
        properties = self._resolver.properties(logical_id)
        expiry = properties.pop("TimeToLiveSpecification", {})
        recovery = properties.pop("PointInTimeRecoverySpecification", {})
        name = self._resolver.name(logical_id)
        return TableResource(
            logical_id=logical_id,
            name=name,
            definition={**properties, "TableName": name},
            expiry_attribute=expiry.get("AttributeName") if expiry.get("Enabled") else None,
            point_in_time_recovery=bool(recovery.get("PointInTimeRecoveryEnabled")),
        )

    def _queue(self, logical_id: str) -> QueueResource:
        properties = self._resolver.properties(logical_id)
        given = {k: v for k, v in properties.items() if k not in ("QueueName", "Tags")}
        return QueueResource(
            logical_id=logical_id,
            name=self._resolver.name(logical_id),
            arn=self._arn(logical_id),
            attributes={key: _attribute(value) for key, value in given.items()},
        )

    def _event_source(self, logical_id: str) -> EventSourceResource:
        properties = self._resolver.properties(logical_id)
        source = str(properties.get("EventSourceArn", ""))
        if ":sqs:" not in source or not properties.get("Enabled", True):
            raise SandboxError(
                f"{logical_id}: the sandbox supports enabled event sources of SQS queues, not "
                f"{source!r}."
            )
        concurrency = properties.get("ScalingConfig", {}).get("MaximumConcurrency")
        return EventSourceResource(
            logical_id=logical_id,
            function=self._function_arn(str(properties["FunctionName"])),
            queue=source,
            batch_size=int(properties.get("BatchSize", 10)),
            window=int(properties.get("MaximumBatchingWindowInSeconds", 0)),
            partial_failures="ReportBatchItemFailures"
            in properties.get("FunctionResponseTypes", ()),
            concurrency=int(concurrency) if concurrency else None,
        )

    def _permission(self, logical_id: str) -> Permission:
        properties = self._resolver.properties(logical_id)
        function = self._function_arn(str(properties["FunctionName"]))
        return Permission(properties["Principal"], function, properties.get("SourceArn"))

    def _function_arn(self, given: str) -> str:
        """Return the ARN of a function's name, with the qualifier if it has one."""
        if given.startswith("arn:"):
            return given
        name, _, qualifier = given.partition(":")
        arns = [self._arn(f) for f in self._all("AWS::Lambda::Function")]
        base = next((arn for arn in arns if arn.endswith(f":function:{name}")), name)
        return f"{base}:{qualifier}" if qualifier else base


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _attribute(value: Any) -> str:
    """Return an attribute of a queue as the text that SQS expects."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value)
