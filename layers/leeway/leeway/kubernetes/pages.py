"""Lists in pages."""

from collections.abc import Callable, Iterator
from typing import Protocol

from lightkube import ApiError

from leeway.kubernetes.decoders import ListMeta

type Parameters = dict[str, str]


class Page(Protocol):
    """A page of a list."""

    @property
    def metadata(self) -> ListMeta:
        """The version of the list, and the token of the next page."""
        ...


def list_pages[P: Page](
    read: Callable[[Parameters], P], selection: Parameters, limit: int
) -> Iterator[tuple[bool, P]]:
    """List with at most `limit` objects per page (0: in one page); yield (first, page).

    If the continue token has expired, list all objects again in one page, which is a first page
    again: another list in pages would expire again. Source: Kubernetes API, "Retrieving large
    results sets in chunks".

    Raises:
        ApiError: the API server answers with an error.
        ValueError: the list repeats its continue token.
    """
    parameters = selection | ({"limit": str(limit)} if limit else {})
    asked, first = parameters, True
    while True:
        try:
            page = read(asked)
        except ApiError as error:
            if error.response.status_code != 410 or asked == selection:
                raise
            parameters = asked = selection
            first = True
            continue
        yield first, page
        token = page.metadata.next_page
        if not token:
            return
        if token == asked.get("continue"):
            raise ValueError("the list repeats its continue token")
        asked, first = parameters | {"continue": token}, False
