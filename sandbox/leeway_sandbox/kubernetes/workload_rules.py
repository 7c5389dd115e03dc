"""The rules of budgets, workloads and pods that concern several fields.

Rules: Kubernetes' validation of the groups core, apps and policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from leeway_sandbox.kubernetes import errors
from leeway_sandbox.kubernetes.errors import Cause
from leeway_sandbox.kubernetes.field_rules import NOT_NEGATIVE
from leeway_sandbox.kubernetes.objects import Object
from leeway_sandbox.kubernetes.quantities import milli

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
