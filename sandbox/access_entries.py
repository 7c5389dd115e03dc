"""The credentials of functions, and the access entries by which a cluster knows their roles."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.template import DeployedTemplate

SECRET = "sandbox"

USER_ACCESS_KEY = "AKIASANDBOX000000000"
"""The access key of whoever works with the sandbox."""


def access_key(function: str) -> str:
    """The access key id of a function's role: so that others can tell functions apart."""
    return "ASIA" + hashlib.sha256(function.encode()).hexdigest()[:16].upper()


def access_entries(template: DeployedTemplate) -> dict[str, Any]:
    """What the cluster's `PUT /_sandbox/access` takes: whoever is not in it gets 401, as on EKS.

    The table is `Metadata.AccessEntries` of the template. User names are those that EKS gives
    roles: the session of a function's role has the function's name. Functions that a person runs,
    with `sam local invoke`, have that person's credentials: those have every group.
    """
    account = template.functions[0].arn.split(":")[4] if template.functions else ""
    person = {
        "username": f"arn:aws:iam::{account}:user/sandbox",
        "groups": sorted(set(template.access_entries.values())),
        "secret": SECRET,
    }
    return {USER_ACCESS_KEY: person} | {
        access_key(function.name): {
            "username": f"arn:aws:sts::{function.arn.split(':')[4]}:assumed-role/"
            f"{function.role}/{function.name}",
            "groups": [template.access_entries[function.role]],
            "secret": SECRET,
        }
        for function in template.functions
        if function.role in template.access_entries
    }
