"""Validates objects: required fields, supported values, names, labels, taints, selectors, immutable
fields, and the rules of budgets, workloads and pods that concern several fields.

Rules: Kubernetes' API validation of the groups core, apps and policy. Required fields come from
lightkube's models, which are generated from the OpenAPI document of the API. That document has no
supported values and no bounds: those of nodes, pods, budgets and workloads are here. All errors are
causes of one 422.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from leeway_sandbox.kubernetes import errors, registry, schema
from leeway_sandbox.kubernetes.custom_resources import check_definition
from leeway_sandbox.kubernetes.errors import Cause
from leeway_sandbox.kubernetes.objects import Object, encode, labels_of, name_of
from leeway_sandbox.kubernetes.quantities import milli
from leeway_sandbox.kubernetes.registry import Kind
from leeway_sandbox.kubernetes.selectors import label_selector

# Required by the document, but defaulted or not checked by a real server.
_EXEMPT = frozenset(("serviceName", "volumeClaimTemplates", "status"))
_TAINT_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_HONOR = ("Honor", "Ignore")
_SUPPORTED: dict[str, tuple[str, ...]] = {
    "completionMode": ("Indexed", "NonIndexed"),
    "concurrencyPolicy": ("Allow", "Forbid", "Replace"),
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "nodeAffinityPolicy": _HONOR,
    "nodeTaintsPolicy": _HONOR,
    "podManagementPolicy": ("OrderedReady", "Parallel"),
    "podReplacementPolicy": ("Failed", "TerminatingOrFailed"),
    "preemptionPolicy": ("Never", "PreemptLowerPriority"),
    "protocol": ("SCTP", "TCP", "UDP"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "terminationMessagePolicy": ("FallbackToLogsOnError", "File"),
    "unhealthyPodEvictionPolicy": ("AlwaysAllow", "IfHealthyBudget"),
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
}
_SUPPORTED_IN: dict[tuple[str, str], tuple[str, ...]] = {
    ("Toleration", "effect"): _TAINT_EFFECTS,
    ("DeploymentStrategy", "type"): ("Recreate", "RollingUpdate"),
    ("DaemonSetUpdateStrategy", "type"): ("OnDelete", "RollingUpdate"),
    ("StatefulSetUpdateStrategy", "type"): ("OnDelete", "RollingUpdate"),
    ("LabelSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist"),
    ("NodeSelectorRequirement", "operator"): (
        *("In", "NotIn", "Exists", "DoesNotExist"),
        *("Gt", "Lt"),
    ),
}
_NEVER_NEGATIVE = frozenset(
    (
        "activeDeadlineSeconds",
        "backoffLimit",
        "completions",
        "minReadySeconds",
        "parallelism",
        "progressDeadlineSeconds",
        "replicas",
        "revisionHistoryLimit",
        "ttlSecondsAfterFinished",
    )
)
_PORTS = frozenset(("containerPort", "hostPort"))
_HIGHEST_PORT = 65535


def _fields(model: type[Any], obj: Object, path: str) -> Iterator[Cause]:
    """Yield a cause for each invalid field of an object and of its nested objects."""
    for name, field in schema.fields(model).items():
        if name in _EXEMPT:
            continue
        where, value = f"{path}.{name}" if path else name, obj.get(name)
        if value is None or value in ("", []):
            if field.required:
                yield errors.value_required(where)
            continue
        if field.model is not None:
            items = value if field.is_list else [value]
            for index, item in enumerate(items):
                yield from _fields(
                    field.model, item, f"{where}[{index}]" if field.is_list else where
                )
        else:
            yield from _value(model.__name__, name, value, where)


def _value(model: str, name: str, value: Any, where: str) -> Iterator[Cause]:
    supported = _SUPPORTED_IN.get((model, name)) or _SUPPORTED.get(name)
    if supported and isinstance(value, str) and value not in supported:
        yield errors.value_unsupported(where, value, supported)
    if name in _NEVER_NEGATIVE and value < 0:
        yield errors.value_invalid(where, str(value), NOT_NEGATIVE)
    if name in _PORTS and not 0 <= value <= _HIGHEST_PORT:
        why = f"must be between 1 and {_HIGHEST_PORT}, inclusive"
        yield errors.value_invalid(where, str(value), why)


NOT_NEGATIVE = "must be greater than or equal to 0"


_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_RULE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or "
    "'93%', regex used for validation is '[0-9]+%')"
)
_WHOLE = 100  # percent


def budget(spec: Object) -> Iterator[Cause]:
    """Validate the spec of a budget."""
    if "minAvailable" in spec and "maxUnavailable" in spec:
        why = "minAvailable and maxUnavailable cannot be both set"
        yield errors.value_invalid("spec", "policy.PodDisruptionBudgetSpec", why)
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            yield from _number_or_share(spec[name], f"spec.{name}", at_most_all=True)


def deployment(spec: Object) -> Iterator[Cause]:
    """Validate the spec of a Deployment."""
    strategy = spec.get("strategy") or {}
    rolling, field = strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    if rolling is not None and strategy.get("type") == "Recreate":
        why = "may not be specified when strategy `type` is 'Recreate'"
        yield errors.value_forbidden(field, why)
    elif rolling is not None:
        yield from _steps(rolling, field)
    ready = spec.get("minReadySeconds") or 0
    progress = spec.get("progressDeadlineSeconds")
    if progress is not None and 0 <= progress <= ready:
        why = "must be greater than minReadySeconds"
        yield errors.value_invalid("spec.progressDeadlineSeconds", str(progress), why)


def daemon_set(spec: Object) -> Iterator[Cause]:
    """Validate the spec of a DaemonSet."""
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("rollingUpdate") is not None:
        yield from _steps(strategy["rollingUpdate"], "spec.updateStrategy.rollingUpdate")


def _steps(rolling: Object, field: str) -> Iterator[Cause]:
    surge, unavailable = rolling.get("maxSurge", 0), rolling.get("maxUnavailable", 0)
    yield from _number_or_share(unavailable, f"{field}.maxUnavailable", at_most_all=True)
    yield from _number_or_share(surge, f"{field}.maxSurge", at_most_all=False)
    if surge in (0, "0%") and unavailable in (0, "0%"):
        why = "may not be 0 when `maxSurge` is 0"
        yield errors.value_invalid(f"{field}.maxUnavailable", _shown(unavailable), why)


def _number_or_share(value: int | str, field: str, *, at_most_all: bool) -> Iterator[Cause]:
    if isinstance(value, int):
        if value < 0:
            yield errors.value_invalid(field, str(value), NOT_NEGATIVE)
    elif not _PERCENT.fullmatch(value):
        yield errors.value_invalid(field, _shown(value), _PERCENT_RULE)
    elif at_most_all and int(value[:-1]) > _WHOLE:
        yield errors.value_invalid(field, _shown(value), "must not be greater than 100%")


def _shown(value: int | str) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def restart_policy(spec: Object, supported: tuple[str, ...], field: str) -> Iterator[Cause]:
    """Validate the restart policy of a template."""
    policy = spec.get("restartPolicy", "Always")
    if policy not in supported:
        yield errors.value_unsupported(f"{field}.restartPolicy", policy, supported)


def pod_spec(spec: Object, field: str) -> Iterator[Cause]:
    """Validate the spec of a pod or of a pod template."""
    names: set[str] = set()
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            where = f"{field}.{kind}[{index}]"
            if container.get("name") in names:
                yield errors.value_duplicate(f"{where}.name", f'"{container["name"]}"')
            names.add(container.get("name", ""))
            if not container.get("image"):
                yield errors.value_required(f"{where}.image")
            yield from _resources(container.get("resources") or {}, f"{where}.resources")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(toleration, f"{field}.tolerations[{index}]")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread(constraint, f"{field}.topologySpreadConstraints[{index}]")


def _resources(resources: Object, field: str) -> Iterator[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            if milli(value) < 0:
                where = f"{field}.{part}[{name}]"
                yield errors.value_invalid(where, f'"{value}"', NOT_NEGATIVE)
    for name, value in requests.items():
        limit, where = limits.get(name), f"{field}.requests"
        if _is_whole(name) and limit is None:
            yield errors.value_required(
                f"{field}.limits", "Limit must be set for non overcommitable resources"
            )
        elif _is_whole(name) and milli(value) != milli(limit):
            yield errors.value_invalid(where, f'"{value}"', f"must be equal to {name} limit")
        elif limit is not None and milli(value) > milli(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            yield errors.value_invalid(where, f'"{value}"', why)


def _is_whole(resource: str) -> bool:
    """Whether a resource cannot be overcommitted: huge pages and extended resources."""
    domain, slash, _ = resource.partition("/")
    return resource.startswith("hugepages-") or bool(slash and not domain.endswith("kubernetes.io"))


def _toleration(toleration: Object, field: str) -> Iterator[Cause]:
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key") and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and '
        yield errors.value_invalid(f"{field}.operator", f'"{operator}"', why + 'all keys"')
    if operator == "Exists" and toleration.get("value"):
        why = "value must be empty when `operator` is 'Exists'"
        yield errors.value_invalid(f"{field}.operator", f'"{toleration["value"]}"', why)
    if operator not in ("Equal", "Exists", "Gt", "Lt"):
        yield errors.value_unsupported(f"{field}.operator", operator, ("Equal", "Exists"))
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        shown = f'"{toleration.get("effect", "")}"'
        yield errors.value_invalid(f"{field}.effect", shown, why)


def _spread(constraint: Object, field: str) -> Iterator[Cause]:
    skew, domains = constraint.get("maxSkew"), constraint.get("minDomains")
    if skew is not None and skew <= 0:
        yield errors.value_invalid(f"{field}.maxSkew", str(skew), "must be greater than zero")
    if domains is None:
        return
    if domains <= 0:
        yield errors.value_invalid(f"{field}.minDomains", str(domains), "must be greater than 0")
    elif constraint.get("whenUnsatisfiable") != "DoNotSchedule":
        why = "can only use minDomains if whenUnsatisfiable=DoNotSchedule"
        yield errors.value_invalid(f"{field}.minDomains", str(domains), why)


_POD_CHANGES = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it "
    "to be set to 1 if it was previously negative)"
)


def pod_changes(new: Object, old: Object) -> Iterator[Cause]:
    """Validate a change of a pod's spec."""
    changeable = {"activeDeadlineSeconds", "containers", "initContainers", "tolerations"}
    if old.get("schedulingGates"):
        changeable |= {"nodeSelector", "schedulingGates", "affinity"}
    grace = "terminationGracePeriodSeconds"
    if (old.get(grace) or 0) < 0 and new.get(grace) == 1:
        changeable.add(grace)
    changed = {name for name in new.keys() | old.keys() if new.get(name) != old.get(name)}
    if changed - changeable or _without_images(new) != _without_images(old):
        yield errors.value_forbidden("spec", _POD_CHANGES)
    left = [_without_seconds(one) for one in new.get("tolerations") or ()]
    if any(_without_seconds(one) not in left for one in old.get("tolerations") or ()):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield errors.value_forbidden("spec.tolerations", why)


def _without_seconds(toleration: Object) -> dict[str, Any]:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _without_images(spec: Object) -> list[Object]:
    return [
        {name: value for name, value in container.items() if name != "image"}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    ]


_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value', "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_HIGHEST_PRIORITY = 1_000_000_000  # of a user-defined PriorityClass
_LONGEST_LABEL = 63
_LONGEST_NAME = 253


def check(kind: Kind, new: Object, old: Object | None) -> None:
    """Validate an object; 422 with a cause for each error. An unchanged spec is not validated."""
    causes = [*_metadata(new)]
    if kind.custom is not None:
        causes += kind.custom.causes(new, old)
        if causes:
            raise errors.invalid(kind, name_of(new), causes)
        return
    if old is None or new.get("spec") != old.get("spec") or "spec" not in new:
        causes += _rules(kind, new)
    if old is not None:
        causes += _changes(kind, new, old)
    if causes:
        raise errors.invalid(kind, name_of(new), causes)


def _metadata(obj: Object) -> Iterator[Cause]:
    name = name_of(obj)
    if len(name) > _LONGEST_NAME:
        yield errors.value_invalid("metadata.name", f'"{name}"', "must be no more than 253 bytes")
    # Names of RBAC objects can have colons.
    elif not _SUBDOMAIN.fullmatch(name.replace(":", "-")):
        yield errors.value_invalid("metadata.name", f'"{name}"', _SUBDOMAIN_RULE)
    for section in ("labels", "annotations"):
        for key in obj["metadata"].get(section) or ():
            prefix, _, named = key.rpartition("/")
            prefixed = bool(_SUBDOMAIN.fullmatch(prefix)) or not prefix
            if not (named and _LABEL.fullmatch(named) and prefixed):
                yield errors.value_invalid(f"metadata.{section}", f'"{key}"', _KEY_RULE)
    for value in labels_of(obj).values():
        yield from _label_value("metadata.labels", value)


def _label_value(field: str, value: str) -> Iterator[Cause]:
    if len(value) > _LONGEST_LABEL:
        yield errors.value_invalid(field, f'"{value}"', "must be no more than 63 bytes")
    elif not _LABEL.fullmatch(value):
        yield errors.value_invalid(field, f'"{value}"', _LABEL_RULE)


def _rules(kind: Kind, obj: Object) -> Iterator[Cause]:
    spec = obj.get("spec") or {}
    if kind is registry.CUSTOM_RESOURCE_DEFINITION:
        yield from check_definition(obj)
    elif kind is registry.NODE:
        yield from _taints(obj)
    elif kind is registry.PRIORITY_CLASS:
        if obj["value"] > _HIGHEST_PRIORITY and not name_of(obj).startswith("system-"):
            why = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
            yield errors.value_forbidden("value", why)
    else:
        field = schema.fields(kind.model).get("spec")
        if field is not None and field.model is not None:
            yield from _fields(field.model, spec, "spec")
        if kind in _SPEC_RULES:
            yield from _SPEC_RULES[kind](spec)


def _taints(node: Object) -> Iterator[Cause]:
    seen = set()
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        field = f"metadata.taints[{index}]"
        if not taint.get("key"):
            yield errors.value_required(f"{field}.key")
        yield from _label_value(f"{field}.value", taint.get("value", ""))
        effect = taint.get("effect", "")
        if effect not in _EFFECTS:
            yield errors.value_unsupported(f"{field}.effect", effect, _EFFECTS)
        if (taint.get("key"), effect) in seen:
            yield errors.value_duplicate(field, encode(taint).decode())
        seen.add((taint.get("key"), effect))


def _workload(spec: Object) -> Iterator[Cause]:
    template = spec.get("template") or {}
    yield from pod_spec(template.get("spec") or {}, "spec.template.spec")
    selector = spec.get("selector")
    labels = (template.get("metadata") or {}).get("labels") or {}
    # A selector with an unknown operator already has a cause.
    if selector and _is_legible(selector) and not label_selector(selector)(labels):
        shown = "{" + ", ".join(f'"{key}":"{value}"' for key, value in labels.items()) + "}"
        why = "`selector` does not match template `labels`"
        yield errors.value_invalid("spec.template.metadata.labels", shown, why)


def _is_legible(selector: Object) -> bool:
    model = schema.fields(registry.DEPLOYMENT.model)["spec"].model
    selector_model = model and schema.fields(model)["selector"].model
    return selector_model is not None and not any(_fields(selector_model, selector, ""))


def _always_running(spec: Object) -> Iterator[Cause]:
    yield from _workload(spec)
    template = (spec.get("template") or {}).get("spec") or {}
    yield from restart_policy(template, ("Always",), "spec.template.spec")


def _deployment(spec: Object) -> Iterator[Cause]:
    yield from _always_running(spec)
    yield from deployment(spec)


def _daemon_set(spec: Object) -> Iterator[Cause]:
    yield from _always_running(spec)
    yield from daemon_set(spec)


_SPEC_RULES: dict[Kind, Callable[[Object], Iterable[Cause]]] = {
    registry.BUDGET: budget,
    registry.DAEMON_SET: _daemon_set,
    registry.DEPLOYMENT: _deployment,
    registry.POD: lambda spec: pod_spec(spec, "spec"),
    registry.REPLICA_SET: _always_running,
    registry.STATEFUL_SET: _always_running,
}


def _changes(kind: Kind, new: Object, old: Object) -> Iterator[Cause]:
    if kind is registry.NODE:
        # A real server applies the rules of creation and of updates, and reports both.
        yield from _taints(new)
        if (old["spec"].get("providerID") or new["spec"].get("providerID")) != new["spec"].get(
            "providerID"
        ):
            yield errors.value_forbidden("spec.providerID", "node updates may not change it")
    elif kind is registry.PRIORITY_CLASS:
        for field in ("value", "preemptionPolicy"):
            if new.get(field) != old.get(field):
                yield errors.value_forbidden(field, "may not be changed in an update.")
    elif kind in (registry.DEPLOYMENT, registry.REPLICA_SET, registry.DAEMON_SET):
        if new["spec"].get("selector") != old["spec"].get("selector"):
            yield errors.value_invalid("spec.selector", "v1.LabelSelector", "field is immutable")
    elif kind is registry.POD:
        yield from pod_changes(new["spec"], old["spec"])
