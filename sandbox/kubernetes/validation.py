"""The rules an object must keep: names, labels, taints, selectors, what can't be changed.

Rules: Kubernetes' API validation, as far as a client of nodes, pods, budgets and workloads meets
them. Errors come as the causes of one 422.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sandbox.kubernetes import errors, registry
from sandbox.kubernetes.errors import Cause
from sandbox.kubernetes.matching import label_selector
from sandbox.kubernetes.objects import Object, labels_of, name_of
from sandbox.kubernetes.registry import Kind

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
_HIGHEST_PRIORITY = 1_000_000_000  # of those that users may define
_LONGEST_LABEL = 63
_LONGEST_NAME = 253


def check(kind: Kind, new: Object, old: Object | None) -> None:
    """Hold an object to the rules of its kind; 422 with a cause for each broken one."""
    causes = [*_metadata(new), *_rules(kind, new)]
    if old is not None:
        causes += _changes(kind, new, old)
    if causes:
        raise errors.invalid(kind, name_of(new), causes)


def _metadata(obj: Object) -> Iterator[Cause]:
    name = name_of(obj)
    if len(name) > _LONGEST_NAME:
        yield errors.value_invalid("metadata.name", f'"{name}"', "must be no more than 253 bytes")
    # RBAC's names may hold colons, and nothing else of theirs is looked at here.
    elif not _SUBDOMAIN.fullmatch(name.replace(":", "-")):
        yield errors.value_invalid("metadata.name", f'"{name}"', _SUBDOMAIN_RULE)
    for key, value in labels_of(obj).items():
        prefix, _, named = key.rpartition("/")
        if not (named and _LABEL.fullmatch(named)) or (prefix and not _SUBDOMAIN.fullmatch(prefix)):
            yield errors.value_invalid("metadata.labels", f'"{key}"', _KEY_RULE)
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
    elif kind is registry.POD:
        yield from _containers(spec, "spec")
    elif kind is registry.PRIORITY_CLASS:
        if obj["value"] > _HIGHEST_PRIORITY and not name_of(obj).startswith("system-"):
            why = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
            yield errors.value_forbidden("value", why)
    elif kind is registry.BUDGET:
        if "minAvailable" in spec and "maxUnavailable" in spec:
            why = "minAvailable and maxUnavailable cannot be both set"
            yield errors.value_invalid("spec", "policy.PodDisruptionBudgetSpec", why)
    elif "template" in spec:
        yield from _workload(kind, spec)


def _taints(node: Object) -> Iterator[Cause]:
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        field = f"metadata.taints[{index}]"
        if not taint.get("key"):
            yield errors.value_required(f"{field}.key")
        yield from _label_value(f"{field}.value", taint.get("value", ""))
        if taint.get("effect") not in _EFFECTS:
            supported = ", ".join(f'"{effect}"' for effect in _EFFECTS)
            message = (
                f'Unsupported value: "{taint.get("effect", "")}": supported values: {supported}'
            )
            yield {
                "reason": "FieldValueNotSupported",
                "message": message,
                "field": f"{field}.effect",
            }


def _containers(spec: Object, field: str) -> Iterator[Cause]:
    if not spec.get("containers"):
        yield errors.value_required(f"{field}.containers")
    for index, container in enumerate(spec.get("containers") or ()):
        if not container.get("name"):
            yield errors.value_required(f"{field}.containers[{index}].name")
        if not container.get("image"):
            yield errors.value_required(f"{field}.containers[{index}].image")


def _workload(kind: Kind, spec: Object) -> Iterator[Cause]:
    template = spec["template"]
    yield from _containers(template.get("spec") or {}, "spec.template.spec")
    if kind is registry.JOB:
        return
    selector = spec.get("selector")
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selector:
        yield errors.value_required("spec.selector")
    elif not label_selector(selector)(labels):
        shown = "{" + ", ".join(f'"{key}":"{value}"' for key, value in labels.items()) + "}"
        why = "`selector` does not match template `labels`"
        yield errors.value_invalid("spec.template.metadata.labels", shown, why)
    if spec.get("replicas", 0) < 0:
        why = "must be greater than or equal to 0"
        yield errors.value_invalid("spec.replicas", str(spec["replicas"]), why)


def _changes(kind: Kind, new: Object, old: Object) -> Iterator[Cause]:
    if kind is registry.NODE:
        # An update is held to the rules of creation and to its own: a real server tells twice.
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
        yield from _pod_changes(new["spec"], old["spec"])


def _pod_changes(new: Object, old: Object) -> Iterator[Cause]:
    changeable = {
        "activeDeadlineSeconds",
        "containers",
        "initContainers",
        "nodeSelector",
        "schedulingGates",
        "terminationGracePeriodSeconds",
        "tolerations",
    }
    changed = {name for name in new.keys() | old.keys() if new.get(name) != old.get(name)}
    if changed - changeable or _without_images(new) != _without_images(old):
        why = (
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
            "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it "
            "to be set to 1 if it was previously negative)"
        )
        yield errors.value_forbidden("spec", why)


def _without_images(spec: Object) -> list[Object]:
    return [
        {name: value for name, value in container.items() if name != "image"}
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    ]
