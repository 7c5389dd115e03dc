"""The desired settings, and objects of a cluster as they compare with them."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.headroom.pause_pods import LOWEST_PRIORITY, priority_class_object
from leeway_cli.adopt.settings.leeway_stack import LeewayStack, version_difference
from leeway_cli.adopt.settings.objects import as_found, cluster_object, cluster_objects

from tests.template.translation import deployed

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    document
    for path in sorted((ROOT / "rbac").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
OBJECTS = cluster_objects(DOCUMENTS)
PRIORITY_CLASS = priority_class_object(LOWEST_PRIORITY)
ENTRIES = deployed().access_entries
STACK = LeewayStack("leeway", "table", {f"arn:{role}": group for role, group in ENTRIES.items()})


def stored(document: dict[str, Any]) -> dict[str, Any]:
    """Return an object as an API server returns it."""
    found = copy.deepcopy(document)
    found["metadata"] |= {"uid": "1", "resourceVersion": "7", "managedFields": []}
    if document["kind"] == "ValidatingAdmissionPolicy":
        found["spec"]["matchConstraints"]["matchPolicy"] = "Equivalent"
        for rule in found["spec"]["matchConstraints"]["resourceRules"]:
            rule["scope"] = "*"
    return {key: value for key, value in found.items() if value is not False}


def test_the_objects_of_this_version_fit_to_its_template() -> None:
    assert version_difference(STACK, OBJECTS) is None


@pytest.mark.parametrize(
    "stack",
    [
        replace(STACK, groups={}),
        replace(STACK, groups={**STACK.groups, "arn:New": "leeway:new"}),
        replace(STACK, groups=dict(list(STACK.groups.items())[1:-1])),
        replace(STACK, roles_without_arn=("WatchPodsRole",)),
    ],
    ids=["no entries", "newer", "older", "no output"],
)
def test_a_stack_of_another_version_is_named(stack: LeewayStack) -> None:
    found = version_difference(stack, OBJECTS)

    assert found is not None
    assert found.startswith("Stack leeway is of another version of Leeway: ")


@pytest.mark.parametrize(
    "document",
    [*DOCUMENTS, PRIORITY_CLASS],
    ids=lambda one: f"{one['kind']}-{one['metadata']['name']}",
)
def test_defaults_of_the_api_server_are_no_difference(document: dict[str, Any]) -> None:
    wanted = cluster_object(document)

    found = as_found(wanted, stored(document))

    assert found == wanted
    assert found.ours


EMPTY = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "leeway-none", "labels": {"app.kubernetes.io/name": "leeway"}},
    "rules": [],
}


@pytest.mark.parametrize("rules", [{"rules": None}, {"rules": []}, {}])
def test_a_role_without_rules_is_as_adopt_wrote_it(rules: dict[str, Any]) -> None:
    found = {key: value for key, value in EMPTY.items() if key != "rules"} | rules

    assert as_found(cluster_object(EMPTY), found) == cluster_object(EMPTY)


def test_the_order_of_rules_and_verbs_is_no_difference() -> None:
    document = next(one for one in DOCUMENTS if one["kind"] == "ClusterRole")
    found = stored(document)
    found["rules"] = found["rules"][::-1]
    found["rules"][0]["verbs"] = found["rules"][0]["verbs"][::-1]

    assert as_found(cluster_object(document), found) == cluster_object(document)


@pytest.mark.parametrize(
    "changed", [{"globalDefault": True}, {"value": -11}, {"description": None}], ids=str
)
def test_another_value_of_a_priority_class_is_a_difference(changed: dict[str, Any]) -> None:
    wanted = cluster_object(PRIORITY_CLASS)

    assert as_found(wanted, stored(PRIORITY_CLASS) | changed) != wanted


def test_an_additional_rule_is_a_difference() -> None:
    document = next(one for one in DOCUMENTS if one["kind"] == "ClusterRole")
    wanted = cluster_object(document)
    found = stored(document)
    found["rules"][0]["resourceNames"] = ["node-1"]

    assert as_found(wanted, found) != wanted


def test_an_object_without_a_label_of_leeway_is_of_somebody_else() -> None:
    document = next(one for one in DOCUMENTS if one["kind"] == "ClusterRole")
    found = stored(document)
    found["metadata"]["labels"] = {}

    assert not as_found(cluster_object(document), found).ours
    found["metadata"]["managedFields"] = [{"manager": "leeway", "operation": "Apply"}]
    assert as_found(cluster_object(document), found).ours


@pytest.mark.parametrize("kind", ["Pod", "ClusterRole"])
def test_an_unknown_document_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="expected one of ClusterRole"):
        cluster_object({"apiVersion": "v1", "kind": kind, "metadata": {}})
