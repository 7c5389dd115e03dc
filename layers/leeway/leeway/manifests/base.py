"""What every manifest has: apiVersion, kind, metadata, strict camelCase fields; and its problems.

A problem has a file, a line, a field and one sentence."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from leeway.durations import parse_duration, render_duration

type Path = tuple[str | int, ...]
"""A place in a document: keys and list positions from the root."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error or warning. `line` counts from 1, and is 0 if the text is not available; an empty
    path means the whole document."""

    source: str
    line: int
    path: Path
    message: str

    @property
    def field(self) -> str:
        """The path as text; empty for the whole document."""
        return rendered(self.path)

    def __str__(self) -> str:
        """Render as `FILE:LINE: FIELD: MESSAGE`."""
        place = f"{self.source}:{self.line}" if self.line else self.source
        return ": ".join(part for part in (place, self.field, self.message) if part)


@dataclass(frozen=True, slots=True)
class Note:
    """A warning about one field."""

    path: Path
    message: str


def without(document: Any, paths: Iterable[Path]) -> Any:
    """Copy the document without the values at the paths; paths that do not exist are ignored."""
    dropped = set(paths)

    def copy(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            kept = {key: item for key, item in value.items() if (*path, key) not in dropped}
            return {key: copy(item, (*path, key)) for key, item in kept.items()}
        if isinstance(value, list):
            return [
                copy(item, (*path, index))
                for index, item in enumerate(value)
                if (*path, index) not in dropped
            ]
        return value

    return copy(document, ())


def rendered(path: Path) -> str:
    """Render a path as text: `spec.terms[0].tags["a/b"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif "." in part or "/" in part or not part:
            text += f'["{part}"]'
        else:
            text += f".{part}" if text else part
    return text


def too_large(size: int, most: int) -> str:
    """Render the message for a text that has too many bytes."""
    return f"too large: {size // 1024:,} KB; the limit is {most // 1024:,} KB"


def listed(words: Sequence[str]) -> str:
    """Render alternatives: `a, b or c`."""
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def near_miss(word: str, known: Iterable[str]) -> str:
    """Render `; did you mean X?`, or an empty text if no known word is similar."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""


GROUP = "leeway.sh/"
"""Prefix of Leeway's apiVersions and annotations."""


@dataclass(frozen=True, slots=True)
class NotActedOn:
    """Marks a field that the kind's schema has and Leeway ignores. A manifest that sets it gets a
    warning with the reason.

    Use it inside of Annotated: `spec.x: Annotated[Any, NotActedOn("the reason")] = None`.
    """

    why: str


def _duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(render_duration, return_type=str, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$",
            "description": "A duration, for example 90s, 30m or 1h30m.",
        }
    ),
]
"""A duration in Go's format: `90s`, `30m`, `1h30m`."""


def up_to(most: timedelta) -> Callable[[timedelta], timedelta]:
    """Make a validator that accepts durations above zero, up to `most`."""

    def check(value: timedelta) -> timedelta:
        if timedelta(0) < value <= most:
            return value
        raise ValueError(f"expected a duration above 0s and at most {render_duration(most)}")

    return check


def _is_address(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        raise ValueError("expected an IP address") from None
    # Python takes any text as an IPv6 scope.
    if "%" in text:
        raise ValueError("expected an IP address without a scope")
    return str(address)


IpAddress = Annotated[str, AfterValidator(_is_address), StringConstraints(max_length=45)]
"""An IPv4 or IPv6 address."""


class Strict(BaseModel):
    """Base of every object in a manifest: unknown fields and wrong types are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        defer_build=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )


_LABEL = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_KEY = re.compile(rf"(?:{_SUBDOMAIN}/)?{_LABEL}")

# Source: Kubernetes documentation, "Object Names and IDs" and "Labels and Selectors".
Name = Annotated[str, StringConstraints(pattern=rf"^{_SUBDOMAIN}$", max_length=253)]
"""The name of an object: a DNS subdomain."""


def _is_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError("expected a label key such as example.com/team or team")
    return key


LabelKey = Annotated[str, AfterValidator(_is_key), StringConstraints(max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=rf"^{_LABEL}?$")]
Labels = dict[LabelKey, LabelValue]

_BY_THE_SERVER = Field(default=None, exclude=True)


class Metadata(Strict):
    """Name, labels and annotations. Fields that an API server adds are accepted and dropped."""

    name: Name
    """Name of the object: lowercase letters, digits, `-` and `.`."""
    namespace: Name | None = None
    """Namespace of the object, for namespaced kinds; the default is `default`."""
    labels: Labels = {}
    """Labels. Leeway stores them and does not use them."""
    annotations: dict[LabelKey, str] = {}
    """Annotations. Leeway stores them; it uses only those that the documentation names."""
    resource_version: str | None = None
    """The stored version that this manifest was made from, as `leeway get -o yaml` prints it. If it
    is set, `leeway apply` writes the manifest only if the stored version is still this one."""
    creation_timestamp: Annotated[Any, _BY_THE_SERVER]
    deletion_grace_period_seconds: Annotated[Any, _BY_THE_SERVER]
    deletion_timestamp: Annotated[Any, _BY_THE_SERVER]
    finalizers: Annotated[Any, _BY_THE_SERVER]
    generation: Annotated[Any, _BY_THE_SERVER]
    managed_fields: Annotated[Any, _BY_THE_SERVER]
    owner_references: Annotated[Any, _BY_THE_SERVER]
    self_link: Annotated[Any, _BY_THE_SERVER]
    uid: Annotated[Any, _BY_THE_SERVER]


DROPPED = frozenset(
    field.alias or name
    for name, field in Metadata.model_fields.items()
    if field.exclude or name == "resource_version"
)
"""The metadata fields that Leeway does not store."""


class Manifest(Strict):
    """Base of every kind. A kind adds `spec`, and declares `apiVersion` and `kind` as Literals."""

    api_version: str
    """API group and version."""
    kind: str
    """Kind of the object."""
    metadata: Metadata
    """Name and other metadata of the object."""
    status: Annotated[Any, _BY_THE_SERVER]

    summary_columns: ClassVar[tuple[str, ...]] = ()
    """The columns that `leeway get` prints for this kind, after the name."""

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        return ()

    def notes(self) -> tuple[Note, ...]:
        """Return the warnings about this manifest; a kind may add its own."""
        return tuple(_not_acted_on(self, ()))


def _not_acted_on(value: Any, path: Path) -> Iterator[Note]:
    if isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            if name not in value.model_fields_set:
                continue
            at = (*path, info.alias or name)
            marks = [m for m in info.metadata if isinstance(m, NotActedOn)]
            if marks:
                yield Note(at, f"ignored: {marks[0].why}")
            else:
                yield from _not_acted_on(getattr(value, name), at)
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _not_acted_on(member, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _not_acted_on(member, (*path, index))
