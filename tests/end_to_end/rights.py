"""What each function's role was used for at AWS, by the calls that the sandbox recorded."""

from sandbox.access_entries import access_key
from sandbox.up import Sandbox
from tests.template.granted import granted_to

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
