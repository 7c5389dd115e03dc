"""A page for each kind: what may be written, field by field, from its schema."""

import json
from collections.abc import Iterator
from typing import Any

from leeway.durations import render_duration
from leeway.manifests.kinds import Kind
from leeway.policy.rules import DEFAULTS, ChurnCap

from cli.schemas import Schema, schema_of

_BY_SERVERS = frozenset({"status"})
_FIRST_IN_METADATA = ("name", "namespace", "labels", "annotations", "resourceVersion")


def page_of(kind: Kind) -> str:
    """Render a kind's page as Markdown."""
    schema = schema_of(kind)
    lines = [
        f"# {kind.name}",
        "",
        f"`apiVersion: {kind.api_version}`, `kind: {kind.name}`. {schema.get('description', '')}",
        "",
        "Made by `leeway schema -o markdown` from the model that reads the manifests; edit that.",
        "",
        "| field | what | default | |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {' | '.join(row)} |" for row in _rows(schema, schema, "")]
    if kind.name == "Cluster":
        lines += ["", *_default_policies()]
    return "\n".join(lines) + "\n"


def _rows(node: Schema, root: Schema, path: str) -> Iterator[tuple[str, str, str, str]]:
    node = _meant(node, root)
    required = set(node.get("required", ()))
    for name, given in node.get("properties", {}).items():
        if (not path and name in _BY_SERVERS) or (
            path == "metadata" and name not in _FIRST_IN_METADATA
        ):
            continue
        at = f"{path}.{name}" if path else name
        below, suffix = _below(given, root)
        described = given.get("description") or _meant(given, root).get("description", "")
        default = "required" if name in required else _default(given)
        yield f"`{at}`", _what(given, root), default, _cell(described)
        if below is not None and path.count(".") < _DEEPEST:
            yield from _rows(below, root, f"{at}{suffix}")


_DEEPEST = 8


def _meant(node: Schema, root: Schema) -> Schema:
    """Follow references, and leave out that it may be null."""
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
    """The object whose fields are to be told next, and how its path goes on."""
    meant = _meant(node, root)
    if meant.get("type") == "array":
        found, suffix = _below(meant.get("items", {}), root)
        return found, f"[]{suffix}"
    if isinstance(meant.get("additionalProperties"), dict):
        found, suffix = _below(meant["additionalProperties"], root)
        return found, f".*{suffix}"
    return (meant, "") if "properties" in meant else (None, "")


def _what(node: Schema, root: Schema) -> str:
    meant = _meant(node, root)
    if "const" in meant:
        return f"`{meant['const']}`"
    if "enum" in meant:
        return ", ".join(f"`{value}`" for value in meant["enum"])
    if meant.get("type") == "array":
        return f"list of {_what(meant.get('items', {}), root)}"
    if isinstance(meant.get("additionalProperties"), dict):
        return f"map of {_what(meant['additionalProperties'], root)}"
    if "anyOf" in meant:
        return " or ".join(dict.fromkeys(_what(choice, root) for choice in meant["anyOf"]))
    if "(ms|s|m|h)" in meant.get("pattern", ""):
        return "duration"
    return {
        "string": "text",
        "integer": _bounded("whole number", meant),
        "number": _bounded("number", meant),
        "boolean": "`true`, `false`",
        "object": "object",
    }.get(str(meant.get("type")), "anything")


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
    """The table of defaults, as the code has it."""
    yield "## What holds where nothing is written"
    yield ""
    yield "| notice | action | deadline | lead | replacement | onBlocked |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for kind, policy in DEFAULTS.items():
        within = render_duration(policy.within) if policy.within else "as the notice says"
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
