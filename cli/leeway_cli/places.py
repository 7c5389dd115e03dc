"""Runs a command in several accounts and regions: `--profile` and `--region`, each repeatable."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.output import Format, print_json, stdout_console
from leeway_cli.stack import TABLE

ProfilesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--profile", metavar="NAME", help="Read the account of this AWS profile. Repeatable."
    ),
]
RegionsOption = Annotated[
    list[str] | None,
    typer.Option("--region", metavar="REGION", help="Read this region. Repeatable."),
]

_OTHERS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_DEFAULT_PROFILE",
)
"""Variables that select other credentials before AWS_PROFILE. Source: botocore,
configprovider.py and credentials.py."""


@dataclass(frozen=True, slots=True)
class Place:
    """A region of an account; an empty field stands for what the environment sets."""

    profile: str = ""
    region: str = ""

    def __str__(self) -> str:
        parts = (self.profile and f"profile {self.profile}", self.region)
        return ", ".join(filter(None, parts))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Use the credentials of the profile and the region until the end of the block."""
        wanted: dict[str, str | None] = {}
        if self.profile:
            wanted |= {"AWS_PROFILE": self.profile, **dict.fromkeys(_OTHERS)}
        if self.region:
            wanted["AWS_REGION"] = wanted["AWS_DEFAULT_REGION"] = self.region
        before = {name: os.environ.get(name) for name in wanted}
        _set(wanted)
        try:
            yield
        finally:
            _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    from leeway.wiring import clients

    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if variables:
        for cached in (clients.session, clients.client, clients.background_client):
            cached.cache_clear()


def places(profiles: Sequence[str] | None, regions: Sequence[str] | None) -> tuple[Place, ...]:
    """Return each region of each profile, in the order of the command line.

    Raises:
        BadInputError: a name is empty, or several places would have the table of one of them.
    """
    for option, names in (("--profile", profiles), ("--region", regions)):
        if names and not all(names):
            raise BadInputError(f"{option}: expected a name, got an empty text.")
    pairs = product(dict.fromkeys(profiles or ("",)), dict.fromkeys(regions or ("",)))
    found = tuple(Place(profile, region) for profile, region in pairs)
    if len(found) > 1 and os.environ.get(TABLE):
        raise BadInputError(
            f"--profile, --region: expected one of each, because {TABLE} names one table."
        )
    return found


def in_each[T](
    chosen: Iterable[Place], read: Callable[[], T]
) -> list[tuple[Place, T | CannotBeDoneError]]:
    """Read each place. An error of one of several stands in its place."""
    everywhere = tuple(chosen)
    found: list[tuple[Place, T | CannotBeDoneError]] = []
    for place in everywhere:
        with place.entered():
            try:
                found.append((place, read()))
            except CannotBeDoneError as error:
                if len(everywhere) == 1:
                    raise
                found.append((place, error))
    return found


def show[T](
    found: Sequence[tuple[Place, T | CannotBeDoneError]],
    output: Format,
    as_data: Callable[[T], dict[str, Any]],
    as_view: Callable[[T], Any],
    failure: str = "",
) -> None:
    """Print what was read. Several places stand below each other, each with its name.

    Raises:
        CannotBeDoneError: some of several places could not be read, or `failure` says what else
            makes the command fail. What was read is printed.
    """
    unread = "; ".join(str(place) for place, one in found if isinstance(one, CannotBeDoneError))
    problem = " ".join(filter(None, (failure, unread and f"Not read: {unread}.")))
    if output is Format.JSON:
        document = _document(found, as_data)
        if problem:
            raise CannotBeDoneError(problem, result=document)
        print_json(document)
        return
    from rich.text import Text

    console = stdout_console()
    for number, (place, one) in enumerate(found):
        if len(found) > 1:
            gap = "\n" if number else ""
            console.print(Text(f"{gap}{place}", style="bold underline"), soft_wrap=True)
        shown = Text(str(one)) if isinstance(one, CannotBeDoneError) else as_view(one)
        console.print(shown, soft_wrap=True)
    if problem:
        raise CannotBeDoneError(problem)


def _document[T](
    found: Sequence[tuple[Place, T | CannotBeDoneError]], as_data: Callable[[T], dict[str, Any]]
) -> dict[str, Any]:
    documents = [
        {"error": {"message": str(one)}} if isinstance(one, CannotBeDoneError) else as_data(one)
        for _, one in found
    ]
    if len(found) == 1:
        return documents[0]
    names = [{"profile": one.profile or None, "region": one.region or None} for one, _ in found]
    return {"places": [name | one for name, one in zip(names, documents, strict=True)]}
