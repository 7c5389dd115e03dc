"""The catalogs and the files of Kubernetes objects from which commands select."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.reasons import clause

from leeway_cli.errors import (
    AccountError,
    BadInputError,
    CannotBeDoneError,
    NotDeployedError,
    as_clause,
    aws_errors,
)
from leeway_cli.manifests.files import read_texts
from leeway_cli.output import write_stderr

if TYPE_CHECKING:
    from leeway.manifests.base import Manifest
    from leeway.manifests.documents import Value
    from leeway.selection.offers.catalog import Catalog, Unavailable
    from leeway.selection.offers.survey import Survey
    from leeway.selection.pods import NodePool
    from leeway.selection.reading.objects import BadObject, Document

SandboxOption = Annotated[
    bool, typer.Option("--sandbox", help="Use the catalog of the sandbox, without an AWS account.")
]
RegionOption = Annotated[
    str | None,
    typer.Option(
        metavar="REGION", help="Set the region (default: the region of the AWS configuration)."
    ),
]

ReservedForOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="NAME",
        envvar="LEEWAY_CLUSTER",
        help="Set the cluster for which capacity reservations are read (default: those whose tags "
        "name no cluster).",
    ),
]

SANDBOX_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Offers:
    """A catalog, the offerings of it that are unavailable now, and when its oldest part was read;
    None for that of the sandbox, and if a part was never read."""

    catalog: "Catalog"
    unavailable: "frozenset[Unavailable]" = frozenset()
    read_at: datetime | None = None


def find_catalog(region: str | None, stack: str, *, sandbox: bool) -> "Catalog":
    """Open the catalog that the options of a command select, without offerings that are unavailable
    now."""
    offers = find_offers(region, stack, sandbox=sandbox)
    return offers.catalog.without(offers.unavailable) if offers.unavailable else offers.catalog


def find_offers(region: str | None, stack: str, *, sandbox: bool) -> Offers:
    """Open the catalog that the options of a command select."""
    return Offers(sandbox_catalog(region)) if sandbox else account_offers(region, stack)


@cache
def sandbox_catalog(region: str | None = None) -> "Catalog":
    """Return the catalog of the sandbox: real instance types and zones, its own prices."""
    from leeway.selection.offers.survey import compressed, opened

    return opened(compressed(sandbox_survey(region)))


@cache
def sandbox_survey(region: str | None = None) -> "Survey":
    """Return the survey of a region of the sandbox.

    Raises:
        BadInputError: the sandbox has no such region.
    """
    from leeway.selection.offers.machines import machine
    from leeway.selection.offers.survey import Survey
    from leeway_sandbox.aws.regions import UnknownRegion, read_region, regions

    try:
        found = read_region(region or SANDBOX_REGION)
    except UnknownRegion:
        raise BadInputError(
            f"--region: expected one of {', '.join(regions())}, got {region}."
        ) from None
    return Survey(
        region=found.name,
        machines=tuple(map(machine, found.types)),
        offered=found.offered,
        zone_ids=found.zone_ids,
        on_demand=found.on_demand,
        spot=found.spot,
    )


def account_offers(region: str | None, stack: str) -> Offers:
    """Return the catalog of a region from the table of the deployment. If the table has none, it is
    read from EC2.

    Raises:
        CannotBeDoneError: AWS does not answer or refuses.
    """
    from leeway.wiring.clients import session

    name = region or session().region_name
    if name is None:
        raise CannotBeDoneError("No AWS region is set. Set AWS_REGION.")
    with aws_errors(f"the catalog of {name}"):
        return _stored_offers(name, stack) or Offers(_read_catalog(name))


def _stored_offers(region: str, stack: str) -> Offers | None:
    from leeway.aws.table import DynamoTable
    from leeway.catalog.stored import SURVEY
    from leeway.catalog.unavailable import UnavailableOfferings
    from leeway.clock import SystemClock
    from leeway.selection.offers.survey import UnknownForm, opened, read_times
    from leeway.wiring.clients import client

    from leeway_cli.stack import find_stack

    try:
        with aws_errors(f"the catalog of {region}"):
            dynamodb = partial(client, "dynamodb")
            table = DynamoTable(dynamodb, find_stack(stack).table)
            packed = table.get(SURVEY, region=region)
            if packed is None:
                return None
            unavailable = UnavailableOfferings(table).now(region, SystemClock().now())
            read_at = min(read_times(packed).values(), default=None)
            return Offers(opened(packed), frozenset(unavailable), read_at)
    except (NotDeployedError, UnknownForm):
        return None  # no deployment, or another version's catalog: read it from EC2
    except AccountError:
        raise
    except CannotBeDoneError as error:
        write_stderr(f"warning: the catalog of {region} in the table is not read: {error}")
        return None


def _read_catalog(region: str) -> "Catalog":
    from leeway.aws.market import Ec2Market, pricing_region
    from leeway.catalog.refresh import CatalogUnavailable, read_catalog
    from leeway.clock import SystemClock
    from leeway.selection.offers.survey import Survey, compressed, opened
    from leeway.wiring.clients import background_client

    write_stderr(f"Reading the catalog of {region} from EC2.")
    pricing = partial(background_client, "pricing", pricing_region(region))
    market = Ec2Market(partial(background_client, "ec2", region), pricing)
    try:
        now = SystemClock().now()
        survey, parts = read_catalog(market, region, now, Survey(region))
    except CatalogUnavailable as error:
        raise CannotBeDoneError(
            f"The instance types of the region could not be read: {as_clause(error)}."
        ) from error
    for part in parts:
        if part.problem:
            write_stderr(f"warning: {part.problem}")
    return opened(compressed(survey))


def with_reservations(
    manifests: "Sequence[Manifest]", cluster: str, region: str | None, *, sandbox: bool
) -> "tuple[NodePool, ...]":
    """Return the pools of manifests with the capacity reservations that they may launch into now,
    as EC2 describes them. EC2 is read only for pools that select some; warnings go to stderr.

    Raises:
        BadInputError: the cluster has no valid name.
    """
    from leeway.execution.retrying import API_ERRORS
    from leeway.launch.node_settings import settings_of
    from leeway.launch.reservations import RESERVATIONS_NOT_READ, reservation_terms
    from leeway.launch.resolve_pools import PoolResolver
    from leeway.manifests.node_pool import pools_of

    pools = pools_of(manifests)
    selecting = [one for one in settings_of(manifests) if reservation_terms(one) is not None]
    if not selecting:
        return pools
    if why := _why_reserved_is_unknown(region, sandbox=sandbox):
        write_stderr(f"warning: capacity reservations are not read: {why}")
        return pools
    from leeway.clock import SystemClock
    from leeway.wiring.launch_nodes import node_sources

    from leeway_cli.stack import cluster_name

    resolver = PoolResolver(node_sources(), cluster_name(cluster) if cluster else "")
    found, now = {}, SystemClock().now()
    for one in selecting:
        try:
            found[one.pool], not_used = resolver.reservations(one, (), now)
        except API_ERRORS as error:
            not_used = (RESERVATIONS_NOT_READ(pool=one.pool, error=clause(error)),)
        for reason in not_used:
            write_stderr(f"warning: {reason.code}: {reason}")
    return tuple(replace(one, reservations=found.get(one.name, ())) for one in pools)


def _why_reserved_is_unknown(region: str | None, *, sandbox: bool) -> str:
    """Return why EC2 cannot say which reservations a plan may use; empty if it can."""
    from leeway.wiring.clients import session

    from leeway_cli.stack import has_account

    if sandbox:
        return "--sandbox reads no account"
    if not has_account():
        return "no AWS credentials and region are set"
    own = session().region_name
    return "" if region in {None, own} else f"they are those of {own}, and --region is {region}"


class KubernetesFiles:
    """The Kubernetes objects of some files, and the place of each.

    Raises:
        BadInputError: a file has an invalid object.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        from leeway.selection.reading.cluster_objects import checked
        from leeway.selection.reading.objects import BadObject

        from leeway_cli.selection.input_warnings import unknown_kinds

        self._places: list[tuple[str, Value]] = []
        self.documents: Sequence[Document] = tuple(self._read(paths))
        try:
            unread = unknown_kinds(self.documents)
            self.documents = checked(self.documents)
        except BadObject as error:
            raise self._invalid(error) from error
        for kind, position in unread.items():
            message = f"{kind} is ignored: Leeway reads no pods from it"
            write_stderr(f"warning: {self.place((position, 'kind'), message)}")

    def _read(self, paths: Sequence[Path]) -> "Iterator[Document]":
        from leeway.manifests.documents import read_documents

        for source, text in read_texts(paths):
            read = read_documents(text, source)
            for problem in read.problems:
                raise BadInputError(f"{as_clause(problem)}.")
            for value in read.values:
                for item, plain in _items_of(value, source):
                    if not isinstance(plain, dict):
                        raise BadInputError(f"{source}:{item.line}: expected a Kubernetes object.")
                    self._places.append((source, item))
                    yield plain

    def read_with[T](
        self,
        others: "KubernetesFiles",
        reading: "Callable[[Sequence[Document], Sequence[Document]], T]",
    ) -> T:
        """Read these objects together with the objects of other files.

        Raises:
            BadInputError: an object is invalid.
        """
        from leeway.selection.reading.objects import BadObject

        try:
            return reading(self.documents, others.documents)
        except BadObject as error:
            position = error.path[0] if error.path else 0
            count = len(self.documents)
            if isinstance(position, int) and position >= count:
                raise others._invalid(error, position - count) from error
            raise self._invalid(error) from error

    def place(self, path: Sequence[str | int], message: str) -> str:
        """Render a message about a field with its file, line, object and path. The path begins with
        the position of the object."""
        from leeway.manifests.base import rendered

        position, *inside = path
        if not isinstance(position, int):
            return message
        source, value = self._places[position]
        document = self.documents[position]
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        title = "" if inside == ["kind"] else f"{document.get('kind')} {name or '?'}"
        parts = (title, rendered(tuple(inside)), message)
        where = f"{source}:{value.line_of(tuple(inside))}"
        return f"{where}: {': '.join(part for part in parts if part)}"

    def _invalid(self, error: "BadObject", position: int | None = None) -> BadInputError:
        path = error.path if position is None else (position, *error.path[1:])
        problem = self.place(path, str(error))
        return BadInputError(f"{as_clause(problem)}.")


def _items_of(value: "Value", source: str) -> "Iterator[tuple[Value, Any]]":
    """Yield the items of a List, which kubectl prints for several objects."""
    plain = value.plain()
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in plain:
        yield value, plain
        return
    listed = value.content["items"]
    if plain["items"] is not None and not isinstance(plain["items"], list):
        raise BadInputError(f"{source}:{listed.line}: items: expected a list.")
    for item, each in zip(listed.content or (), plain["items"] or (), strict=True):
        if isinstance(each, dict) and not each.get("kind"):
            each["kind"] = kind.removesuffix("List")
        yield item, each
