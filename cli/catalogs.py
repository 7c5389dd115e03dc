"""Which catalog a command chooses from: the sandbox's, or the one of an account's region."""

from typing import TYPE_CHECKING

from cli.errors import BadInputError

if TYPE_CHECKING:
    from leeway.selection.catalog import Catalog

SANDBOX_REGION = "us-east-1"


def sandbox_catalog(region: str | None = None) -> "Catalog":
    """Make the catalog of the sandbox: real instance types and zones, its own price book."""
    from leeway.selection.compressed import compressed, opened
    from leeway.selection.machines import machine
    from leeway.selection.survey import Survey

    from sandbox.aws.regions import UnknownRegion, read_region, regions

    try:
        found = read_region(region or SANDBOX_REGION)
    except UnknownRegion:
        raise BadInputError(
            f"--region: expected one of {', '.join(regions())}, got {region}"
        ) from None
    survey = Survey(
        region=found.name,
        machines=tuple(map(machine, found.types)),
        offered=found.offered,
        on_demand=found.on_demand,
        spot=found.spot,
    )
    return opened(compressed(survey))


def account_catalog(region: str | None = None) -> "Catalog":
    """Read the catalog of the account's region, as the deployment keeps it."""
    raise BadInputError("--sandbox: expected, until a catalog is kept")
