"""Label and field selectors, parsed into predicates.

Rules: Kubernetes' "Labels and Selectors" and "Field Selectors". Each kind has a fixed list of
selectable fields; another field is refused with 400.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from leeway_sandbox.kubernetes import errors
from leeway_sandbox.kubernetes.objects import Object, at

type LabelTest = Callable[[Mapping[str, str]], bool]
type ObjectTest = Callable[[Object], bool]

_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "events": _EVENT_FIELDS,
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "replicasets": ("status.replicas",),
    "jobs": ("status.successful",),
}
_REQUIREMENT = re.compile(
    r"\s*(?:(?P<absent>!)\s*)?(?P<key>[A-Za-z0-9._/-]+)\s*"
    r"(?:(?P<operator>==|=|!=)\s*(?P<value>[A-Za-z0-9._-]*)"
    r"|(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?\s*(?:,|$)"
)


def _requirement(key: str, operator: str, values: frozenset[str]) -> LabelTest:
    if operator == "In":
        return lambda labels: labels.get(key) in values
    if operator == "NotIn":
        return lambda labels: labels.get(key) not in values
    if operator == "Exists":
        return lambda labels: key in labels
    if operator == "DoesNotExist":
        return lambda labels: key not in labels
    if operator in ("Gt", "Lt"):
        limit = int(next(iter(values)))
        sign = 1 if operator == "Gt" else -1
        return lambda labels: (
            labels.get(key, "").lstrip("-").isdigit() and (int(labels[key]) - limit) * sign > 0
        )
    raise errors.bad_request(f'"{operator}" is not a valid label selector operator')


def _all(tests: list[LabelTest]) -> LabelTest:
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def parse_labels(text: str) -> LabelTest | None:
    """Parse the `labelSelector` parameter; None if it selects everything, 400 if malformed."""
    if not text.strip():
        return None
    tests = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise errors.bad_request(f"unable to parse requirement: found '{text[position:]}'")
        position = match.end()
        key = match["key"]
        if match["set"]:
            operator = "In" if match["set"] == "in" else "NotIn"
            values = frozenset(value.strip() for value in match["values"].split(","))
        elif match["operator"]:
            operator = "NotIn" if match["operator"] == "!=" else "In"
            values = frozenset((match["value"],))
        else:
            operator = "DoesNotExist" if match["absent"] else "Exists"
            values = frozenset()
        tests.append(_requirement(key, operator, values))
    return _all(tests)


def label_selector(selector: Object | None) -> LabelTest:
    """Compile a `LabelSelector`: None selects nothing, an empty one everything."""
    if selector is None:
        return lambda _labels: False
    equal = selector.get("matchLabels") or {}
    tests = [_requirement(key, "In", frozenset((value,))) for key, value in equal.items()]
    tests += requirements(selector.get("matchExpressions"))
    return _all(tests) if tests else lambda _labels: True


def requirements(expressions: list[Object] | None) -> list[LabelTest]:
    """Compile match expressions, of label selectors or of node selector terms."""
    return [
        _requirement(one["key"], one["operator"], frozenset(one.get("values") or ()))
        for one in expressions or ()
    ]


def format_selector(selector: Object | None) -> str:
    """Return the string form of a `LabelSelector`, for `/scale` and tables."""
    selector = selector or {}
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or ():
        key, operator = one["key"], one["operator"]
        if operator in ("In", "NotIn"):
            parts.append(f"{key} {operator.lower()} ({','.join(sorted(one['values']))})")
        else:
            parts.append(key if operator == "Exists" else f"!{key}")
    return ",".join(parts)


def field_value(obj: Object, path: str) -> str:
    """Return a field as selectors compare it: a string, empty if it is not set."""
    if path == "source":
        value: Any = at(obj, "source.component") or obj.get("reportingComponent")
    else:
        value = at(obj, path)
    if value is None:
        return "false" if path in ("spec.hostNetwork", "spec.unschedulable") else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_fields(plural: str, text: str) -> tuple[list[tuple[str, str, bool]], ObjectTest | None]:
    """Parse the `fieldSelector` parameter of a kind.

    Returns its requirements as (path, value, wanted), for indexes, and the predicate, which is None
    if it selects everything. 400 for a field that is not selectable.
    """
    terms: list[tuple[str, str, bool]] = []
    allowed = ("metadata.name", "metadata.namespace", *_FIELDS.get(plural, ()))
    for term in filter(None, text.split(",")):
        path, operator, value = _split_term(term)
        if path not in allowed:
            raise errors.bad_request(f"field label not supported: {path}")
        terms.append((path, value, operator != "!="))
    if not terms:
        return [], None
    return terms, lambda obj: all(
        (field_value(obj, path) == value) is wanted for path, value, wanted in terms
    )


def _split_term(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        path, found, value = term.partition(operator)
        if found:
            return path.strip(), operator, value.strip()
    raise errors.bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
