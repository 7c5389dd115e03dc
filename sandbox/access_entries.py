"""The credentials of the functions, and the access entries of their roles."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.template import DeployedTemplate

SECRET = "sandbox"

POLLER_AGENT = "leeway-sandbox-poller"
"""The user agent of Lambda's pollers, which call SQS with the role of the function."""

USER_ACCESS_KEY = "AKIASANDBOX000000000"
"""The access key of the person who uses the sandbox."""


def access_key(function: str) -> str:
    """Return the access key id of a function's role, which is different for each function."""
    return "ASIA" + hashlib.sha256(function.encode()).hexdigest()[:16].upper()


def access_entries(template: DeployedTemplate) -> dict[str, Any]:
    """Return the body of the cluster's `PUT /_sandbox/access`. A role without an entry gets 401.

    The entries come from `Metadata.AccessEntries` of the template. The user names are those of EKS:
    the session of a function's role has the name of the function. A function that a person runs
    with `sam local invoke` has the credentials of that person, which have every group.
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
