"""What functions' roles grant at AWS and in clusters, and what they were used for so far."""

from pathlib import Path
from typing import Any

import yaml

from sandbox.access_entries import access_key
from sandbox.sandbox import Sandbox
from tests.template.granted import granted_to, grants_key, statements

RBAC = Path(__file__).parents[2] / "rbac" / "leeway.yaml"
BY_THE_SANDBOX = {"sqs:GetQueueUrl"}
"""What its Lambda does in a function's name and the real one does not."""


def used_at_aws(sandbox: Sandbox) -> dict[str, set[str]]:
    """Role → the actions that its functions have called so far, as IAM names them."""
    assert sandbox.deployed
    calls: dict[str, dict[str, int]] = sandbox.status()["aws"]["calls_by_access_key"]
    used: dict[str, set[str]] = {}
    for function in sandbox.deployed.functions:
        recorded = set(calls.get(access_key(function.name), {})) - BY_THE_SANDBOX
        used.setdefault(function.role, set()).update(recorded)
    return used


def hold_to_what_is_granted(sandbox: Sandbox) -> None:
    """See that no function called what its role does not grant; IAM would have refused it."""
    used = used_at_aws(sandbox)
    assert any(used.values()), "no call was recorded for any function"
    ungranted = {role: sorted(actions - granted_to(role)) for role, actions in used.items()}
    assert not {role: actions for role, actions in ungranted.items() if actions}
    records = records_reached(sandbox)
    assert records, "no request for a record was counted for any function"
    beyond = {
        f"{role}: {action} of {key}"
        for role, reached in records.items()
        for action, key in reached
        if not grants_key(statements(role), action, key)
    }
    assert not beyond, "dynamodb:LeadingKeys of the roles' policies leave these out"


def records_reached(sandbox: Sandbox) -> dict[str, set[tuple[str, str]]]:
    """Role → the actions on the table, and how the keys began that they reached so far."""
    assert sandbox.deployed
    by_key: dict[str, dict[str, list[str]]] = sandbox.status()["aws"]["records_by_access_key"]
    reached: dict[str, set[tuple[str, str]]] = {}
    for function in sandbox.deployed.functions:
        for action, kinds in by_key.get(access_key(function.name), {}).items():
            reached.setdefault(function.role, set()).update((action, kind) for kind in kinds)
    return reached


def granted(*names: str) -> set[str]:
    """The rights that ClusterRoles grant, as in "get daemonsets.apps"."""
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(RBAC.read_text()))
    roles = {d["metadata"]["name"]: d for d in documents if d["kind"] == "ClusterRole"}
    return {
        f"{verb} {resource}.{group}".rstrip(".")
        for name in names
        for rule in roles[name]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(sandbox: Sandbox, role: str) -> set[str]:
    """The rights that functions of an IAM role needed for what they asked of the cluster so far."""
    calls: dict[str, dict[str, int]] = sandbox.status()["kubernetes"]["calls"]
    return {right for user, counts in calls.items() if f"/{role}/" in user for right in counts}
