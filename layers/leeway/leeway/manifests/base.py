"""The base of all manifests: apiVersion, kind, metadata, strict camelCase fields; their problems;
and the types of fields that several kinds have.

A problem has a file, a line, a field and one sentence."""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.resources import files
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from leeway.durations import parse_duration, render_duration
from leeway.headroom.windows import Cron, Window, parse_cron
from leeway.selection.labels import ALIASES, HOSTNAME, NODE_CLASS, NODEPOOL, WELL_KNOWN
from leeway.selection.resources import requested_quantity

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


class Wrong(ValueError):
    """A validator of a model raises it for a value below the model. `path` leads there."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


def at_annotation(name: str, *inside: str | int) -> Path:
    """Return the path of an annotation, or of a part of what it holds."""
    return ("metadata", "annotations", name, *inside)


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

_DOMAIN = GROUP.rstrip("/")
_SIMILAR_DOMAIN = 0.8
"""Minimum similarity of a domain to Leeway's for it to count as a typing error."""


def unknown_words(
    keys: Iterable[str], known: Collection[str], what: str, of: str
) -> Iterator[tuple[str, str]]:
    """Yield the keys of Leeway's domain, or of one that looks like it, that are not known, each
    with a warning: `what` (annotation or label) `of` something."""
    words = {one.rpartition("/")[2]: one for one in sorted(known)}
    for key in keys:
        domain, slash, word = key.partition("/")
        likeness = difflib.SequenceMatcher(None, domain.lower(), _DOMAIN).ratio()
        similar = likeness >= _SIMILAR_DOMAIN or domain.startswith("leeway.")
        if slash and similar and key not in known:
            found = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6)
            guess = f"; did you mean {words[found[0]]}?" if found else ""
            yield key, f"ignored: Leeway knows no {what} {key} of {of}{guess}"


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

    @model_validator(mode="before")
    @classmethod
    def _without_the_version_of_an_api_server(cls, given: Any) -> Any:
        """Drop the resourceVersion of an object that `kubectl get -o yaml` printed, which has a
        uid: it says nothing about the manifest that Leeway stores."""
        if isinstance(given, dict) and given.get("uid") is not None:
            return {key: value for key, value in given.items() if key != "resourceVersion"}
        return given


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

    known_annotations: ClassVar[frozenset[str]] = frozenset()
    """The annotations of Leeway's domain that the kind has."""

    summary_columns: ClassVar[tuple[str, ...]] = ()
    """The columns that `leeway get` prints for this kind, after the name."""

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        return ()

    def notes(self) -> tuple[Note, ...]:
        """Return the warnings about this manifest; a kind may add its own."""
        return (*_notes_on(self, ()), *self._unknown_words())

    def _unknown_words(self) -> Iterator[Note]:
        """Warn about annotations of Leeway's domain that nothing reads, and about labels: Leeway
        reads none of a manifest."""
        written, of = self.metadata, f"a {self.kind}"
        for key, why in unknown_words(
            written.annotations, self.known_annotations, "annotation", of
        ):
            yield Note(("metadata", "annotations", key), why)
        for key, why in unknown_words(written.labels, (), "label", of):
            meant = key in self.known_annotations
            more = f"; expected {key} in metadata.annotations" if meant else ""
            yield Note(("metadata", "labels", key), why + more)


def _notes_on(value: Any, path: Path) -> Iterator[Note]:
    if isinstance(value, TimeWindow) and (trap := value.window().trap()):
        yield Note(path, trap)
    if isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            if name not in value.model_fields_set:
                continue
            at = (*path, info.alias or name)
            marks = [m for m in info.metadata if isinstance(m, NotActedOn)]
            if marks:
                yield Note(at, f"ignored: {marks[0].why}")
            else:
                yield from _notes_on(getattr(value, name), at)
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _notes_on(member, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from _notes_on(member, (*path, index))


def _amount(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value
    return str(requested_quantity(str(value)))


Amount = Annotated[
    str,
    BeforeValidator(_amount),
    WithJsonSchema(
        {
            "type": ["string", "number"],
            "description": "A quantity such as 500m, 2 or 1Gi.",
        }
    ),
]
Amounts = dict[LabelKey, Amount]
"""A quantity for each resource: `cpu`, `memory`, `nvidia.com/gpu`, …"""


TagText = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Tags = dict[Annotated[TagText, StringConstraints(max_length=128)], TagText]


class SubnetTerm(Strict):
    """A subnet matches a term if it has the ID, or all of the tags."""

    tags: Tags = Field(default_factory=dict)
    """Tags of the subnet; the value `*` matches any value."""
    id: Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-z]+$")] | None = None
    """ID of the subnet; the only field of its term."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.tags) == (self.id is not None):
            raise ValueError("expected either tags or id in a term")
        return self


class CapacityReservationTerm(Strict):
    """A capacity reservation matches a term if it meets every field of the term."""

    tags: Tags = Field(default_factory=dict)
    """Tags of the reservation; the value `*` matches any value."""
    id: Annotated[str, StringConstraints(pattern=r"^cr-[0-9a-z]+$")] | None = None
    """ID of the reservation, which may be a Capacity Block; the only field of its term."""
    owner_id: Annotated[
        str | None, StringConstraints(pattern=r"^[0-9]{12}$"), Field(alias="ownerID")
    ] = None
    """Account that owns the reservation, if it is shared with this one."""
    instance_match_criteria: Literal["open", "targeted"] | None = None
    """Which launches the reservation accepts. A term without id and tags selects only reservations
    whose tags name the cluster."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        others = bool(self.tags or self.owner_id or self.instance_match_criteria)
        if self.id is not None and others:
            raise ValueError("expected id alone, or a combination of the other fields")
        if self.id is None and not (self.tags or self.instance_match_criteria):
            raise ValueError("expected tags, id or instanceMatchCriteria in a term")
        return self


class SecurityGroupTerm(Strict):
    """A security group matches a term if it has the ID, the name, or all of the tags."""

    tags: Tags = Field(default_factory=dict)
    """Tags of the security group; the value `*` matches any value."""
    id: Annotated[str, StringConstraints(pattern=r"^sg-[0-9a-z]+$")] | None = None
    """ID of the security group; the only field of its term."""
    name: Annotated[str, StringConstraints(min_length=1, max_length=255)] | None = None
    """Name of the security group (not its `Name` tag); the only field of its term."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum((bool(self.tags), self.id is not None, self.name is not None)) != 1:
            raise ValueError("expected exactly one of tags, id and name in a term")
        return self


SubnetTerms = Annotated[tuple[SubnetTerm, ...], Field(min_length=1, max_length=30)]
SecurityGroupTerms = Annotated[tuple[SecurityGroupTerm, ...], Field(min_length=1, max_length=30)]


def _cron(value: Any) -> Any:
    return parse_cron(value) if isinstance(value, str) else value


_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def _cron_or_descriptor(value: Any) -> Any:
    return _cron(_DESCRIPTORS.get(value, value)) if isinstance(value, str) else value


def _timezone(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in _zones():
        raise ValueError(
            "expected a time zone of the IANA database such as Europe/Berlin"
            + near_miss(value[:64], _zones())
        )
    return ZoneInfo(value)


@cache
def _zones() -> frozenset[str]:
    """Return the names in the layer's copy of the database. The machine that checks a manifest may
    have others, and some file systems ignore case; the functions would not find these names."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


CronExpression = Annotated[
    Cron,
    BeforeValidator(_cron),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\S+ +\S+ +\S+ +\S+ +\S+$",
            "description": "A cron expression: minute, hour, day of month, month, day of week.",
        }
    ),
]
BudgetSchedule = Annotated[
    Cron,
    BeforeValidator(_cron_or_descriptor),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^(\S+ +\S+ +\S+ +\S+ +\S+|{'|'.join(_DESCRIPTORS)})$",
            "description": "A cron expression of five fields, or a descriptor such as @daily.",
        }
    ),
]
"""The schedule of a disruption budget; Karpenter accepts descriptors there, too."""
TimeZone = Annotated[
    ZoneInfo,
    BeforeValidator(_timezone),
    WithJsonSchema(
        {
            "type": "string",
            "description": "A time zone of the IANA database, for example Europe/Berlin.",
        }
    ),
]


class TimeWindow(Strict):
    """A recurring window of time."""

    timezone: TimeZone
    """Time zone of `start` and `end`: a name of the IANA database."""
    start: CronExpression
    """When the window opens: a cron expression of five fields."""
    end: CronExpression
    """When the window closes: a cron expression of five fields. The window does not include this
    minute."""

    @model_validator(mode="after")
    def _begins_and_ends(self) -> Self:
        if self.start.fields == self.end.fields:
            raise ValueError("expected start and end to differ")
        return self

    def window(self, replicas: int = 1) -> Window:
        """Return it with a number of replicas."""
        return Window(self.timezone, self.start, self.end, replicas)


NO_PLACEMENT_GROUPS = "Leeway launches no nodes in placement groups"

_RESTRICTED = ("kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws")
_FREE = ("node.kubernetes.io", "node-restriction.kubernetes.io", "kops.k8s.io")

_OF_PLACEMENT_GROUPS = frozenset(
    {"karpenter.k8s.aws/placement-group-id", "karpenter.k8s.aws/placement-group-partition"}
)


def check_pool_label(key: str) -> str:
    """Refuse a label that a pool may not set.

    Raises:
        ValueError: a pool may not set it.
    """
    if key in _OF_PLACEMENT_GROUPS:
        raise ValueError(f"expected another label than {key}: {NO_PLACEMENT_GROUPS}")
    if key in {NODEPOOL, HOSTNAME} or ALIASES.get(key) == NODEPOOL:
        raise ValueError(f"expected another label: Leeway sets {key} on every node")
    if key in WELL_KNOWN or key in ALIASES or key == NODE_CLASS:
        return key
    domain, slash, _ = key.partition("/")
    if slash and domain.endswith(_RESTRICTED) and not domain.endswith(_FREE):
        near = difflib.get_close_matches(key, sorted(WELL_KNOWN), n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"expected a well-known label or a label of your own domain, got {key}{guess}"
        )
    return key
