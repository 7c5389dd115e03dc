"""Pydantic's readers and writers of plain types, built when first used and then kept."""

from functools import cache
from typing import Any, cast

from pydantic import TypeAdapter


def adapter_of[T](kind: type[T]) -> TypeAdapter[T]:
    """Return the adapter of a type: building one takes milliseconds, which is too long at import
    and far too long for every step."""
    adapter: TypeAdapter[T] = _built(cast("Any", kind))
    return adapter


@cache
def _built(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
