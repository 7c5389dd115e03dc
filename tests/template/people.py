"""The policies in docs/ of people who may work on one cluster, evaluated as the sandbox does."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from leeway_sandbox.aws.calls import Call
from leeway_sandbox.aws.dynamodb import conditions_of
from leeway_sandbox.aws.policies import Request, refused

DOCS = Path(__file__).parents[2] / "docs"
POLICIES = sorted(path.name for path in DOCS.glob("*-policy.json"))
TABLE = "arn:aws:dynamodb:us-east-1:123456789012:table/leeway"

OWN = "blue"
KINDS: dict[str, set[str]] = {
    "ADMISSION#{}#i-1": {"switch-policy.json"},
    "ADOPTION#{}": {"adopt-policy.json", "switch-policy.json"},
    "CACHE#groups": set(),
    "CAPACITY#{}": set(),
    "CATALOG#us-east-1": set(),
    "CHURN#{}": set(),
    "CLAIM#clean": set(),
    "DETACHED#{}#i-1": set(),
    "ENDPOINT#{}": set(),
    "GROUPS#{}": {"command-line-policy.json"},
    "HEADROOM#{}": set(),
    "INSTANCE#i-1": set(),
    "LAUNCH#{}": set(),
    "LEASE#watch_pods": set(),
    "MANIFESTS#{}": {
        "acceptance-policy.json",
        "adopt-policy.json",
        "command-line-policy.json",
        "switch-policy.json",
    },
    "MANUALLAUNCH#{}": {"launch-policy.json"},
    "OFFERINGS#us-east-1": set(),
    "POOLS#{}": {"command-line-policy.json"},
    "PROGRESS#{}#i-1": set(),
    "PROVISIONING#{}": set(),
    "RETIREMENT#{}#i-1": set(),
    "SURGES#{}": set(),
}
"""The policies that let people write a kind of record, each of their own cluster only."""


@cache
def statements(policy: str, cluster: str) -> list[dict[str, Any]]:
    """The statements of a policy for a cluster."""
    text = (DOCS / policy).read_text()
    for name, value in {
        "CLUSTER": cluster,
        "REGION": "us-east-1",
        "ACCOUNT": "123456789012",
    }.items():
        text = text.replace(name, value)
    found: list[dict[str, Any]] = json.loads(text.replace("table/TABLE", "table/leeway"))[
        "Statement"
    ]
    return found


def allows(policy: str, action: str, asked: dict[str, Any], cluster: str = OWN) -> bool:
    """Whether a policy for a cluster allows a call of DynamoDB."""
    index = asked.get("IndexName")
    resource = f"{TABLE}/index/{index}" if index else TABLE
    context = conditions_of(
        Call("dynamodb", action, "us-east-1", "", {}), json.dumps(asked).encode()
    )
    request = Request(f"dynamodb:{action}", resource, context)
    return not [*refused(statements(policy, cluster), [request])]
