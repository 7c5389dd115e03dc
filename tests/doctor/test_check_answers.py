"""What functions answer to probes becomes one finding for each cause."""

from dataclasses import replace
from typing import Any

import pytest
from leeway_cli.adopt.settings.access import AccessEntry
from leeway_cli.doctor.examine import examine
from leeway_cli.doctor.facts import Answer, FunctionAnswers
from leeway_cli.doctor.rights import Right

from tests.doctor.cases import STACK, cluster, healthy

ROLE = "arn:aws:iam::123456789012:role/leeway-RetireNodeRole-1A2B"
NODES = {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}
DENIED = Answer("dynamodb:PutItem", "CHURN#", "KeepRecords", "denied", "User is not authorized")


def answers(**changes: Any) -> FunctionAnswers:
    given: dict[str, Any] = {
        "name": "leeway-retire-node",
        "function": "retire-node",
        "cluster": "prod",
        "answers": (Answer("eks:DescribeCluster", "", "FindApiServers", "allowed", ""),),
        "rules": (NODES,),
    }
    return FunctionAnswers(**(given | changes))


def found(*some: FunctionAnswers, **changes: Any) -> list[tuple[str, str, str]]:
    stack = replace(STACK, groups={ROLE: "leeway:drain"}, **changes.pop("stack", {}))
    entries = {*changes.pop("entries", [AccessEntry(ROLE, frozenset({"leeway:drain"}))])}
    plain = cluster()
    assert isinstance(plain.entries, tuple)
    kept = tuple(one for one in plain.entries if one.is_of_nodes)
    facts = healthy(
        stack=stack, clusters=(cluster(entries=(*entries, *kept), **changes),), answers=some
    )
    return [(one.severity.value, one.code, one.reason) for one in examine(facts)]


def codes(*some: FunctionAnswers, **changes: Any) -> list[tuple[str, str]]:
    return [(severity, code) for severity, code, _ in found(*some, **changes)]


def test_a_function_whose_calls_are_allowed_has_no_finding() -> None:
    assert codes(answers()) == []


def test_all_calls_of_a_missing_statement_are_one_finding_for_all_clusters() -> None:
    get = replace(DENIED, call="dynamodb:GetItem")
    one = answers(answers=(DENIED, get))
    other = replace(one, cluster="stage", rules=None)
    ((severity, code, message),) = found(one, other)
    assert (severity, code) == ("fails", "RightMissing")
    assert "AWS refuses leeway-retire-node dynamodb:PutItem (CHURN#), dynamodb:GetItem" in message
    assert "statement KeepRecords" in message


def test_two_missing_statements_are_two_findings() -> None:
    other = replace(DENIED, statement="Look", call="ec2:DescribeInstances", about="")
    assert codes(answers(answers=(DENIED, other))) == [("fails", "RightMissing")] * 2


def test_a_service_that_does_not_answer_is_one_finding() -> None:
    some = tuple(
        Answer(f"ssm:{call}", "", "FindImages", "unreachable", "ConnectTimeoutError")
        for call in ("GetParameter", "GetParameters")
    )
    assert codes(answers(answers=some)) == [("fails", "ProbeNotAnswered")]


def test_an_answer_that_says_nothing_is_a_warning() -> None:
    odd = Answer("ec2:RunInstances", "", "UseResources", "unclear", "Odd: odd")
    assert codes(answers(answers=(odd,))) == [("warns", "ProbeNotAnswered")]


def test_a_call_that_nothing_can_be_asked_about_is_no_finding() -> None:
    none = Answer("ec2:RunInstances", "", "UseResources", "nothing to ask about", "")
    assert codes(answers(answers=(none,))) == []


def test_a_function_that_does_not_answer_is_one_finding() -> None:
    silent = answers(answers=(), rules=None, problem="it has not answered within 90 s")
    assert codes(silent) == [("fails", "ProbeNotAnswered")]


@pytest.mark.parametrize("call", ["CreateFleet", "RunInstances", "CreateLaunchTemplate"])
def test_a_stack_without_node_roles_may_launch_nothing(call: str) -> None:
    denied = Answer(f"ec2:{call}", "", "UseResources", "denied", "no")
    given = answers(name="leeway-provision-nodes", answers=(denied,), rules=None)
    without = {"stack": {"node_roles": ()}}
    assert ("fails", "RightMissing") not in codes(given, **without)
    assert ("fails", "RightMissing") in codes(given)


def test_an_api_server_that_refuses_the_token_is_a_finding() -> None:
    refused = answers(rules=(), cluster_problem="401: Unauthorized")
    assert codes(refused) == [("fails", "RightMissing")]


def test_a_token_without_the_rights_of_the_group_is_a_finding() -> None:
    ((_, code, message),) = found(answers(rules=()))
    assert code == "RightMissing"
    assert "may not get nodes in cluster prod" in message


@pytest.mark.parametrize("rule", [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, NODES])
def test_a_rule_with_wildcards_grants_a_right(rule: Any) -> None:
    assert codes(answers(rules=(rule,))) == []


def test_a_right_that_the_group_lacks_is_only_a_finding_about_the_group() -> None:
    lacks = Right("leeway:drain", "get", "", "nodes", role="leeway-drain")
    assert codes(answers(rules=()), rights=(lacks,)) == [("fails", "RightMissing")]


@pytest.mark.parametrize("entries", [[], [AccessEntry(ROLE, frozenset({"other"}))]])
def test_an_access_entry_that_is_missing_or_differs_is_the_only_finding(entries: Any) -> None:
    refused = answers(rules=(), cluster_problem="401: Unauthorized")
    ((_, code, message),) = found(refused, entries=entries)
    assert code == "ClusterSettingDiffers"
    assert "access entry" in message
