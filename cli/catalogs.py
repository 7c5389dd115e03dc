"""Which catalog a command chooses from: the sandbox's, or the one of an account's region."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import BadInputError, CannotBeDoneError
from cli.output import tell

if TYPE_CHECKING:
    from leeway.selection.offers.catalog import Catalog
    from leeway.selection.offers.survey import Survey

SandboxOption = Annotated[
    bool, typer.Option("--sandbox", help="The sandbox's catalog: no account is asked.")
]
RegionOption = Annotated[
    str | None, typer.Option(metavar="REGION", help="The region (default: the account's).")
]

SANDBOX_REGION = "us-east-1"


def find_catalog(region: str | None, stack: str, *, sandbox: bool) -> "Catalog":
    """Open the catalog that a command's options name."""
    return sandbox_catalog(region) if sandbox else account_catalog(region, stack)


def sandbox_catalog(region: str | None = None) -> "Catalog":
    """Make the catalog of the sandbox: real instance types and zones, its own price book."""
    from leeway.selection.offers.compressed import compressed, opened

    return opened(compressed(sandbox_survey(region)))


def sandbox_survey(region: str | None = None) -> "Survey":
    """Survey a region of the sandbox.

    Raises:
        BadInputError: the sandbox has no such region.
    """
    from leeway.selection.offers.machines import machine
    from leeway.selection.offers.survey import Survey

    from sandbox.aws.regions import UnknownRegion, read_region, regions

    try:
        found = read_region(region or SANDBOX_REGION)
    except UnknownRegion:
        raise BadInputError(
            f"--region: expected one of {', '.join(regions())}, got {region}"
        ) from None
    return Survey(
        region=found.name,
        machines=tuple(map(machine, found.types)),
        offered=found.offered,
        zone_ids=found.zone_ids,
        on_demand=found.on_demand,
        spot=found.spot,
    )


def account_catalog(region: str | None, stack: str) -> "Catalog":
    """Open the catalog of an account's region: the one that the deployment keeps, without what is
    unavailable at the moment, or where it keeps none one read now.

    Raises:
        CannotBeDoneError: AWS cannot be asked, or does not say what is offered.
    """
    from leeway.wiring.clients import session

    from cli.aws import aws_trouble

    name = region or session().region_name
    if name is None:
        raise CannotBeDoneError("no AWS region: set AWS_REGION, or give --region (or --sandbox)")
    with aws_trouble(f"the catalog of {name}"):
        kept = _kept(name, stack)
        return kept if kept is not None else _read_now(name)


def _kept(region: str, stack: str) -> "Catalog | None":
    from functools import partial

    from leeway.aws.surveys import DynamoSurveys
    from leeway.aws.unavailable_offerings import DynamoUnavailableOfferings
    from leeway.clock import SystemClock
    from leeway.selection.offers.compressed import UnknownForm, opened
    from leeway.wiring.clients import client

    from cli.stack import find_stack

    try:
        table = find_stack(stack).table
        dynamodb = partial(client, "dynamodb")
        packed = DynamoSurveys(dynamodb, table).packed(region)
        if packed is None:
            return None
        now = SystemClock().now()
        return opened(packed).without(DynamoUnavailableOfferings(dynamodb, table).now(region, now))
    except (CannotBeDoneError, UnknownForm):
        return None  # not deployed, or by another version: whoever asks may read it all the same


def _read_now(region: str) -> "Catalog":
    from functools import partial

    from leeway.aws.market import Ec2Market, PricingPriceList, pricing_region
    from leeway.catalog.refresh import NothingSurveyed, Surveyor
    from leeway.clock import SystemClock
    from leeway.selection.offers.compressed import compressed, opened
    from leeway.selection.offers.survey import Survey
    from leeway.wiring.clients import background_client

    tell(f"{region}: no catalog is kept; reading what EC2 offers")
    market = Ec2Market(partial(background_client, "ec2", region))
    prices = PricingPriceList(partial(background_client, "pricing", pricing_region(region)))
    try:
        now = SystemClock().now()
        survey, parts = Surveyor(market, prices).survey(region, now, Survey(region))
    except NothingSurveyed as error:
        raise CannotBeDoneError(str(error)) from error
    for part in parts:
        if part.problem:
            tell(f"warning: {part.part}: {part.problem}")
    return opened(compressed(survey))
