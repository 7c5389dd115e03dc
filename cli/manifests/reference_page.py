"""Renders a reference page for each kind, field by field, from its schema."""

import json
from collections.abc import Iterator
from typing import Any

from leeway.durations import render_duration
from leeway.manifests.kinds import Kind
from leeway.policy.rules import DEFAULTS, ChurnCap

from cli.manifests.json_schema import Schema, schema_of

_SET_BY_SERVER = frozenset({"status"})
_FIRST_IN_METADATA = ("name", "namespace", "labels", "annotations", "resourceVersion")


def page_of(kind: Kind) -> str:
    """Render a kind's page as Markdown."""
    schema = schema_of(kind)
    lines = [
        f"# {kind.name}",
        "",
        f"`apiVersion: {kind.api_version}`, `kind: {kind.name}`. {schema.get('description', '')}",
        "",
        "`leeway schema -o markdown` generates this page from the model of the manifests.",
        "",
        "| field | type | default | description |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {' | '.join(row)} |" for row in _rows(schema, schema, "")]
    if kind.name == "Cluster":
        lines += ["", *_default_policies()]
    return "\n".join(lines) + "\n"


def _rows(node: Schema, root: Schema, path: str) -> Iterator[tuple[str, str, str, str]]:
    node = _resolved(node, root)
    required = set(node.get("required", ()))
    for name, given in node.get("properties", {}).items():
        if (not path and name in _SET_BY_SERVER) or (
            path == "metadata" and name not in _FIRST_IN_METADATA
        ):
            continue
        at = f"{path}.{name}" if path else name
        below, suffix = _below(given, root)
        described = given.get("description") or _resolved(given, root).get("description", "")
        default = "required" if name in required else _default(given)
        yield f"`{at}`", _type_of(given, root), default, _cell(described)
        if below is not None and path.count(".") < _DEEPEST:
            yield from _rows(below, root, f"{at}{suffix}")


_DEEPEST = 8


def _resolved(node: Schema, root: Schema) -> Schema:
    """Follow references and drop the alternative null."""
    while True:
        if "$ref" in node:
            node = root["$defs"][node["$ref"].rpartition("/")[2]]
            continue
        choices = [c for c in node.get("anyOf", ()) if c.get("type") != "null"]
        if len(choices) == 1:
            node = choices[0]
            continue
        return node


def _below(node: Schema, root: Schema) -> tuple[Schema | None, str]:
    """Return the nested object with fields, and the suffix of its path."""
    resolved = _resolved(node, root)
    if resolved.get("type") == "array":
        found, suffix = _below(resolved.get("items", {}), root)
        return found, f"[]{suffix}"
    if isinstance(resolved.get("additionalProperties"), dict):
        found, suffix = _below(resolved["additionalProperties"], root)
        return found, f".*{suffix}"
    return (resolved, "") if "properties" in resolved else (None, "")


def _type_of(node: Schema, root: Schema) -> str:
    resolved = _resolved(node, root)
    if "const" in resolved:
        return f"`{resolved['const']}`"
    if "enum" in resolved:
        return ", ".join(f"`{value}`" for value in resolved["enum"])
    if resolved.get("type") == "array":
        return f"list of {_type_of(resolved.get('items', {}), root)}"
    if isinstance(resolved.get("additionalProperties"), dict):
        return f"map of {_type_of(resolved['additionalProperties'], root)}"
    if "anyOf" in resolved:
        return " or ".join(dict.fromkeys(_type_of(choice, root) for choice in resolved["anyOf"]))
    if "(ms|s|m|h)" in resolved.get("pattern", ""):
        return "duration"
    return {
        "string": "text",
        "integer": _bounded("whole number", resolved),
        "number": _bounded("number", resolved),
        "boolean": "`true`, `false`",
        "object": "object",
    }.get(str(resolved.get("type")), "anything")


def _bounded(what: str, node: Schema) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        return f"{what}, {low} to {high}"
    return what if low is None else f"{what}, at least {low}"


def _default(node: Schema) -> str:
    value: Any = node.get("default")
    if value is None or isinstance(value, (dict, list)):
        return ""
    return f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _default_policies() -> Iterator[str]:
    """Render the table of default policies."""
    yield "## Default policies"
    yield ""
    yield "| notice | action | deadline | lead | replacement | onBlocked |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for kind, policy in DEFAULTS.items():
        within = render_duration(policy.within) if policy.within else "from the notice"
        lead = render_duration(policy.lead) if policy.lead else ""
        words = [f"`{kind}`", f"`{policy.action}`", within, lead]
        words += [f"`{policy.replacement}`", f"`{policy.on_blocked}`"]
        yield f"| {' | '.join(words)} |"
    cap = ChurnCap()
    yield ""
    yield (
        f"`churn`: {cap.percent} % of the nodes, at least {cap.at_least}, within"
        f" {render_duration(cap.within)}."
    )
