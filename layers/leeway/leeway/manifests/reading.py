"""Read manifests: the table of kinds, the check of each field, and warnings.

`read_manifests` reads what users write, and converts superseded versions to v1. `read_stored` reads
what the table holds: v1.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from leeway.manifests.base import (
    DROPPED,
    Manifest,
    Path,
    Problem,
    Wrong,
    listed,
    near_miss,
    too_large,
    without,
)
from leeway.selection.reading.objects import shown

if TYPE_CHECKING:
    from leeway.manifests.documents import Value


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind in one version. `model` is `module:attribute` of this package, imported on first
    use.

    A superseded version has a `converter`, a function from the model to a document of v1 and
    warnings; `current` is the kind of that document if its name changed. A `singleton` exists at
    most once in a cluster, and has the cluster's name.
    """

    api_version: str
    name: str
    model: str
    plural: str
    short: tuple[str, ...] = ()
    singleton: bool = False
    namespaced: bool = False
    converter: str = ""
    current: str = ""

    @property
    def group(self) -> str:
        """API group: `leeway.sh` of `leeway.sh/v1`."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """The kind of the stored manifest in the form that kubectl prints: `cluster.leeway.sh`."""
        return self.current or f"{self.name.lower()}.{self.group}"

    @property
    def words(self) -> frozenset[str]:
        """All names that commands accept, in lower case."""
        names = {self.name.lower(), self.plural, *self.short}
        return frozenset(names | {f"{name}.{self.group}" for name in names})


_NODE_CLASS = ("ec2nodeclasses", ("ec2nc", "ec2ncs"))

KINDS: tuple[Kind, ...] = (
    Kind("leeway.sh/v1", "Cluster", "cluster:Cluster", "clusters", singleton=True),
    Kind("leeway.sh/v1", "Headroom", "headroom:Headroom", "headrooms"),
    Kind(
        "karpenter.sh/v1beta1",
        "NodePool",
        "old_versions:NodePoolV1Beta1",
        "nodepools",
        converter="old_versions:pool_of_v1beta1",
    ),
    Kind(
        "karpenter.k8s.aws/v1beta1",
        "EC2NodeClass",
        "old_versions:EC2NodeClassV1Beta1",
        *_NODE_CLASS,
        converter="old_versions:node_class_of_v1beta1",
    ),
    Kind("karpenter.sh/v1", "NodePool", "node_pool:NodePool", "nodepools"),
    Kind("karpenter.k8s.aws/v1", "EC2NodeClass", "node_class:EC2NodeClass", *_NODE_CLASS),
    Kind(
        "karpenter.sh/v1alpha1",
        "NodeOverlay",
        "node_overlay:NodeOverlay",
        "nodeoverlays",
        short=("overlays",),
    ),
    Kind(
        "karpenter.sh/v1alpha5",
        "Provisioner",
        "old_versions:Provisioner",
        "provisioners",
        converter="old_versions:pool_of_provisioner",
        current="nodepool.karpenter.sh",
    ),
    Kind(
        "karpenter.k8s.aws/v1alpha1",
        "AWSNodeTemplate",
        "old_versions:AWSNodeTemplate",
        "awsnodetemplates",
        converter="old_versions:node_class_of_template",
        current="ec2nodeclass.karpenter.k8s.aws",
    ),
    Kind(
        "keda.sh/v1alpha1",
        "ScaledObject",
        "scaled_object:ScaledObject",
        "scaledobjects",
        short=("so",),
        namespaced=True,
    ),
    *(
        Kind(
            f"autoscaling.x-k8s.io/{version}",
            "CapacityBuffer",
            "headroom:CapacityBuffer",
            "capacitybuffers",
            short=("cb",),
            namespaced=True,
        )
        for version in ("v1alpha1", "v1beta1")
    ),
)
"""Every supported kind; the latest of several versions comes last. A new kind needs a row here and
a model."""


class UnknownKind(ValueError):
    """No supported kind has this apiVersion and kind. The message lists the supported ones;
    `field` is the wrong field."""

    def __init__(self, message: str, field: str = "kind") -> None:
        super().__init__(message)
        self.field = field


def find_kind(api_version: str, name: str, stored: bool = False) -> Kind:
    """Find the kind of a document's apiVersion and kind; with `stored`, not a superseded one.

    Raises:
        UnknownKind: no supported kind has them.
    """
    kinds = [kind for kind in KINDS if not (stored and kind.converter)]
    for kind in kinds:
        if (kind.api_version, kind.name) == (api_version, name):
            return kind
    versions = [kind.api_version for kind in kinds if kind.name == name]
    if versions:
        message = f"expected {listed(versions)} for a {name}, got {api_version}"
        raise UnknownKind(message, "apiVersion")
    if (api_version.partition("/")[0], name) == ("eksctl.io", "ClusterConfig"):
        raise UnknownKind("expected manifests; `leeway convert -f` makes them of a ClusterConfig")
    names = sorted({kind.name for kind in kinds})
    guess = near_miss(name, names) or f"; expected {listed(names)}"
    raise UnknownKind(f"unknown kind {name} of {api_version}{guess}")


def kinds_called(word: str) -> tuple[Kind, ...]:
    """Find the kinds with a name such as `nodepools` or `nodepool.karpenter.sh`.

    Raises:
        UnknownKind: no supported kind has this name.
    """
    found = tuple(kind for kind in KINDS if word.lower() in kind.words)
    if not found:
        known = sorted({kind.plural for kind in KINDS})
        guess = near_miss(word, {w for kind in KINDS for w in kind.words if "." not in w})
        raise UnknownKind(f"unknown kind {word}{guess or f'; expected {listed(known)}'}")
    return found


def model_of(kind: Kind) -> type[Manifest]:
    """Import the model of a kind."""
    model: type[Manifest] = _attribute(kind.model)
    return model


@cache
def _attribute(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(f"leeway.manifests.{module}"), name)


@dataclass(frozen=True, slots=True)
class Written:
    """A valid manifest in its current version.

    `body` is its JSON, without the fields of API servers. `original` is the same for the manifest
    as the user wrote it, empty if that is `body`.
    """

    kind: Kind
    manifest: Manifest
    body: str
    source: str
    line: int
    original: str = ""

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
class Reading:
    """The manifests of a text with their problems. A caller that acts on `written` checks
    `problems` first."""

    written: tuple[Written, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    def __add__(self, other: "Reading") -> "Reading":
        return Reading(
            self.written + other.written,
            self.problems + other.problems,
            self.warnings + other.warnings,
        )


LARGEST = 350 * 1024
"""The most bytes of a manifest as compact JSON with aliases expanded, together with the manifest
that it was converted from. Both are one DynamoDB item, which holds at most 400 KB with its other
attributes."""


def read_manifests(text: str, source: str) -> Reading:
    """Read all manifests of a text; `source` names the text in problems."""
    # Functions read only stored manifests, which are JSON, and start without the YAML parser.
    from leeway.manifests.documents import read_documents

    documents = read_documents(text, source)
    reading = Reading(problems=documents.problems)
    for value in documents.values:
        for item in _items(value):
            reading += _read_item(item, source)
    return reading


def _read_item(item: "Value", source: str) -> Reading:
    if item.size > LARGEST:
        return Reading(problems=(Problem(source, item.line, (), too_large(item.size, LARGEST)),))
    return interpret(item.plain(), source, item.line_of)


def read_stored(body: str, source: str) -> Reading:
    """Read one stored manifest, which is JSON; problems have no line, and there are no warnings."""
    try:
        document = json.loads(body)
    except ValueError as error:
        return Reading(problems=(Problem(source, 0, (), f"not valid JSON: {error}"),))
    return interpret(document, source, stored=True, warn=False)


def read_salvaged(body: str, source: str) -> Reading:
    """Read one stored manifest without its wrong fields, and report these as problems: the valid
    part of a policy still applies."""
    reading = read_stored(body, source)
    if reading.written or not reading.problems:
        return reading
    try:
        document = without(json.loads(body), (problem.path for problem in reading.problems))
    except ValueError:
        return reading
    read = interpret(document, source, stored=True, warn=False)
    return Reading(read.written, reading.problems)


def _items(value: "Value") -> "Iterator[Value]":
    """Expand `kind: List`, which kubectl prints for several objects."""
    content = value.content
    if isinstance(content, dict) and "items" in content and "kind" in content:
        kind, items = content["kind"].content, content["items"].content
        if kind == "List" and isinstance(items, list):
            for item in items:
                yield from _items(item)
            return
    yield value


def interpret(
    document: Any,
    source: str,
    line_of: Callable[[Path], int] = lambda _: 0,
    *,
    stored: bool = False,
    warn: bool = True,
) -> Reading:
    """Validate one document; `line_of` returns the line of a path, 0 if the line is not known. A
    `stored` one must have the current version; others are converted. Without `warn`, warnings are
    left out: the search for those about windows takes far longer than everything else."""

    def problem(path: Path, message: str) -> Problem:
        return Problem(source, line_of(path), path, message)

    if not isinstance(document, dict):
        return Reading(problems=(problem((), f"expected a manifest, got {shown(document)}"),))
    for name in ("apiVersion", "kind"):
        if not isinstance(document.get(name), str) or not document[name]:
            return Reading(problems=(problem((name,), "expected text; this field is required"),))
    try:
        kind = find_kind(document["apiVersion"], document["kind"], stored)
    except UnknownKind as error:
        return Reading(problems=(problem((error.field,), str(error)),))
    body, original, model = _kept(document), "", model_of(kind)
    try:
        # Validated as JSON: strict mode accepts text for enums and durations only in JSON.
        manifest = model.model_validate_json(json.dumps(document))
        notes = manifest.notes() if warn else ()
        if kind.converter:
            converted, more = _attribute(kind.converter)(manifest)
            kind, notes = find_kind(converted["apiVersion"], converted["kind"]), (*notes, *more)
            manifest = model_of(kind).model_validate_json(json.dumps(converted))
            body, original = _kept(converted), body
            if (size := len((body + original).encode())) > LARGEST:
                return Reading(problems=(problem((), too_large(size, LARGEST)),))
    except ValidationError as error:
        return Reading(problems=tuple(problem(*one) for one in explained(error, document, model)))
    written = Written(kind, manifest, body, source, line_of(()), original)
    warnings = tuple(problem(note.path, note.message) for note in notes)
    return Reading((written,), warnings=warnings)


def _kept(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    kept = {key: value for key, value in document.items() if key != "status"}
    if isinstance(metadata, dict):
        kept["metadata"] = {k: v for k, v in metadata.items() if k not in DROPPED}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"))


def explained(
    error: ValidationError, document: Any, model: type[BaseModel]
) -> list[tuple[Path, str]]:
    """Return pydantic's errors about a document: the path of each, and what was expected there."""
    return [_explained(one, document, model) for one in _findings(error)]


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
            cause = error["ctx"]["error"]
            said = str(cause)
            if isinstance(cause, Wrong):
                path += cause.path
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
