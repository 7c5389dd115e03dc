"""The probes of each function ask for the statements of its role, and cannot change anything."""

from collections.abc import Mapping
from typing import Any

from leeway.wiring.probes import PROBES, Probe

from tests.template.granted import actions_of, grants_key, role_of, statements

BY_LAMBDA = {"WriteLogs", "RememberSteps", "KeepWhatFailed"}
"""Statements that Lambda uses for a function."""

NOT_ASKED = {
    "receive_notice": {"LetSchedulesInvoke"},
    "provision_nodes": {"FindInstanceProfiles", "FindRolesOfInstanceProfiles"},
}
"""Statements that another service uses, that need the name of a role of nodes, or that a function
in a VPC without a way to IAM does not need."""


def of_role(function: str) -> Mapping[str, Mapping[str, Any]]:
    return {one["Sid"]: one for one in statements(role_of(function))}


def statements_of(probe: Probe) -> set[str]:
    return {probe.statement, *probe.statements.values()}


def test_every_statement_of_a_role_is_asked_for() -> None:
    for function, probes in PROBES.items():
        asked = {name for probe in probes for name in statements_of(probe)}
        expected = of_role(function).keys() - BY_LAMBDA - NOT_ASKED.get(function, set())
        assert asked == expected, function


def test_a_probe_names_a_statement_that_grants_its_call() -> None:
    for function, probes in PROBES.items():
        granted = of_role(function)
        for probe in probes:
            assert probe.call in actions_of(dict(granted[probe.statement])), (function, probe)


def test_a_probe_names_a_statement_that_grants_its_key_of_the_table() -> None:
    for function, probes in PROBES.items():
        granted = of_role(function)
        on_table = [one for one in probes if one.about.endswith("#")]
        assert on_table, function
        for probe in on_table:
            key, statement = f"{probe.about}leeway-probe", dict(granted[probe.statement])
            assert grants_key([statement], probe.call, key), (function, probe)


def test_every_action_on_every_kind_of_key_is_asked_for() -> None:
    for function, probes in PROBES.items():
        wanted = {
            (sid, action, key.removesuffix("*"))
            for sid, statement in of_role(function).items()
            for action in actions_of(dict(statement))
            for key in keys(statement)
        }
        assert wanted <= {(one.statement, one.call, one.about) for one in probes}, function


def keys(statement: Mapping[str, Any]) -> list[str]:
    condition = statement.get("Condition", {}).get("ForAllValues:StringLike", {})
    found = condition.get("dynamodb:LeadingKeys", [])
    return [found] if isinstance(found, str) else found
