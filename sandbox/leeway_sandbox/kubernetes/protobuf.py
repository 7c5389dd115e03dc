"""Reads protobuf bodies of kubectl: deletions, evictions, reviews, new bindings and namespaces.

Format: Kubernetes' protobuf envelope (magic bytes, then `runtime.Unknown`) and the field numbers of
its generated.proto files. The server always answers JSON, which every client accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leeway_sandbox.kubernetes import errors
from leeway_sandbox.kubernetes.objects import Object

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

# Number → name and type of a field: str, int, bool, bytes, `list` (of strings), `dict` (a map of
# strings), a message (its fields), or a list of messages.
type Fields = dict[int, tuple[str, Any]]

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_METADATA: Fields = {
    1: ("name", str),
    2: ("generateName", str),
    3: ("namespace", str),
    4: ("selfLink", str),
    5: ("uid", str),
    6: ("resourceVersion", str),
    7: ("generation", int),
    8: ("creationTimestamp", {}),
    11: ("labels", dict),
    12: ("annotations", dict),
    14: ("finalizers", list),
}
_DELETE_OPTIONS: Fields = {
    1: ("gracePeriodSeconds", int),
    2: ("preconditions", {1: ("uid", str), 2: ("resourceVersion", str)}),
    3: ("orphanDependents", bool),
    4: ("propagationPolicy", str),
    5: ("dryRun", list),
}
_RESOURCE: Fields = {
    1: ("namespace", str),
    2: ("verb", str),
    3: ("group", str),
    4: ("version", str),
    5: ("resource", str),
    6: ("subresource", str),
    7: ("name", str),
}
_ACCESS: Fields = {
    1: ("resourceAttributes", _RESOURCE),
    2: ("nonResourceAttributes", {1: ("path", str), 2: ("verb", str)}),
}
_SUBJECT: Fields = {1: ("kind", str), 2: ("apiGroup", str), 3: ("name", str), 4: ("namespace", str)}
_BINDING: Fields = {
    1: ("metadata", _METADATA),
    2: ("subjects", [_SUBJECT]),
    3: ("roleRef", {1: ("apiGroup", str), 2: ("kind", str), 3: ("name", str)}),
}
# Unknown fields are ignored, as a server ignores them.
_REQUESTS: dict[str, Fields] = {
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: ("metadata", _METADATA), 2: ("deleteOptions", _DELETE_OPTIONS)},
    "ClusterRoleBinding": _BINDING,
    "Namespace": {1: ("metadata", _METADATA)},
    "RoleBinding": _BINDING,
    "SelfSubjectReview": {},
    "SelfSubjectAccessReview": {2: ("spec", _ACCESS)},
}
_ENVELOPE: Fields = {1: ("type", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)}


def read(body: bytes) -> Object:
    """Read an object; 415 for a kind that is not supported, 400 if it is no protobuf."""
    if not body.startswith(_MAGIC):
        raise errors.bad_request("provided data does not appear to be a protobuf message")
    try:
        envelope = _message(body[len(_MAGIC) :], _ENVELOPE)
        kind = envelope["type"]["kind"]
        if kind in _REQUESTS:
            return {**envelope["type"], **_message(envelope.get("raw", b""), _REQUESTS[kind])}
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"malformed protobuf: {error}") from error
    raise errors.unsupported_media_type()


def _message(data: bytes, fields: Fields) -> Object:
    result: Object = {}
    for number, value in _values(data):
        if number not in fields:
            continue
        name, holds = fields[number]
        if holds is dict:
            pair = dict(_values(value))
            result.setdefault(name, {})[pair[1].decode()] = pair[2].decode()
        elif holds is list:
            result.setdefault(name, []).append(value.decode())
        elif isinstance(holds, list):
            result.setdefault(name, []).append(_message(value, holds[0]))
        else:
            read = _value(value, holds)
            # Go writes other fields when they are empty. This one is a pointer: zero is a value.
            if read or name == "gracePeriodSeconds":
                result[name] = read
    return result


def _value(value: Any, holds: Any) -> Any:
    if isinstance(holds, dict):
        return _message(value, holds)
    if holds is str:
        return value.decode()
    return _signed(value) if holds is int else holds(value)


def _signed(value: int) -> int:
    """Read a varint as a signed 64-bit number."""
    return value - 2**64 if value >= 2**63 else value


def _values(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
        if wire == _BYTES:
            length, at = _varint(data, at)
        if at + length > len(data):
            raise IndexError("a field ends beyond the message")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
