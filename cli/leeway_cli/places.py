"""Runs a command in several accounts and regions, and for all clusters of their stacks: `--profile`
and `--region`, each repeatable, and `--all`."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.output import Format, kept_warnings, print_json, stdout_console, write_stderr
from leeway_cli.stack import CLUSTERS, TABLE, find_stack

if TYPE_CHECKING:
    from rich.console import Group

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
AllOption = Annotated[
    bool, typer.Option("--all", help="Read all clusters that the stack of each place manages.")
]

AT_ONCE = 8
"""Clusters that are read at the same time: an API server that does not answer delays no other."""

OTHER_CREDENTIALS = (
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
    """A region of an account; an empty field stands for what the environment sets. With `--all`, a
    cluster of the stack there."""

    profile: str = ""
    region: str = ""
    cluster: str = ""

    def __str__(self) -> str:
        named = (("profile", self.profile), ("", self.region), ("cluster", self.cluster))
        return ", ".join(f"{kind} {name}".strip() for kind, name in named if name)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Use the credentials of the profile and the region until the end of the block."""
        wanted: dict[str, str | None] = {}
        if self.profile:
            wanted |= {"AWS_PROFILE": self.profile, **dict.fromkeys(OTHER_CREDENTIALS)}
        if self.region:
            wanted["AWS_REGION"] = wanted["AWS_DEFAULT_REGION"] = self.region
        before = {name: os.environ.get(name) for name in wanted}
        _set(wanted)
        try:
            yield
        finally:
            _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    """Set or remove variables. AWS clients are built anew if one differs: credentials may ask for a
    code of MFA again."""
    from leeway.wiring import clients

    different = {name: one for name, one in variables.items() if os.environ.get(name) != one}
    for name, value in different.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    if different:
        for cached in (clients.session, clients.client, clients.background_client):
            cached.cache_clear()


def places(profiles: Sequence[str] | None, regions: Sequence[str] | None) -> tuple[Place, ...]:
    """Return each region of each profile, in the order of the command line.

    Raises:
        BadInputError: several places would have the table of one of them.
    """
    pairs = product(dict.fromkeys(profiles or ("",)), dict.fromkeys(regions or ("",)))
    found = tuple(Place(profile, region) for profile, region in pairs)
    if len(found) > 1 and os.environ.get(TABLE):
        raise BadInputError(
            f"--profile, --region: expected one of each, because {TABLE} names one table."
        )
    return found


_WARNING = "warning: "

type Found[T] = Sequence[tuple[Place, T | CannotBeDoneError]]
"""What was read of each place, or why nothing could be read."""

type Sums[T] = Callable[[list[T]], tuple[dict[str, Any], str]]
"""The totals of what was read: their JSON, and in words."""


def in_each[T](chosen: Iterable[Place], read: Callable[[Place], T]) -> Found[T]:
    """Read each place. An error of one of several stands in its place."""
    everywhere = tuple(chosen)
    found: list[tuple[Place, T | CannotBeDoneError]] = []
    for place in everywhere:
        with place.entered():
            found.append((place, _read(place, read)))
    if len(found) == 1 and isinstance(found[0][1], CannotBeDoneError):
        raise found[0][1]
    return found


def in_each_cluster[T](chosen: Sequence[Place], stack: str, read: Callable[[Place], T]) -> Found[T]:
    """Read each cluster of the stack of each place, some at the same time. An error of a cluster,
    or of one of several stacks, stands in its place."""
    found: list[tuple[Place, T | CannotBeDoneError]] = []
    for place in chosen:
        with place.entered():
            names = _read(place, lambda _: _clusters(stack))
            if isinstance(names, CannotBeDoneError):
                if len(chosen) == 1:
                    raise names
                found.append((place, names))
                continue
            clusters = [replace(place, cluster=name) for name in names]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found += zip(
                    clusters, pool.map(lambda one: _read(one, read), clusters), strict=True
                )
    return found


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters that the options of a command choose: one of each place, or all of its stack."""

    everywhere: Sequence[Place]
    name: str
    stack: str
    every: bool

    @property
    def several(self) -> bool:
        """Whether they may be several."""
        return self.every or len(self.everywhere) > 1

    def read[T](self, read: Callable[[Place], T]) -> Found[T]:
        """Read each cluster; the place has its name. An error of one of several stands in its
        place.

        Raises:
            CannotBeDoneError: the only one could not be read.
        """
        if self.every:
            return in_each_cluster(self.everywhere, self.stack, read)
        return in_each(self.everywhere, lambda one: read(replace(one, cluster=self.name)))


def chosen_clusters(
    profiles: Sequence[str] | None,
    regions: Sequence[str] | None,
    cluster: str,
    stack: str,
    *,
    every: bool,
) -> Clusters:
    """Return what `--profile`, `--region`, `--cluster` and `--all` choose.

    Raises:
        BadInputError: the options name no cluster of several places, or one beside `--all`.
    """
    everywhere = places(profiles, regions)
    name = named_cluster(cluster, every=every)
    if len(everywhere) > 1 and not (every or cluster):
        raise BadInputError("--profile, --region: expected --all or --cluster with several places.")
    return Clusters(everywhere, name, stack, every)


def named_cluster(cluster: str, *, every: bool) -> str:
    """Return the cluster that a command reads; empty with `--all`, also if the environment names
    one.

    Raises:
        BadInputError: a cluster is named beside `--all`.
    """
    if every and cluster and cluster != os.environ.get("LEEWAY_CLUSTER"):
        raise BadInputError("--all: expected no cluster beside it.")
    return "" if every else cluster


def _read[T](place: Place, read: Callable[[Place], T]) -> T | CannotBeDoneError:
    """Read a place. Its warnings name it."""
    named = place != Place()
    with kept_warnings() as said:
        try:
            found: T | CannotBeDoneError = read(place)
        except CannotBeDoneError as error:
            found = error
    for line in said:
        is_warning = named and line.startswith(_WARNING)
        write_stderr(f"{_WARNING}{place}: {line.removeprefix(_WARNING)}" if is_warning else line)
    return found


def _clusters(stack: str) -> tuple[str, ...]:
    names = find_stack(stack).clusters
    if names is None:
        raise BadInputError(f"--all: expected the names of clusters in {CLUSTERS}.")
    if not names:
        write_stderr(f"warning: stack {stack} manages no cluster (ClusterNames is empty)")
    return names


def show[T](
    found: Found[T],
    output: Format,
    as_data: Callable[[T], dict[str, Any]],
    as_view: Callable[[T], Any],
    failure: str = "",
    totals: Sums[T] | None = None,
) -> None:
    """Print what was read. Several places stand below each other, each with its name, and then the
    `totals` of those that were read: their JSON, and in words.

    Raises:
        CannotBeDoneError: some of several places could not be read, or `failure` says what else
            makes the command fail. What was read is printed.
    """
    unread = "; ".join(str(place) for place, one in found if isinstance(one, CannotBeDoneError))
    problem = " ".join(filter(None, (failure, unread and f"Not read: {unread}.")))
    several = _are_several(found)
    if output is Format.JSON:
        read = _that_were_read(found)
        document = _document(found, as_data) if several else as_data(read[0])
        if several and totals:
            document["totals"] = totals(read)[0]
        if problem:
            raise CannotBeDoneError(problem, result=document)
        print_json(document)
        return
    stdout_console().print(as_one_view(found, as_view, totals), soft_wrap=True)
    if problem:
        raise CannotBeDoneError(problem)


def as_one_view[T](
    found: Found[T], as_view: Callable[[T], Any], totals: Sums[T] | None = None
) -> "Group":
    """Return the views of several places below each other, each with its name, and the totals."""
    from rich.console import Group
    from rich.text import Text

    several, views = _are_several(found), []
    for number, (place, one) in enumerate(found):
        if several:
            gap = "\n" if number else ""
            views.append(Text(f"{gap}{place}", style="bold underline"))
        views.append(Text(str(one)) if isinstance(one, CannotBeDoneError) else as_view(one))
    if several and totals:
        views.append(Text("\nall that was read", style="bold underline"))
        views.append(Text(totals(_that_were_read(found))[1]))
    return Group(*views)


def _are_several(found: Found[Any]) -> bool:
    """Whether each place is named: there are several, or it is a cluster of all."""
    if len(found) != 1:
        return True
    ((place, one),) = found
    return bool(place.cluster) or isinstance(one, CannotBeDoneError)


def _that_were_read[T](found: Found[T]) -> list[T]:
    return [one for _, one in found if not isinstance(one, CannotBeDoneError)]


def _document[T](found: Found[T], as_data: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    documents = (
        {"error": {"message": str(one)}} if isinstance(one, CannotBeDoneError) else as_data(one)
        for _, one in found
    )
    names = (
        {"profile": one.profile or None, "region": one.region or None}
        | ({"cluster": one.cluster} if one.cluster else {})
        for one, _ in found
    )
    return {"places": [name | one for name, one in zip(names, documents, strict=True)]}
