"""Leeway's own values as JSON: results of steps, records of the table, outcomes.

msgspec reads and writes them, since it prepares a dataclass in a hundredth of the time that
pydantic takes. A pydantic model among them, which checks more, is read by pydantic.
"""

from datetime import datetime
from functools import cache
from threading import Lock
from typing import Annotated, Any, cast

from msgspec import Meta, MsgspecError, convert, to_builtins
from msgspec.json import Decoder, Encoder
from pydantic import BaseModel, ValidationError

type Aware = Annotated[datetime, Meta(tz=True)]
"""A time with its time zone."""


class BadValue(ValueError):
    """The JSON is not such a value. The message names the field and what was expected."""


def dumps(value: Any) -> bytes:
    """Write a value as JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump_json().encode()
    return _ENCODER.encode(value)


def loads[T](kind: type[T], content: str | bytes) -> T:
    """Read a value from JSON.

    Raises:
        BadValue: the JSON is not such a value.
    """
    try:
        if isinstance(kind, type) and issubclass(kind, BaseModel):  # tuple[str, ...] is no type
            return kind.model_validate_json(content)
        return decoder_of(kind).decode(content)
    except ValidationError as error:
        raise BadValue(_problem(error)) from error
    except MsgspecError as error:
        raise BadValue(str(error)) from error


def to_plain(value: Any) -> Any:
    """Return a value as maps, lists, text and numbers."""
    return to_builtins(value, enc_hook=_of_model)


def from_plain[T](kind: type[T], value: Any) -> T:
    """Return the value of maps, lists, text and numbers.

    Raises:
        BadValue: they are not such a value.
    """
    decoder_of(kind)  # what msgspec knows of the kind is built there, by one thread at a time
    try:
        return convert(value, kind)
    except MsgspecError as error:
        raise BadValue(str(error)) from error


def decoder_of[T](kind: type[T]) -> Decoder[T]:
    """Return the decoder of a kind of value, which is built once, as what pydantic needs to read a
    model."""
    decoder: Decoder[T] = _decoder(cast("Any", kind))
    return decoder


# msgspec publishes what it knows of a class before it is complete: a second thread that builds a
# decoder of that class meanwhile crashes the process (SIGSEGV, observed with msgspec 0.22).
_building = Lock()


@cache
def _decoder(kind: Any) -> Decoder[Any]:
    with _building:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind.model_rebuild()
        return Decoder(kind, dec_hook=_to_model)


def _to_model(kind: type[Any], value: Any) -> Any:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ValueError(_problem(error)) from error


def _of_model(value: Any) -> Any:
    return value.model_dump(mode="json")


_ENCODER = Encoder(enc_hook=_of_model)


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
