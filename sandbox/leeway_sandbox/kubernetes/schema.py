"""Finds unknown fields, values of a wrong type and values that a server omits, by lightkube's
generated models.

A server drops unknown fields with a warning, or refuses them with `fieldValidation=Strict`. It
cannot decode a value of a wrong type. It omits null, empty lists, maps and texts, and `false` and 0
in fields that do not tell them from a missing value.
"""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from typing import Any

import msgspec

from leeway_sandbox.kubernetes import errors
from leeway_sandbox.kubernetes.objects import Object
from leeway_sandbox.kubernetes.quantities import milli
from leeway_sandbox.kubernetes.registry import Kind

_TEXTS = frozenset(("labels", "annotations", "nodeSelector", "matchLabels", "data"))
_QUANTITIES = frozenset(("limits", "requests", "capacity", "allocatable", "overhead"))
_OMITTED_IF_FALSE = frozenset(
    (
        "globalDefault",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "paused",
        "publishNotReadyAddresses",
        "readOnly",
        "stdin",
        "stdinOnce",
        "tty",
        "unschedulable",
    )
)
_OMITTED_IF_ZERO = frozenset(
    (
        "failureThreshold",
        "hostPort",
        "initialDelaySeconds",
        "minReadySeconds",
        "nodePort",
        "periodSeconds",
        "readyReplicas",
        "successThreshold",
        "unavailableReplicas",
        "updatedReplicas",
    )
)
# A claim without a class is not a claim of the default class; an Event shows both names.
_SHOWN_IF_EMPTY = frozenset(("reportingComponent", "reportingInstance", "storageClassName"))
_JSON_NAMES = {bool: "bool", int: "number", float: "number", str: "string", dict: "object"}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field: the model or types of its values, whether it is a list, whether it is required."""

    model: type[Any] | None
    types: tuple[type[Any], ...]
    is_list: bool
    required: bool = False


_FIELDS: dict[type[Any], dict[str, Field]] = {}


def fields(model: type[Any]) -> dict[str, Field]:
    """Return a model's fields by their JSON names."""
    if model not in _FIELDS:
        _FIELDS[model] = {
            field.encode_name: dataclasses.replace(_field(field.type), required=field.required)
            for field in msgspec.structs.fields(model)
        }
    return _FIELDS[model]


def _field(hint: Any) -> Field:
    options = [
        option
        for option in (typing.get_args(hint) if _is_union(hint) else (hint,))
        if option is not type(None)
    ]
    if typing.get_origin(options[0]) is list:
        inner = _field(typing.get_args(options[0])[0])
        return Field(inner.model, inner.types, is_list=True)
    if isinstance(options[0], type) and issubclass(options[0], msgspec.Struct):
        return Field(options[0], (dict,), is_list=False)
    plain = tuple(_plain(option) for option in options)
    return Field(None, plain, is_list=False)


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _plain(option: Any) -> type[Any]:
    if option is datetime.datetime:
        return str
    return option if isinstance(option, type) else dict


def prune(kind: Kind, obj: Object) -> list[str]:
    """Remove unknown fields in place and return their paths; 400 for a value of a wrong type."""
    if kind.custom is not None:
        return kind.custom.prune(obj)
    unknown: list[str] = []
    _prune_object(kind, kind.model, obj, "", unknown)
    return unknown


def _prune_object(kind: Kind, model: type[Any], obj: Object, path: str, unknown: list[str]) -> None:
    known = fields(model)
    for name in list(obj):
        where = f"{path}.{name}" if path else name
        field = known.get(name)
        if field is None:
            unknown.append(where)
            del obj[name]
            continue
        value = obj[name]
        if value is None:
            continue
        if field.is_list:
            if not isinstance(value, list):
                raise _undecodable(kind, where, value, "list")
            for index, item in enumerate(value):
                _prune_value(kind, field, item, f"{where}[{index}]", unknown)
        else:
            _prune_value(kind, field, value, where, unknown)


def _prune_value(kind: Kind, field: Field, value: Any, where: str, unknown: list[str]) -> None:
    if field.model is not None:
        if not isinstance(value, dict):
            raise _undecodable(kind, where, value, field.model.__name__)
        _prune_object(kind, field.model, value, where, unknown)
        return
    if field.types == (dict,) and isinstance(value, dict):
        _check_map(kind, where, value)
    accepted = (*field.types, int) if float in field.types else field.types
    fits = isinstance(value, accepted) and (type(value) is not bool or bool in accepted)
    # A quantity can be a number in JSON, but the models have strings for quantities.
    if not fits and not (str in accepted and type(value) in (int, float) and "imit" in where):
        expected = " or ".join(_JSON_NAMES.get(one, "object") for one in field.types)
        raise _undecodable(kind, where, value, expected)


def _check_map(kind: Kind, where: str, value: Object) -> None:
    """Check the values of a map by its name: strings, or quantities."""
    name = where.rpartition(".")[2]
    for key, one in value.items():
        if name in _TEXTS and not isinstance(one, str):
            raise _undecodable(kind, f"{where}.{key}", one, "string")
        if name in _QUANTITIES:
            try:
                milli(one)
            except ValueError as error:
                raise errors.bad_request(
                    f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                    "quantities must match the regular expression "
                    "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                ) from error


def omit_zeros(kind: Kind, obj: Object) -> None:
    """Remove the values that a server omits, in place; it omits none of a custom resource, nor of
    a definition, whose `status: {}` means something."""
    if kind.custom is None and kind.kind != "CustomResourceDefinition":
        _omit_zeros(kind.model, obj)


def _omit_zeros(model: type[Any], obj: Object) -> None:
    known = fields(model)
    for name, value in list(obj.items()):
        field = known.get(name)
        if field is None:
            continue
        if not field.required and _is_omitted(field, name, value):
            del obj[name]
        elif field.model is not None:
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, dict):
                    _omit_zeros(field.model, one)


def _is_omitted(field: Field, name: str, value: Any) -> bool:
    if value is None:
        return not name.endswith(("Time", "Timestamp"))
    if isinstance(value, bool):
        return not value and name in _OMITTED_IF_FALSE
    if isinstance(value, int):
        return value == 0 and name in _OMITTED_IF_ZERO
    if isinstance(value, dict):
        return not value and field.model is None
    return value in ("", []) and name not in _SHOWN_IF_EMPTY


def _undecodable(kind: Kind, where: str, value: Any, expected: str) -> errors.ApiError:
    found = _JSON_NAMES.get(type(value), "array")
    return errors.bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: json: '
        f"cannot unmarshal {found} into Go struct field {kind.kind}.{where} of type {expected}"
    )
