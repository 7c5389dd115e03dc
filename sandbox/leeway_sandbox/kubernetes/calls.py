"""Parses a request to the API: verb, resource, object, user and body."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from leeway_sandbox.kubernetes import errors, protobuf, schema
from leeway_sandbox.kubernetes.authentication import User
from leeway_sandbox.kubernetes.objects import Object, decode
from leeway_sandbox.kubernetes.registry import DELETE_OPTIONS, KINDS, Kind

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclasses.dataclass(slots=True)
class Target:
    """The resource of a path; `name` is empty for a collection."""

    kind: Kind
    namespace: str
    name: str
    subresource: str


@dataclasses.dataclass(slots=True)
class Call:
    """A parsed request."""

    verb: str
    target: Target
    query: Mapping[str, str]
    user: User
    user_agent: str
    accept: str
    content_type: str
    body: bytes

    @property
    def kind(self) -> Kind:
        """Return the kind of the path."""
        return self.target.kind

    @property
    def resource(self) -> str:
        """Return "pods" or "pods/eviction"."""
        sub = self.target.subresource
        return f"{self.kind.plural}/{sub}" if sub else self.kind.plural

    @property
    def right(self) -> str:
        """Return the required permission: "create pods/eviction", "get daemonsets.apps"."""
        group = self.kind.group
        return f"{self.verb} {self.resource}.{group}" if group else f"{self.verb} {self.resource}"

    @property
    def dry_run(self) -> bool:
        """Whether the request is a dry run; 422 for an unknown value."""
        asked = self.query.get("dryRun", "")
        if asked not in ("", "All"):
            why = f'Unsupported value: "{asked}": supported values: "All"'
            cause = {"reason": "FieldValueNotSupported", "message": why, "field": "dryRun"}
            raise errors.invalid_options("PatchOptions", cause)
        return asked == "All"

    @property
    def manager(self) -> str:
        """Return the field manager: the parameter, or the user agent without its version."""
        return self.query.get("fieldManager") or self.user_agent.partition("/")[0] or "unknown"

    def number(self, name: str, default: int = 0) -> int:
        """Return an integer of the query; 400 if it is none."""
        text = self.query.get(name)
        try:
            return int(text) if text else default
        except ValueError as error:
            why = f'strconv.ParseInt: parsing "{text}": invalid syntax'
            raise errors.bad_request(why) from error

    def decoded(self) -> Any:
        """Return the decoded JSON or YAML body; 400 if it is neither."""
        return _decoded(self.content_type, self.body)

    def object(self) -> Object:
        """Return the body as an object; 415 for a format that the server does not support."""
        return read_object(self.content_type, self.body)

    def options(self) -> Object:
        """Return the `DeleteOptions` of a DELETE: the query parameters, overridden by the body."""
        options: Object = {}
        if "gracePeriodSeconds" in self.query:
            options["gracePeriodSeconds"] = self.number("gracePeriodSeconds")
        if "propagationPolicy" in self.query:
            options["propagationPolicy"] = self.query["propagationPolicy"]
        if self.body:
            options |= self.object()
        if self.dry_run:
            options["dryRun"] = ["All"]
        schema.prune(DELETE_OPTIONS, options)
        policy = options.get("propagationPolicy", "Background")
        if policy != "Background":
            why = f'Unsupported value: "{policy}": supported values: "Background"'
            field = "propagationPolicy"
            cause = {"reason": "FieldValueNotSupported", "message": why, "field": field}
            raise errors.invalid_options("DeleteOptions", cause)
        return options


def read_object(content_type: str, body: bytes) -> Object:
    """Parse a body that must be an object; 400 or 415 if it is none."""
    if content_type == protobuf.CONTENT_TYPE:
        return protobuf.read(body)
    if content_type not in ("", "application/json", "application/yaml"):
        raise errors.unsupported_media_type()
    decoded = _decoded(content_type, body)
    if not isinstance(decoded, dict):
        raise errors.bad_request("couldn't get version/kind; json parse error: no object")
    return decoded


def _decoded(content_type: str, body: bytes) -> Any:
    if content_type in ("application/yaml", "application/apply-patch+yaml"):
        try:
            return yaml.safe_load(body)
        except yaml.YAMLError as error:
            raise errors.bad_request(f"error decoding YAML: {error}") from error
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error


def target_of(path: str) -> Target | None:
    """Parse a path; None if it is no path of a resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        group, version, rest = "", parts[1] if len(parts) > 1 else "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 2:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if not rest:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (group, version, rest[2]) in KINDS:
        namespace, rest = rest[1], rest[2:]
    kind = KINDS.get((group, version, rest[0]))
    if kind is None or len(rest) > 3 or (kind.namespaced != bool(namespace) and len(rest) > 1):
        return None
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in kind.subresources:
        return None
    return Target(kind, namespace, name, subresource)


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """Return the verb of RBAC; 405 if there is none."""
    if method == "GET" and target.name:
        return "get"
    if method == "GET":
        return "watch" if query.get("watch") in ("1", "true") else "list"
    if method == "DELETE" and not target.name:
        return "deletecollection"
    verb = _VERBS.get(method)
    needs_name = method != "POST" or bool(target.subresource)
    if verb is None or needs_name != bool(target.name):
        raise errors.method_not_allowed()
    return verb
