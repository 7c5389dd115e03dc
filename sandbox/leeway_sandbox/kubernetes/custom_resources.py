"""Serves custom resources: the kinds of the CustomResourceDefinitions in the store.

Rules: Kubernetes documentation, "Extend the Kubernetes API with CustomResourceDefinitions". A
schema prunes, sets defaults, validates by OpenAPI and by CEL; each change of a spec raises the
generation; a definition that is deleted takes its objects along, and waits for their finalizers.
CEL has its standard functions, and of Kubernetes' library `find` and `split`, which the rules of
Karpenter's CRDs use; no cost limits. Rules with `oldSelf` do not reach into lists. Conversion
webhooks are not supported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from leeway_sandbox.kubernetes import errors
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.errors import Cause
from leeway_sandbox.kubernetes.objects import (
    Object,
    copy,
    encode,
    is_terminating,
    name_of,
    timestamp,
    with_condition,
)
from leeway_sandbox.kubernetes.registry import CUSTOM_RESOURCE_DEFINITION, KINDS, Kind
from leeway_sandbox.kubernetes.store import Change

_CLEAN_UP = "customresourcecleanup.apiextensions.k8s.io"
_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
_CHANGES = ("get", "patch", "update")
_TYPES: dict[str, tuple[type[Any], ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
_ANYTHING = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_RULES = "x-kubernetes-validations"


class CustomSchema:
    """The schema of one version of a definition."""

    def __init__(self, schema: Object) -> None:
        self._schema = schema
        self._programs: dict[str, Any] = {}

    def prune(self, obj: Object) -> list[str]:
        """Remove the fields that the schema does not have, in place; return their paths."""
        unknown: list[str] = []
        for section in list(obj):
            if section not in ("apiVersion", "kind", "metadata"):
                known = self._schema.get("properties", {}).get(section)
                if known is None and not self._schema.get(_ANYTHING):
                    unknown.append(section)
                    del obj[section]
                elif known is not None:
                    _prune(known, obj[section], section, unknown)
        return unknown

    def fill(self, obj: Object) -> None:
        """Set the defaults, in place, and drop nulls of fields that have one."""
        for section in ("spec", "status"):
            known = self._schema.get("properties", {}).get(section)
            if known is not None:
                if section not in obj and "default" in known:
                    obj[section] = copy({"": known["default"]})[""]
                if section in obj:
                    _fill(known, obj[section])

    def causes(self, new: Object, old: Object | None) -> Iterator[Cause]:
        """Yield what is wrong with an object. CEL is asked only if the shape is right."""
        known = {name: value for name, value in new.items() if name != "metadata"}
        found = list(_shape(self._schema, known, ""))
        if found:
            yield from found
            return
        yield from self._rules(self._schema, known, old, "")

    def _rules(self, schema: Object, value: Any, old: Any, path: str) -> Iterator[Cause]:
        for rule in schema.get(_RULES) or ():
            if "oldSelf" in rule["rule"] and old is None:
                continue
            why = self._broken(rule, value, old)
            if why:
                yield errors.value_invalid(path, _type_name(value), why)
        if isinstance(value, dict):
            for name, one in value.items():
                below = _below(schema, name)
                before = old.get(name) if isinstance(old, dict) else None
                yield from self._rules(below, one, before, f"{path}.{name}" if path else name)
        elif isinstance(value, list):
            for index, one in enumerate(value):
                yield from self._rules(schema.get("items") or {}, one, None, f"{path}[{index}]")

    def _broken(self, rule: Object, value: Any, old: Any) -> str:
        """Return the message of a rule that does not hold, empty if it holds."""
        # The import takes a second, because it loads a command line: import it only if needed.
        import cel

        text = rule["rule"]
        if text not in self._programs:
            self._programs[text] = cel.compile(text)
        context = cel.Context({"self": value} | ({"oldSelf": old} if old is not None else {}))
        context.add_function("find", _find)
        context.add_function("split", str.split)
        try:
            holds = self._programs[text].execute(context)
        except (RuntimeError, TypeError, ValueError) as error:
            return f"rule evaluation error: {error}"
        return "" if holds is True else str(rule.get("message") or f"failed rule: {text}")


def _find(text: str, pattern: str) -> str:
    """Return the first match; empty without one. Source: Kubernetes documentation, "Common
    Expression Language in Kubernetes", its regex library."""
    found = re.search(pattern, text)
    return found.group() if found else ""


def _below(schema: Object, name: str) -> Object:
    found: Object = (schema.get("properties") or {}).get(name) or schema.get(
        "additionalProperties", {}
    )
    return found if isinstance(found, dict) else {}


def _prune(schema: Object, value: Any, path: str, unknown: list[str]) -> None:
    if isinstance(value, list):
        for index, one in enumerate(value):
            _prune(schema.get("items") or {}, one, f"{path}[{index}]", unknown)
    if not isinstance(value, dict):
        return
    for name in list(value):
        where = f"{path}.{name}"
        if name in (schema.get("properties") or {}) or "additionalProperties" in schema:
            _prune(_below(schema, name), value[name], where, unknown)
        elif not schema.get(_ANYTHING):
            unknown.append(where)
            del value[name]


def _fill(schema: Object, value: Any) -> None:
    if isinstance(value, list):
        for one in value:
            _fill(schema.get("items") or {}, one)
    if not isinstance(value, dict):
        return
    for name, known in (schema.get("properties") or {}).items():
        if value.get(name, value) is None and not known.get("nullable"):
            del value[name]
        if name not in value and "default" in known:
            value[name] = copy({"": known["default"]})[""]
    for name, one in value.items():
        _fill(_below(schema, name), one)


def _has_type(value: Any, kind: str | None) -> bool:
    if kind is None:
        return True
    return isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")


def _type_name(value: Any) -> str:
    return next((name for name, types in _TYPES.items() if isinstance(value, types)), "null")


def _shape(schema: Object, value: Any, path: str) -> Iterator[Cause]:
    """Yield how a value differs from the OpenAPI part of its schema."""
    if schema.get(_INT_OR_STRING):
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            yield _wrong_type(path, value, "integer or string")
            return
    elif not _has_type(value, schema.get("type")):
        yield _wrong_type(path, value, schema["type"])
        return
    yield from _bounds(schema, value, path)
    if isinstance(value, dict):
        for name in schema.get("required") or ():
            if name not in value:
                yield errors.value_required(f"{path}.{name}" if path else name)
        for name, one in value.items():
            yield from _shape(_below(schema, name), one, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _shape(schema.get("items") or {}, one, f"{path}[{index}]")


def _bounds(schema: Object, value: Any, path: str) -> Iterator[Cause]:
    if "enum" in schema and value not in schema["enum"]:
        yield errors.value_unsupported(path, str(value), schema["enum"])
    choices = schema.get("anyOf")
    if choices and all(list(_shape(one, value, path)) for one in choices):
        yield errors.value_invalid(path, encode(value).decode(), "should match one of anyOf")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        why = f"should match '{schema['pattern']}'"
        yield errors.value_invalid(path, encode(value).decode(), f"{path} in body {why}")
    for low, high, size, what in (
        ("minLength", "maxLength", len(value) if isinstance(value, str) else None, "chars long"),
        ("minItems", "maxItems", len(value) if isinstance(value, list) else None, "items"),
        ("minProperties", "maxProperties", len(value) if isinstance(value, dict) else None, "keys"),
        ("minimum", "maximum", value if type(value) in (int, float) else None, ""),
    ):
        if size is None:
            continue
        if schema.get(low, size) > size:
            why = f"{path} in body should be at least {schema[low]} {what}".rstrip()
            yield errors.value_invalid(path, encode(value).decode(), why)
        if schema.get(high, size) < size:
            why = f"{path} in body should be at most {schema[high]} {what}".rstrip()
            yield errors.value_invalid(path, encode(value).decode(), why)


def _wrong_type(path: str, value: Any, kind: str) -> Cause:
    why = f'{path} in body must be of type {kind}: "{_type_name(value)}"'
    cause = errors.value_invalid(path, f'"{_type_name(value)}"', why)
    return {**cause, "reason": "FieldValueTypeInvalid"}


class CustomResources:
    """Serves and removes kinds as definitions come and go."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._served: dict[str, list[Kind]] = {}

    def start(self) -> None:
        """Start to watch the definitions."""
        self._store.listen(CUSTOM_RESOURCE_DEFINITION, self._changed)
        self._store.listen(None, self._object_changed)

    def _changed(self, change: Change) -> None:
        definition = change.object
        if change.type == "DELETED":
            self._serve(name_of(definition), [])
        elif is_terminating(definition):
            self._empty(name_of(definition))
        elif change.previous is None or change.previous["spec"] != definition["spec"]:
            self._serve(name_of(definition), _kinds_of(definition))
            self._store.replace(CUSTOM_RESOURCE_DEFINITION, _established(definition))

    def _serve(self, name: str, kinds: list[Kind]) -> None:
        for kind in self._served.pop(name, ()):
            KINDS.pop((kind.group, kind.version, kind.plural), None)
        for kind in kinds:
            KINDS[kind.group, kind.version, kind.plural] = kind
        if kinds:
            self._served[name] = kinds

    def _object_changed(self, change: Change) -> None:
        """End a definition when its last object is gone."""
        if change.type == "DELETED" and change.kind.definition:
            found = self._store.get(CUSTOM_RESOURCE_DEFINITION, "", change.kind.definition)
            if found is not None and is_terminating(found):
                self._empty(change.kind.definition)

    def _empty(self, name: str) -> None:
        kinds = self._served.get(name, [])
        for kind in kinds[:1]:
            for obj in list(self._store.every(kind)):
                if not is_terminating(obj):
                    delete(self._cluster, kind, obj)
            if any(True for _ in self._store.every(kind)):
                return
        found = self._store.get(CUSTOM_RESOURCE_DEFINITION, "", name)
        if found is not None:
            self._store.remove(CUSTOM_RESOURCE_DEFINITION, found)


def _kinds_of(definition: Object) -> list[Kind]:
    """Return a kind for each served version, the stored one first."""
    spec, names = definition["spec"], definition["spec"]["names"]
    versions = [one for one in spec["versions"] if one["served"]]
    return [
        Kind(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            namespaced=spec["scope"] == "Namespaced",
            model=dict,
            verbs=_VERBS,
            subresources=dict.fromkeys(
                version.get("subresources") or (), ("get", "patch", "update")
            ),
            definition=name_of(definition),
            custom=CustomSchema(version["schema"]["openAPIV3Schema"]),
            names=names,
            columns=tuple(version.get("additionalPrinterColumns") or ()),
            replicas=_replicas_of(version.get("subresources") or {}),
        )
        for version in sorted(versions, key=lambda one: not one["storage"])
    ]


def _replicas_of(subresources: Object) -> tuple[str, ...]:
    """Return the fields of `statusReplicasPath`, a JSON path without arrays."""
    path = (subresources.get("scale") or {}).get("statusReplicasPath", ".status.replicas")
    return tuple(path.lstrip(".").split("."))


def _established(definition: Object) -> Object:
    spec = definition["spec"]
    status = definition.get("status") or {}
    conditions = status.get("conditions")
    for kind, reason, message in (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ):
        condition = {"type": kind, "status": "True", "lastTransitionTime": timestamp()}
        condition |= {"reason": reason, "message": message}
        conditions = with_condition(conditions, condition)
    stored = [one["name"] for one in spec["versions"] if one["storage"]]
    metadata = {**definition["metadata"], "finalizers": [_CLEAN_UP]}
    accepted = {"acceptedNames": spec["names"], "storedVersions": stored}
    return {**definition, "metadata": metadata, "status": {**accepted, "conditions": conditions}}


def check_definition(definition: Object) -> Iterator[Cause]:
    """Yield what is wrong with a definition: its name, its versions, or a schema that is not
    structural."""
    spec = definition["spec"]
    name = f"{spec['names']['plural']}.{spec['group']}"
    if name_of(definition) != name:
        why = 'must be spec.names.plural+"."+spec.group'
        yield errors.value_invalid("metadata.name", f'"{name_of(definition)}"', why)
    if sum(one["storage"] for one in spec["versions"]) != 1:
        why = "must have exactly one version marked as storage version"
        yield errors.value_invalid("spec.versions", "", why)
    for index, version in enumerate(spec["versions"]):
        at = f"spec.validation.openAPIV3Schema[{index}]"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            yield errors.value_required(at, "schemas are required")
        else:
            yield from _structural(schema, at)


_ONLY_VALUES = ("type", "default", "description", "nullable", "additionalProperties", "title")


def _structural(schema: Object, path: str, inside: bool = False) -> Iterator[Cause]:
    """Yield where a schema is not structural. Source: "Specifying a structural schema"."""
    if inside:
        for field in set(_ONLY_VALUES) & schema.keys():
            yield errors.value_forbidden(f"{path}.{field}", "must be empty to be structural")
    elif "type" not in schema and not schema.get(_INT_OR_STRING) and not schema.get(_ANYTHING):
        yield errors.value_required(f"{path}.type", "must not be empty for specified fields")
    if "properties" in schema and "additionalProperties" in schema:
        yield errors.value_forbidden(f"{path}.additionalProperties", "mutual exclusive")
    if "$ref" in schema or schema.get("uniqueItems"):
        yield errors.value_forbidden(path, "$ref and uniqueItems are not supported")
    for name, below in (schema.get("properties") or {}).items():
        yield from _structural(below, f"{path}.properties[{name}]", inside)
    for field in ("items", "additionalProperties"):
        if isinstance(schema.get(field), dict):
            yield from _structural(schema[field], f"{path}.{field}", inside)
    # Those of an integer or string name its two types.
    choices = ("anyOf", "allOf", "oneOf") if not schema.get(_INT_OR_STRING) else ()
    for field in choices:
        for index, below in enumerate(schema.get(field) or ()):
            yield from _structural(below, f"{path}.{field}[{index}]", inside=True)
