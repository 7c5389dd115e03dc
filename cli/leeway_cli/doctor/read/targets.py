"""Reads which target groups have pods and nodes of a cluster as targets.

The TargetGroupBindings of the AWS Load Balancer Controller name a target group and a Service each.
The pods are known by the templates of their workloads: one list for each kind, however many pods
there are.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from leeway.aws.target_groups import LoadBalancerTargets
from leeway.kubernetes.connection import Connection, is_unknown_path
from leeway.kubernetes.list_watch import ObjectList, list_objects
from leeway.parallel import in_parallel
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.wiring.clients import client
from msgspec import Struct, field
from msgspec.json import Decoder

from leeway_cli.adopt.settings.groups import ScalingGroup
from leeway_cli.doctor.checks.targets import INJECT
from leeway_cli.doctor.facts import NodeTargets, PodTargets, TargetFacts

AT_ONCE = 4
"""Elastic Load Balancing throttles the whole account together."""

BINDINGS_PATH = "/apis/elbv2.k8s.aws/v1beta1/targetgroupbindings"
_GATE = "target-health."
"""The conditions of the controller's readiness gates begin so, in all of its versions."""

_SLEEP = re.compile(r"\bsleep\s+(\d+)([smh]?)\b")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


class _Metadata(Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)


class _Service(Struct):
    name: str = ""


class _BindingSpec(Struct):
    targetGroupARN: str = ""  # noqa: N815 (Kubernetes's name)
    targetType: str = ""  # noqa: N815
    serviceRef: _Service = field(default_factory=_Service)  # noqa: N815


class _Binding(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    spec: _BindingSpec = field(default_factory=_BindingSpec)


class _Selector(Struct):
    selector: dict[str, str] = field(default_factory=dict)


class _Selecting(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    spec: _Selector = field(default_factory=_Selector)


class _Lifecycle(Struct):
    preStop: dict[str, Any] = field(default_factory=dict)  # noqa: N815


class _Container(Struct):
    name: str = ""
    lifecycle: _Lifecycle = field(default_factory=_Lifecycle)


class _Gate(Struct):
    conditionType: str = ""  # noqa: N815


class _PodSpec(Struct):
    containers: list[_Container] = field(default_factory=list)
    readinessGates: list[_Gate] = field(default_factory=list)  # noqa: N815
    terminationGracePeriodSeconds: int = 30  # noqa: N815


class _Template(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    spec: _PodSpec = field(default_factory=_PodSpec)


class _WorkloadSpec(Struct):
    template: _Template = field(default_factory=_Template)


class _Workload(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)
    spec: _WorkloadSpec = field(default_factory=_WorkloadSpec)


class _Namespace(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)


_BINDINGS = Decoder(ObjectList[_Binding])
_SERVICES = Decoder(ObjectList[_Selecting])
_WORKLOADS = Decoder(ObjectList[_Workload])
_NAMESPACES = Decoder(ObjectList[_Namespace])
_KINDS = {"deployment": "deployments", "statefulset": "statefulsets", "daemonset": "daemonsets"}


def targets_of(connection: Connection, groups: Sequence[ScalingGroup]) -> TargetFacts:
    """Read the target groups of a cluster with these Auto Scaling groups."""
    bindings = _bindings(connection)
    attached = {arn for one in groups for arn in one.target_groups}
    arns = sorted({one.spec.targetGroupARN for one in bindings} | attached)
    read = LoadBalancerTargets(partial(client, "elbv2")).deregistration_delay
    delays = dict(zip(arns, in_parallel(read, arns, AT_ONCE), strict=True))
    nodes = {one.spec.targetGroupARN for one in bindings if one.spec.targetType == "instance"}
    return TargetFacts(
        pods=tuple(_pods(connection, bindings, delays)),
        nodes=tuple(_of_nodes(nodes, delays)),
        attached=tuple(_of_nodes(attached - nodes, delays)),
    )


def _of_nodes(
    arns: Collection[str], delays: Mapping[str, timedelta | None]
) -> Iterator[NodeTargets]:
    for arn in sorted(arns):
        if (delay := delays[arn]) is not None:
            yield NodeTargets(arn, _seconds(delay))


def _seconds(delay: timedelta) -> int:
    return int(delay.total_seconds())


def _bindings(connection: Connection) -> list[_Binding]:
    read = partial(list_objects, path=BINDINGS_PATH, pages=_BINDINGS)
    try:
        found = connection.call(read)
    except ClusterUnavailable as error:
        if is_unknown_path(error):
            return []  # the controller is not installed
        raise
    return [one for one in found if one.spec.targetGroupARN]


def _pods(
    connection: Connection, bindings: list[_Binding], delays: Mapping[str, timedelta | None]
) -> Iterator[PodTargets]:
    bound = [one for one in bindings if one.spec.targetType == "ip"]
    if not bound:
        return
    services = {
        (one.metadata.namespace, one.metadata.name): one.spec.selector
        for one in connection.call(partial(list_objects, path="/api/v1/services", pages=_SERVICES))
    }
    gated = {one.metadata.name for one in connection.call(_gated_namespaces)}
    for kind, plural in _KINDS.items():
        path = f"/apis/apps/v1/{plural}"
        for one in connection.call(partial(list_objects, path=path, pages=_WORKLOADS)):
            yield from _of_workload(kind, one, bound, services, delays, gated)


def _gated_namespaces(connection: Connection) -> list[_Namespace]:
    selection = {"labelSelector": f"{INJECT}=enabled"}
    return list_objects(connection, "/api/v1/namespaces", _NAMESPACES, selection=selection)


def _of_workload(
    kind: str,
    one: _Workload,
    bindings: list[_Binding],
    services: Mapping[tuple[str, str], Mapping[str, str]],
    delays: Mapping[str, timedelta | None],
    gated: Collection[str],
) -> Iterator[PodTargets]:
    namespace, template = one.metadata.namespace, one.spec.template
    labels, spec = template.metadata.labels.items(), template.spec
    for binding in bindings:
        selector = services.get((namespace, binding.spec.serviceRef.name))
        delay = delays[binding.spec.targetGroupARN]
        same = binding.metadata.namespace == namespace
        if not (same and selector and selector.items() <= labels) or delay is None:
            continue
        names = [container.name for container in spec.containers]
        yield PodTargets(
            binding.spec.targetGroupARN,
            _seconds(delay),
            namespace,
            f"{kind}/{one.metadata.name}",
            spec.terminationGracePeriodSeconds,
            _longest_sleep(spec.containers),
            names[0] if len(names) == 1 else "",
            namespace in gated
            or any(gate.conditionType.startswith(_GATE) for gate in spec.readinessGates),
        )


def _longest_sleep(containers: list[_Container]) -> int | None:
    slept = [sleep_of(one.lifecycle.preStop) for one in containers]
    known = [one for one in slept if one is not None]
    return max(known, default=0) if len(known) == len(slept) else None


def sleep_of(hook: Mapping[str, Any]) -> int | None:
    """Return for how many seconds a preStop hook sleeps: 0 if there is no hook, None if it is one
    whose time is not known."""
    if not hook:
        return 0
    if isinstance(sleep := hook.get("sleep"), dict):
        return int(sleep.get("seconds") or 0)
    action = hook.get("exec")
    command = " ".join(map(str, (action or {}).get("command") or ()))
    found = _SLEEP.findall(command)
    return sum(int(number) * _SECONDS[unit] for number, unit in found) if found else None
