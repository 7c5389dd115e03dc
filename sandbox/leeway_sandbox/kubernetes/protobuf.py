"""Reads the protobuf bodies that kubectl sends: deletions, evictions, reviews, `kubectl create`.

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
# strings), a message (its fields), a list of messages, INT_OR_STRING, or None (not read).
type Fields = dict[int, tuple[str, Any]]

INT_OR_STRING = "IntOrString"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Go writes other fields when they are empty. These are pointers: a zero is a value.
_POINTERS = frozenset(("replicas", "gracePeriodSeconds", "value"))

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
_SELECTOR: Fields = {1: ("matchLabels", dict)}
_CONTAINER: Fields = {
    1: ("name", str),
    2: ("image", str),
    3: ("command", list),
    4: ("args", list),
    5: ("workingDir", str),
    6: (
        "ports",
        [
            {
                1: ("name", str),
                2: ("hostPort", int),
                3: ("containerPort", int),
                4: ("protocol", str),
                5: ("hostIP", str),
            }
        ],
    ),
    8: ("resources", {}),
    13: ("terminationMessagePath", str),
    14: ("imagePullPolicy", str),
    16: ("stdin", bool),
    17: ("stdinOnce", bool),
    18: ("tty", bool),
    20: ("terminationMessagePolicy", str),
}
_POD_SPEC: Fields = {
    2: ("containers", [_CONTAINER]),
    3: ("restartPolicy", str),
    6: ("dnsPolicy", str),
    8: ("serviceAccountName", str),
    9: ("serviceAccount", str),
    10: ("nodeName", str),
    11: ("hostNetwork", bool),
    12: ("hostPID", bool),
    13: ("hostIPC", bool),
    16: ("hostname", str),
    17: ("subdomain", str),
    19: ("schedulerName", str),
    24: ("priorityClassName", str),
}
_DEPLOYMENT: Fields = {
    1: ("replicas", int),
    2: ("selector", _SELECTOR),
    3: ("template", {1: ("metadata", _METADATA), 2: ("spec", _POD_SPEC)}),
    4: ("strategy", {1: ("type", str)}),
    5: ("minReadySeconds", int),
    7: ("paused", bool),
}
_BUDGET: Fields = {
    1: ("minAvailable", INT_OR_STRING),
    2: ("selector", _SELECTOR),
    3: ("maxUnavailable", INT_OR_STRING),
}
_RULE: Fields = {
    1: ("verbs", list),
    2: ("apiGroups", list),
    3: ("resources", list),
    4: ("resourceNames", list),
    5: ("nonResourceURLs", list),
}
_ROLE: Fields = {1: ("metadata", _METADATA), 2: ("rules", [_RULE])}
_SUBJECT: Fields = {1: ("kind", str), 2: ("apiGroup", str), 3: ("name", str), 4: ("namespace", str)}
_BINDING: Fields = {
    1: ("metadata", _METADATA),
    2: ("subjects", [_SUBJECT]),
    3: ("roleRef", {1: ("apiGroup", str), 2: ("kind", str), 3: ("name", str)}),
}
# Unknown fields of these are ignored, as a server ignores them.
_REQUESTS: dict[str, Fields] = {
    "DeleteOptions": _DELETE_OPTIONS,
    "Eviction": {1: ("metadata", _METADATA), 2: ("deleteOptions", _DELETE_OPTIONS)},
    "SelfSubjectReview": {},
    "SelfSubjectAccessReview": {2: ("spec", _ACCESS)},
    "SelfSubjectRulesReview": {2: ("spec", {1: ("namespace", str)})},
}
# `kubectl create` sends these. An unknown field is refused, so that no part of an object is lost.
_OBJECTS: dict[str, Fields] = {
    "ClusterRole": _ROLE,
    "ClusterRoleBinding": _BINDING,
    "ConfigMap": {1: ("metadata", _METADATA), 2: ("data", dict)},
    "Deployment": {1: ("metadata", _METADATA), 2: ("spec", _DEPLOYMENT), 3: ("status", None)},
    "Namespace": {1: ("metadata", _METADATA), 2: ("spec", {}), 3: ("status", None)},
    "PodDisruptionBudget": {1: ("metadata", _METADATA), 2: ("spec", _BUDGET), 3: ("status", None)},
    "PriorityClass": {
        1: ("metadata", _METADATA),
        2: ("value", int),
        3: ("globalDefault", bool),
        4: ("description", str),
        5: ("preemptionPolicy", str),
    },
    "Role": _ROLE,
    "RoleBinding": _BINDING,
    "ServiceAccount": {1: ("metadata", _METADATA)},
}
_ENVELOPE: Fields = {1: ("type", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)}


def read(body: bytes) -> Object:
    """Read an object; 415 for a kind or a field that is not supported, 400 if it is no protobuf."""
    if not body.startswith(_MAGIC):
        raise errors.bad_request("provided data does not appear to be a protobuf message")
    try:
        envelope = _message(body[len(_MAGIC) :], _ENVELOPE)
        kind, raw = envelope["type"]["kind"], envelope.get("raw", b"")
        if kind in _REQUESTS:
            return {**envelope["type"], **_message(raw, _REQUESTS[kind])}
        if kind in _OBJECTS:
            return {**envelope["type"], **_message(raw, _OBJECTS[kind], strict=True)}
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"malformed protobuf: {error}") from error
    raise errors.unsupported_media_type()


def _message(data: bytes, fields: Fields, *, strict: bool = False) -> Object:
    result: Object = {}
    for number, value in _values(data):
        if number not in fields:
            if strict:
                raise errors.unsupported_media_type()
            continue
        name, holds = fields[number]
        if holds is dict:
            pair = dict(_values(value))
            result.setdefault(name, {})[pair[1].decode()] = pair[2].decode()
        elif holds is list:
            result.setdefault(name, []).append(value.decode())
        elif isinstance(holds, list):
            result.setdefault(name, []).append(_message(value, holds[0], strict=strict))
        elif holds is not None:
            read = _value(value, holds, strict=strict)
            if read or name in _POINTERS or holds == INT_OR_STRING:
                result[name] = read
    return result


def _value(value: Any, holds: Any, *, strict: bool) -> Any:
    if isinstance(holds, dict):
        return _message(value, holds, strict=strict)
    if holds == INT_OR_STRING:
        pair = dict(_values(value))
        return pair[3].decode() if pair.get(1) else _signed(pair.get(2, 0))
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
