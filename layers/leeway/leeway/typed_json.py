"""Pydantic type adapters, built at the first use and then cached."""

from functools import cache
from typing import Any, cast

from pydantic import TypeAdapter


def adapter_of[T](kind: type[T]) -> TypeAdapter[T]:
    """Return the adapter of a type. Building an adapter takes milliseconds, so it is built neither
    at import nor in every step."""
    adapter: TypeAdapter[T] = _built(cast("Any", kind))
    return adapter


@cache
def _built(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
