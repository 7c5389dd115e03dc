"""Every role with access to a cluster has an access entry whose group the cluster binds."""

from pathlib import Path

import yaml
from leeway_sandbox.access_entries import USER_ACCESS_KEY, access_entries

from tests.template.translation import deployed

ROOT = Path(__file__).parents[2]
NODES = "arn:aws:iam::123456789012:role/nodes"


def bound_groups() -> set[str]:
    """Return the groups that rbac/leeway.yaml binds to a role."""
    documents = yaml.safe_load_all((ROOT / "rbac" / "leeway.yaml").read_text())
    return {
        subject["name"]
        for document in documents
        if document["kind"].endswith("Binding")
        for subject in document["subjects"]
    }


def test_the_groups_of_the_entries_are_those_of_the_bindings() -> None:
    template = deployed()

    assert set(template.access_entries.values()) == bound_groups()


def test_each_function_with_an_entry_has_its_own_user_name() -> None:
    template = deployed()
    found = access_entries(template, "demo", NODES)

    sessions = [one for one in found["sessions"].values() if "role" in one]
    names = {one["username"].rpartition("/")[2] for one in sessions}
    granted = {one["principal"] for one in found["entries"]}
    assert {one["role"] for one in sessions} == granted - {NODES}
    roles = {function.name: function.role for function in template.functions}

    assert names == {name for name, role in roles.items() if role in template.access_entries}
    assert set(template.access_entries) <= set(roles.values())


def test_a_person_who_runs_functions_with_sam_has_every_group() -> None:
    template = deployed()
    person = access_entries(template, "demo", NODES)["sessions"][USER_ACCESS_KEY]

    assert set(person["groups"]) == bound_groups()
