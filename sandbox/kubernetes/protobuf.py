"""Reads what kubectl sends as protobuf: deletions, evictions, reviews, and what it creates.

Rules: Kubernetes' protobuf envelope (magic bytes, then `runtime.Unknown`) and the field numbers
of its generated.proto files. Answers are JSON always, which every client accepts.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from sandbox.kubernetes import errors, protobuf_kinds
from sandbox.kubernetes.objects import Object
from sandbox.kubernetes.protobuf_kinds import Fields, Named, Number, Sent, Several

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


_METADATA: Fields = {1: ("name", str), 2: ("generateName", str), 3: ("namespace", str)}
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
_KINDS: dict[str, Fields] = {
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: ("metadata", _METADATA), 2: ("deleteOptions", _DELETE_OPTIONS)},
    "SelfSubjectReview": {},
    "SelfSubjectAccessReview": {2: ("spec", _ACCESS)},
    "SelfSubjectRulesReview": {2: ("spec", {1: ("namespace", str)})},
    "SubjectAccessReview": {2: ("spec", {**_ACCESS, 3: ("user", str), 4: ("groups", list)})},
}
_ENVELOPE: Fields = {1: ("type", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)}


def read(body: bytes) -> Object:
    """Read an object; 415 for a kind that is not known here, 400 for what is no protobuf."""
    if not body.startswith(_MAGIC):
        raise errors.bad_request("provided data does not appear to be a protobuf message")
    try:
        envelope = _message(body[len(_MAGIC) :], _ENVELOPE)
        kind, raw = envelope["type"]["kind"], envelope.get("raw", b"")
        if kind in _KINDS:
            return {**envelope["type"], **_message(raw, _KINDS[kind])}
        if kind in protobuf_kinds.KINDS:
            return {**envelope["type"], **_created(raw, protobuf_kinds.KINDS[kind])}
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"malformed protobuf: {error}") from error
    raise errors.unsupported_media_type()


def _created(data: bytes, fields: Fields) -> Object:
    """Read an object that shall be created; 415 for a field that is not known here."""
    result: Object = {}
    for number, value in _values(data):
        if number not in fields:
            raise errors.unsupported_media_type()
        name, holds = fields[number]
        match holds:
            case Sent():
                if holds.holds is not None and (read := _value(value, holds.holds)):
                    result[name] = read
            case Several():
                result.setdefault(name, []).append(_created(value, holds.holds))
            case Named():
                pair = dict(_values(value))
                result.setdefault(name, {})[pair[1].decode()] = _value(pair[2], holds.holds)
            case Number():
                pair = dict(_values(value))
                result[name] = pair[3].decode() if pair.get(1) else _signed(pair.get(2, 0))
            case _ if holds is list:
                result.setdefault(name, []).append(value.decode())
            case _:
                result[name] = _value(value, holds)
    return result


def _value(value: Any, holds: Any) -> Any:
    if isinstance(holds, dict):
        return _created(value, holds)
    if holds is str:
        return value.decode()
    if holds is bytes:
        return base64.b64encode(value).decode()
    return _signed(value) if holds is int else holds(value)


def _signed(value: int) -> int:
    """Read a varint as the 64-bit number that it stands for, which may be negative."""
    return value - 2**64 if value >= 2**63 else value


def _message(data: bytes, fields: Fields) -> Object:
    result: Object = {}
    for number, value in _values(data):
        if number not in fields:
            continue
        name, holds = fields[number]
        if isinstance(holds, dict):
            result[name] = _message(value, holds)
        elif holds is list:
            result.setdefault(name, []).append(value.decode())
        else:
            result[name] = value.decode() if holds is str else holds(value)
    return result


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
