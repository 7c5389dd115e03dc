"""Validates objects: names, labels, taints, selectors, immutable fields.

Rules: Kubernetes' API validation for nodes, pods, budgets and workloads. All errors are causes of
one 422.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from leeway_sandbox.kubernetes import errors, field_rules, registry, schema, workload_rules
from leeway_sandbox.kubernetes.errors import Cause
from leeway_sandbox.kubernetes.objects import Object, encode, labels_of, name_of
from leeway_sandbox.kubernetes.registry import Kind
from leeway_sandbox.kubernetes.selectors import label_selector

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
    if kind is registry.NODE:
        yield from _taints(obj)
    elif kind is registry.PRIORITY_CLASS:
        if obj["value"] > _HIGHEST_PRIORITY and not name_of(obj).startswith("system-"):
            why = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
            yield errors.value_forbidden("value", why)
    else:
        field = schema.fields(kind.model).get("spec")
        if field is not None and field.model is not None:
            yield from field_rules.check(field.model, spec, "spec")
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
    yield from workload_rules.pod_spec(template.get("spec") or {}, "spec.template.spec")
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
    return selector_model is not None and not any(field_rules.check(selector_model, selector, ""))


def _always_running(spec: Object) -> Iterator[Cause]:
    yield from _workload(spec)
    template = (spec.get("template") or {}).get("spec") or {}
    yield from workload_rules.restart_policy(template, ("Always",), "spec.template.spec")


def _deployment(spec: Object) -> Iterator[Cause]:
    yield from _always_running(spec)
    yield from workload_rules.deployment(spec)


def _daemon_set(spec: Object) -> Iterator[Cause]:
    yield from _always_running(spec)
    yield from workload_rules.daemon_set(spec)


_SPEC_RULES: dict[Kind, Callable[[Object], Iterable[Cause]]] = {
    registry.BUDGET: workload_rules.budget,
    registry.DAEMON_SET: _daemon_set,
    registry.DEPLOYMENT: _deployment,
    registry.POD: lambda spec: workload_rules.pod_spec(spec, "spec"),
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
        yield from workload_rules.pod_changes(new["spec"], old["spec"])
