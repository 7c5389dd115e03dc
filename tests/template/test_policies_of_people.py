"""What the policies in docs/ let people of one cluster do with the table, by the sandbox's IAM."""

from typing import Any

import pytest

from tests.template.people import KINDS, OWN, POLICIES, allows


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


def reads(policy: str, key: str) -> bool:
    """Whether a policy allows to read an item, or the items of its partition."""
    query = {
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": key}},
    }
    item = {"Key": {"pk": {"S": key}, "sk": {"S": "X"}}}
    return allows(policy, "Query", query) or allows(policy, "GetItem", item)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "{}" in kind])
def test_people_read_records_of_their_own_cluster_only(kind: str) -> None:
    for other in ("green", f"{OWN}-2", f"{OWN}2", ""):
        assert not [one for one in POLICIES if reads(one, kind.format(other))]


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
