"""What the policies in docs/ let people of one cluster do with the table, by the sandbox's IAM."""

import json
from pathlib import Path
from typing import Any

import pytest
from leeway_sandbox.aws.calls import Call
from leeway_sandbox.aws.dynamodb import conditions_of
from leeway_sandbox.aws.policies import Request, refused

DOCS = Path(__file__).parents[2] / "docs"
POLICIES = sorted(path.name for path in DOCS.glob("*-policy.json"))
TABLE = "arn:aws:dynamodb:us-east-1:123456789012:table/leeway"

OWN = "blue"
KINDS: dict[str, set[str]] = {
    "ADMISSION#{}#i-1": set(),
    "ADOPTION#{}": {"adopt-policy.json"},
    "CACHE#groups": set(),
    "CAPACITY#{}": set(),
    "CATALOG#us-east-1": set(),
    "CHURN#{}": set(),
    "CLAIM#clean": set(),
    "DETACHED#{}#i-1": set(),
    "ENDPOINT#{}": set(),
    "HEADROOM#{}": set(),
    "INSTANCE#i-1": set(),
    "LAUNCH#{}": set(),
    "LEASE#watch_pods": set(),
    "MANIFESTS#{}": {"acceptance-policy.json", "adopt-policy.json", "command-line-policy.json"},
    "MANUALLAUNCH#{}": {"launch-policy.json"},
    "OFFERINGS#us-east-1": set(),
    "POOLS#{}": {"command-line-policy.json"},
    "PROGRESS#{}#i-1": set(),
    "PROVISIONING#{}": set(),
    "RETIREMENT#{}#i-1": set(),
}
"""The policies that let people write a kind of record, each of their own cluster only."""


def statements(policy: str) -> list[dict[str, Any]]:
    """The statements of a policy for cluster `blue`."""
    text = (DOCS / policy).read_text()
    for name, value in {"CLUSTER": OWN, "REGION": "us-east-1", "ACCOUNT": "123456789012"}.items():
        text = text.replace(name, value)
    found: list[dict[str, Any]] = json.loads(text.replace("table/TABLE", "table/leeway"))[
        "Statement"
    ]
    return found


def allows(policy: str, action: str, asked: dict[str, Any]) -> bool:
    """Whether a policy allows a call of DynamoDB."""
    index = asked.get("IndexName")
    resource = f"{TABLE}/index/{index}" if index else TABLE
    context = conditions_of(
        Call("dynamodb", action, "us-east-1", "", {}), json.dumps(asked).encode()
    )
    request = Request(f"dynamodb:{action}", resource, context)
    return not [*refused(statements(policy), [request])]


def writes(policy: str, key: str, **attributes: str) -> bool:
    """Whether a policy allows any write of an item."""
    item = {"pk": {"S": key}, "sk": {"S": "X"}}
    more = {name: {"S": value} for name, value in attributes.items()}
    batch = {"RequestItems": {"leeway": [{"PutRequest": {"Item": item | more}}]}}
    expression = "SET " + ", ".join(f"{name} = :v" for name in more) if more else "SET holder = :v"
    update = {"Key": item, "UpdateExpression": expression}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("PutItem", {"Item": item | more}),
        ("UpdateItem", update),
        ("BatchWriteItem", batch),
    ]
    if not more:
        calls.append(("DeleteItem", {"Key": item}))
    return any(allows(policy, action, asked) for action, asked in calls)


@pytest.mark.parametrize("kind", KINDS)
def test_people_write_their_kinds_of_records_of_their_own_cluster_only(kind: str) -> None:
    assert {one for one in POLICIES if writes(one, kind.format(OWN))} == KINDS[kind]
    for other in ("green", f"{OWN}-2", f"{OWN}2", ""):
        if "{}" in kind:
            assert not [one for one in POLICIES if writes(one, kind.format(other))]


@pytest.mark.parametrize("attribute", ["open", "cluster"])
@pytest.mark.parametrize("kind", [kind for kind, writers in KINDS.items() if writers])
def test_nobody_puts_an_item_into_an_index(kind: str, attribute: str) -> None:
    key = kind.format(OWN)
    assert not [one for one in POLICIES if writes(one, key, **{attribute: "green#0"})]


@pytest.mark.parametrize("policy", POLICIES)
def test_people_find_open_records_of_their_own_cluster_only(policy: str) -> None:
    def reads(key: str) -> bool:
        asked = {
            "IndexName": "open-by-cluster",
            "KeyConditionExpression": "#open = :key",
            "ExpressionAttributeNames": {"#open": "open"},
            "ExpressionAttributeValues": {":key": {"S": key}},
        }
        return allows(policy, "Query", asked)

    assert reads(f"{OWN}#3") is (policy in {"adopt-policy.json", "command-line-policy.json"})
    assert not reads("green#3")
    assert not reads(f"{OWN}-2#3")
    assert not allows(policy, "Scan", {})
