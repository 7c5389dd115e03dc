"""Cuts an answer into pages, for the calls whose pages moto lacks."""

from collections.abc import Sequence


def page[Item](
    items: Sequence[Item], limit: int | str | None, token: str | None
) -> tuple[Sequence[Item], str | None]:
    """At most `limit` items from where `token` points, and the token of the next page.

    Without a limit, all of them. ValueError for a token that no page gave.
    """
    start = int(token) if token else 0
    end = start + int(limit) if limit else len(items)
    return items[start:end], str(end) if end < len(items) else None
