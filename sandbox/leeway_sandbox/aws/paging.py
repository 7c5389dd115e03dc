"""Splits answers into pages, for calls that moto answers at once."""

from collections.abc import Sequence


def page[Item](
    items: Sequence[Item], limit: int | str | None, token: str | None
) -> tuple[Sequence[Item], str | None]:
    """Return at most `limit` items from the position of `token`, and the token of the next page.

    Without a limit it returns all items. ValueError for an invalid token.
    """
    start = int(token) if token else 0
    end = start + int(limit) if limit else len(items)
    return items[start:end], str(end) if end < len(items) else None
