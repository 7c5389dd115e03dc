"""Compares the calls of functions with the rights of their roles, in AWS and in clusters."""

from pathlib import Path
from typing import Any

import yaml
from leeway_sandbox.access_entries import access_key
from leeway_sandbox.sandbox import Sandbox

from tests.template.granted import granted_to, grants_key, statements
from tests.template.reached import IAM_NAMES

RBAC = Path(__file__).parents[2] / "rbac"
SANDBOX_ONLY = {"sqs:GetQueueUrl"}
"""Calls of the sandbox's Lambda in the name of a function, which AWS Lambda does not make."""


def used_at_aws(sandbox: Sandbox) -> dict[str, set[str]]:
    """Return the AWS actions that the functions of each role have called."""
    assert sandbox.deployed
    calls: dict[str, dict[str, int]] = sandbox.status()["aws"]["calls_by_access_key"]
    used: dict[str, set[str]] = {}
    for function in sandbox.deployed.functions:
        recorded = set(calls.get(access_key(function.name), {})) - SANDBOX_ONLY
        recorded = {IAM_NAMES.get(action, action) for action in recorded}
        used.setdefault(function.role, set()).update(recorded)
    return used


def check_calls_are_granted(sandbox: Sandbox) -> None:
    """Check that every call of a function is granted to its role."""
    used = used_at_aws(sandbox)
    assert any(used.values()), "no call was recorded for any function"
    ungranted = {role: sorted(actions - granted_to(role)) for role, actions in used.items()}
    assert not {role: actions for role, actions in ungranted.items() if actions}
    records = table_keys_used(sandbox)
    assert records, "no request for a record was counted for any function"
    beyond = {
        f"{role}: {action} of {key}"
        for role, reached in records.items()
        for action, key in reached
        if not grants_key(statements(role), action, key)
    }
    assert not beyond, "dynamodb:LeadingKeys of the roles' policies do not contain these"


def table_keys_used(sandbox: Sandbox) -> dict[str, set[tuple[str, str]]]:
    """Return the table actions of each role with the prefixes of the keys."""
    assert sandbox.deployed
    by_key: dict[str, dict[str, list[str]]] = sandbox.status()["aws"]["records_by_access_key"]
    reached: dict[str, set[tuple[str, str]]] = {}
    for function in sandbox.deployed.functions:
        for action, kinds in by_key.get(access_key(function.name), {}).items():
            reached.setdefault(function.role, set()).update((action, kind) for kind in kinds)
    return reached


def granted(*names: str) -> set[str]:
    """Return the rights of ClusterRoles, as in "get daemonsets.apps"."""
    files = RBAC.glob("*.yaml")
    documents: list[dict[str, Any]] = [d for f in files for d in yaml.safe_load_all(f.read_text())]
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
    """Return the rights that the functions of an IAM role have used in the cluster."""
    assert sandbox.deployed
    name = sandbox.deployed.stack.roles[role].name
    calls: dict[str, dict[str, int]] = sandbox.status()["kubernetes"]["calls"]
    return {right for user, counts in calls.items() if f"/{name}/" in user for right in counts}
