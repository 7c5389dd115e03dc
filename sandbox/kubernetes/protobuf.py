"""Reads the few objects that kubectl sends as protobuf: deletions, evictions, reviews.

Rules: Kubernetes' protobuf envelope (magic bytes, then `runtime.Unknown`) and the field numbers
of its generated.proto files. Answers are JSON always, which every client accepts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sandbox.kubernetes import errors
from sandbox.kubernetes.objects import Object

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# A field is its name and what it holds: text, a number, a truth, texts, or fields of its own.
type _Fields = dict[int, tuple[str, Any]]

_METADATA: _Fields = {1: ("name", str), 2: ("generateName", str), 3: ("namespace", str)}
_DELETE_OPTIONS: _Fields = {
    1: ("gracePeriodSeconds", int),
    2: ("preconditions", {1: ("uid", str), 2: ("resourceVersion", str)}),
    3: ("orphanDependents", bool),
    4: ("propagationPolicy", str),
    5: ("dryRun", list),
}
_RESOURCE: _Fields = {
    1: ("namespace", str),
    2: ("verb", str),
    3: ("group", str),
    4: ("version", str),
    5: ("resource", str),
    6: ("subresource", str),
    7: ("name", str),
}
_ACCESS: _Fields = {
    1: ("resourceAttributes", _RESOURCE),
    2: ("nonResourceAttributes", {1: ("path", str), 2: ("verb", str)}),
}
_KINDS: dict[str, _Fields] = {
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: ("metadata", _METADATA), 2: ("deleteOptions", _DELETE_OPTIONS)},
    "SelfSubjectReview": {},
    "SelfSubjectAccessReview": {2: ("spec", _ACCESS)},
    "SelfSubjectRulesReview": {2: ("spec", {1: ("namespace", str)})},
    "SubjectAccessReview": {2: ("spec", {**_ACCESS, 3: ("user", str), 4: ("groups", list)})},
}
_ENVELOPE: _Fields = {1: ("type", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)}


def read(body: bytes) -> Object:
    """Read an object; 415 for a kind that is not known here, 400 for what is no protobuf."""
    if not body.startswith(_MAGIC):
        raise errors.bad_request("provided data does not appear to be a protobuf message")
    try:
        envelope = _message(body[len(_MAGIC) :], _ENVELOPE)
        kind = envelope["type"]["kind"]
        if kind not in _KINDS:
            raise errors.unsupported_media_type()
        return {**envelope["type"], **_message(envelope.get("raw", b""), _KINDS[kind])}
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"malformed protobuf: {error}") from error


def _message(data: bytes, fields: _Fields) -> Object:
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
