"""What all manifests share: the envelope, strict fields in camelCase, and fields that only warn."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
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
from leeway.manifests.problems import Note, Path

GROUP = "leeway.sh/"
"""Prefix of Leeway's own apiVersions and annotations."""


@dataclass(frozen=True, slots=True)
class NotActedOn:
    """Marks a field that its schema has and Leeway does nothing about: one that is set warns.

    Use it inside of Annotated: `spec.x: Annotated[Any, NotActedOn("why, in a few words")] = None`.
    """

    why: str = "Leeway does not act on it"


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
            "description": "A duration such as 90s, 30m or 1h30m.",
        }
    ),
]
"""A duration as Go writes it: `90s`, `30m`, `1h30m`."""


def up_to(most: timedelta) -> Callable[[timedelta], timedelta]:
    """Make the validator of a duration that is more than nothing and no more than `most`."""

    def check(value: timedelta) -> timedelta:
        if timedelta(0) < value <= most:
            return value
        raise ValueError(f"expected more than 0s and at most {render_duration(most)}")

    return check


class Strict(BaseModel):
    """Base of everything in a manifest: an unknown field is an error, a wrong type too."""

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
"""An object's name: a DNS subdomain."""


def _is_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError("expected a label's key, such as example.com/team or team")
    return key


LabelKey = Annotated[str, AfterValidator(_is_key), StringConstraints(max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=rf"^{_LABEL}?$")]
Labels = dict[LabelKey, LabelValue]

_BY_THE_SERVER = Field(default=None, exclude=True)


class Metadata(Strict):
    """Who a manifest is. What an API server adds to one is taken, and dropped."""

    name: Name
    """The object's name: lowercase letters, digits, `-` and `.`."""
    namespace: Name | None = None
    """The namespace, for kinds that have one (default: `default`)."""
    labels: Labels = {}
    """Labels; Leeway keeps them and does not act on them."""
    annotations: dict[LabelKey, str] = {}
    """Annotations; Leeway keeps them and does not act on them."""
    resource_version: str | None = None
    """The version this was made from, as `leeway get` shows it. Where it is set, the manifest is
    only written if nobody has changed it since."""
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
"""What is not kept of a manifest's metadata."""


class Manifest(Strict):
    """Base of every kind. A kind adds `spec`, and says its `apiVersion` and `kind` as Literals."""

    api_version: str
    """The API group and version."""
    kind: str
    """The kind of the object."""
    metadata: Metadata
    """Who the object is."""
    status: Annotated[Any, _BY_THE_SERVER]

    summary_columns: ClassVar[tuple[str, ...]] = ()
    """What `leeway get` shows of this kind in a table, besides its name."""

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        return ()

    def notes(self) -> tuple[Note, ...]:
        """Return what the author of this manifest should know; a kind may add to it."""
        return tuple(_not_acted_on(self, ()))


def _not_acted_on(value: Any, path: Path) -> Iterator[Note]:
    if isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            if name not in value.model_fields_set:
                continue
            at = (*path, info.alias or name)
            marks = [m for m in info.metadata if isinstance(m, NotActedOn)]
            if marks:
                yield Note(at, marks[0].why)
            else:
                yield from _not_acted_on(getattr(value, name), at)
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _not_acted_on(member, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _not_acted_on(member, (*path, index))
