"""Validate a document: the result is a manifest, or a problem for each wrong field."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from leeway.manifests.base import DROPPED, Manifest
from leeway.manifests.kinds import Kind, UnknownKind, attribute, find_kind, model_of
from leeway.manifests.problems import Note, Path, Problem, near_miss
from leeway.selection.reading.objects import shown


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of a converter: the manifest in the current version, and warnings whose paths
    refer to the manifest as written."""

    manifest: Manifest
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """A valid manifest.

    `manifest` is the manifest as written, `meant` the same in the current version (for most kinds
    the same object). `body` is the JSON to store: the document without fields of API servers.
    """

    kind: Kind
    manifest: Manifest
    meant: Manifest
    body: str
    source: str
    line: int

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.manifest.metadata.name

    @property
    def namespace(self) -> str:
        """Namespace of the object; empty for kinds without namespaces."""
        return (self.manifest.metadata.namespace or "default") if self.kind.namespaced else ""

    @property
    def title(self) -> str:
        """The name in the form that kubectl prints: `cluster.leeway.sh/prod`."""
        return f"{self.kind.resource}/{self.name}"


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A valid manifest with its warnings, or the problems that make it invalid."""

    written: Written | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def interpret(document: Any, source: str, line_of: Callable[[Path], int]) -> Interpreted:
    """Validate one document; `line_of` returns the line of a path, 0 if the line is not known."""

    def problem(path: Path, message: str) -> Problem:
        return Problem(source, line_of(path), path, message)

    def refused(*problems: Problem) -> Interpreted:
        return Interpreted(None, problems)

    if not isinstance(document, dict):
        return refused(problem((), f"expected a manifest, got {shown(document)}"))
    for name in ("apiVersion", "kind"):
        if not isinstance(document.get(name), str) or not document[name]:
            return refused(problem((name,), "expected text; this field is required"))
    try:
        kind = find_kind(document["apiVersion"], document["kind"])
    except UnknownKind as error:
        return refused(problem((error.field,), str(error)))
    body = _kept(document)
    model = model_of(kind)
    try:
        # Validated as JSON: strict mode accepts text for enums and durations only in JSON.
        manifest = model.model_validate_json(json.dumps(document))
        meant = _meant(kind, manifest)
    except ValidationError as error:
        found = _findings(error)
        return refused(*(problem(*_explained(one, document, model)) for one in found))
    written = Written(kind, manifest, meant.manifest, body, source, line_of(()))
    notes = [*manifest.notes(), *meant.notes]
    return Interpreted(written, (), tuple(problem(note.path, note.message) for note in notes))


def _meant(kind: Kind, manifest: Manifest) -> Converted:
    if not kind.converter:
        return Converted(manifest)
    converted: Converted = attribute(kind.converter)(manifest)
    return converted


def _kept(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    kept = {key: value for key, value in document.items() if key != "status"}
    if isinstance(metadata, dict):
        kept["metadata"] = {k: v for k, v in metadata.items() if k not in DROPPED}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def _findings(error: ValidationError) -> list[Any]:
    """Return pydantic's errors, except lists that are too short because an item is wrong."""
    found = error.errors(include_url=False)
    return [
        one
        for one in found
        if one["type"] != "too_short"
        or not any(
            other is not one and other["loc"][: len(one["loc"])] == one["loc"] for other in found
        )
    ]


def _explained(error: Any, document: Any, model: type[BaseModel]) -> tuple[Path, str]:
    """Render one of pydantic's errors: the path in the document, and what was expected there."""
    missing = error["type"] == "missing"
    path = _in_document(error["loc"], document, missing)
    given = "" if missing else f", got {shown(error['input'])}"
    match error["type"]:
        case "missing":
            return path, "is missing"
        case "extra_forbidden":
            name = str(path[-1])
            return path, f"unknown field{near_miss(name, _fields_at(model, path[:-1]))}"
        case "literal_error" | "enum":
            return path, f"expected {error['ctx']['expected']}{given}"
        case "value_error" | "assertion_error":
            said = str(error["ctx"]["error"])
            told = ", got " in said or isinstance(error["input"], (dict, list))
            return path, said if told else f"{said}{given}"
        case "string_pattern_mismatch":
            return path, f"expected text that matches {error['ctx']['pattern']}{given}"
        case kind if kind in _EXPECTED:
            limits = error.get("ctx", {})
            given = f", got {limits['actual_length']}" if "actual_length" in limits else given
            return path, f"expected {_EXPECTED[kind].format_map(limits)}{given}"
        case _:
            said = error["msg"][0].lower() + error["msg"][1:]
            return path, f"{said.replace('input should be ', 'expected ')}{given}"


_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "greater_than_equal": "at least {ge}",
    "int_type": "a whole number",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} character(s)",
    "string_type": "text, in quotes",
    "time_delta_type": "a duration such as 90s or 1h30m",
    "too_long": "at most {max_length} item(s)",
    "too_short": "at least {min_length} item(s)",
    "tuple_type": "a list",
}
"""What was expected, by the type of pydantic's error."""


def _in_document(loc: Sequence[str | int], document: Any, missing: bool) -> Path:
    """Return pydantic's location without the parts that are not in the document: the names of a
    union's members."""
    path: list[str | int] = []
    value = document
    steps = loc[:-1] if missing else loc
    for part in steps:
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        path.append(part)
    return (*path, loc[-1]) if missing else tuple(path)


def _fields_at(model: type[BaseModel], path: Path) -> set[str]:
    """Return the names of the fields at a path of a model."""
    models = {model}
    for part in path:
        below: set[type[BaseModel]] = set()
        for one in models:
            fields = {field.alias or name: field for name, field in one.model_fields.items()}
            if part in fields:
                below |= _models_in(fields[str(part)].annotation)
        # A position in a list or a key of a map has the models that were found for the list or map.
        models = below or models
    return {f.alias or name for one in models for name, f in one.model_fields.items()}


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    found: set[type[BaseModel]] = set()
    for argument in get_args(annotation):
        found |= _models_in(argument)
    return found
