"""Reason codes of catalog refreshes."""

from leeway.reasons import ReasonCode

_RUNBOOK = "catalognotrefreshedalarm"

CATALOG_REFRESHED = ReasonCode(
    "CatalogRefreshed", "The catalog of {region} was read completely and stored."
)

CATALOG_PARTLY_REFRESHED = ReasonCode(
    "CatalogPartlyRefreshed",
    "The catalog of {region} was stored, but these parts are older: {parts}.",
    _RUNBOOK,
)

CATALOG_PART_NOT_READ = ReasonCode(
    "CatalogPartNotRead", "AWS did not return the {part} of {region}: {error}.", _RUNBOOK
)

CATALOG_UNAVAILABLE = ReasonCode(
    "CatalogUnavailable",
    "The catalog of {region} cannot be refreshed: AWS returned no part of it, or no instance types "
    "or no offerings. These parts were not read: {problems}.",
    _RUNBOOK,
)
