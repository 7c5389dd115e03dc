"""The credentials of the functions, and the access entries of their roles."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leeway_sandbox.template import DeployedTemplate

SECRET = "sandbox"

POLLER_AGENT = "leeway-sandbox-poller"
"""The user agent of Lambda's pollers, which call SQS with the role of the function."""

USER_ACCESS_KEY = "AKIASANDBOX000000000"
"""The access key of the person who uses the sandbox."""


def access_key(function: str) -> str:
    """Return the access key id of a function's role, which is different for each function."""
    return "ASIA" + hashlib.sha256(function.encode()).hexdigest()[:16].upper()


def access_entries(template: DeployedTemplate, cluster: str, node_role: str) -> dict[str, Any]:
    """Return the body of the AWS's `PUT /_sandbox/access`: entries for the roles in
    `Metadata.AccessEntries` of the template and for the nodes, and the session of each function.

    The user names are those of EKS: the session of a function's role has the name of the function.
    A function that a person runs with `sam local invoke` has the credentials of that person, who
    has every group without an entry.
    """
    account = template.functions[0].arn.split(":")[4] if template.functions else ""
    roles, groups = template.stack.roles, template.access_entries
    entries: list[dict[str, Any]] = [
        {"principal": roles[role].arn, "groups": [group]}
        for role, group in groups.items()
        if role in roles
    ]
    person = {
        "username": f"arn:aws:iam::{account}:user/sandbox",
        "groups": sorted(set(groups.values())),
        "secret": SECRET,
    }
    sessions = {
        access_key(function.name): {
            "username": f"arn:aws:sts::{account}:assumed-role/{roles[function.role].name}/"
            f"{function.name}",
            "role": roles[function.role].arn,
            "secret": SECRET,
        }
        for function in template.functions
        if function.role in groups
    }
    return {
        "cluster": cluster,
        "entries": [*entries, {"principal": node_role, "type": "EC2_LINUX"}],
        "sessions": {USER_ACCESS_KEY: person, **sessions},
    }
