"""Lists in pages."""

from collections.abc import Callable, Iterator

from lightkube import ApiError
from msgspec.json import Decoder

from leeway.kubernetes.connection import Connection, raise_for_status
from leeway.kubernetes.decoders import ObjectList, read_json

PAGE = 500
"""Objects per page."""

type Parameters = dict[str, str]


def list_objects[T](connection: Connection, path: str, pages: Decoder[ObjectList[T]]) -> list[T]:
    """List all objects of a path.

    Raises:
        ApiError, ValueError, MsgspecError: as `list_pages`, and for an answer that is no list.
    """

    def read(parameters: Parameters) -> ObjectList[T]:
        response = connection.plain.request("GET", path, params=parameters)
        raise_for_status(response)
        return read_json(response.content, pages)

    found: list[T] = []
    for first, page in list_pages(read, {}, PAGE):
        found = page.items if first else found + page.items
    return found


def list_pages[T](
    read: Callable[[Parameters], ObjectList[T]], selection: Parameters, limit: int
) -> Iterator[tuple[bool, ObjectList[T]]]:
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
