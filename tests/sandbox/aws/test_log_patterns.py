"""Filter patterns of CloudWatch Logs. Source: "Filter pattern syntax" in its guide."""

import json

import pytest
from leeway_sandbox.aws.log_patterns import BadPatternError, selecting

PLAIN = "[ERROR 400] BAD REQUEST"
EVENT = {
    "eventType": "UpdateTrail",
    "sourceIPAddress": "111.111.111.111",
    "arrayKey": ["value", "another value"],
    "objectList": [{"name": "a", "id": 1}, {"name": "b", "id": 2}],
    "SomeObject": None,
    "cluster.name": "c",
    "bandwidth": 75,
    "ThisFlag": True,
}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("", True),
        ("ERROR", True),
        ("error", False),
        ("ERRO", False),
        ("ERROR REQUEST", True),
        ("ERROR ARGUMENTS", False),
        ("?ERROR ?ARGUMENTS", True),
        ("?WARN ?ARGUMENTS", False),
        ('?"[ERROR" ?"Task timed out"', True),
        ('"BAD REQUEST"', True),
        ('"REQUEST BAD"', False),
        ("ERROR -BAD", False),
        ("ERROR -GOOD", True),
        # With other terms, those with a question mark have no effect.
        ("?WARN ERROR", True),
        ("%ERROR [0-9]+%", True),
        ('{ $.level = "*" }', False),
    ],
)
def test_terms_select_words_and_phrases(pattern: str, found: bool) -> None:
    assert selecting(pattern)(PLAIN) is found


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ('{ $.eventType = "UpdateTrail" }', True),
        ('{$.eventType="UpdateTrail"}', True),
        ("{ $.eventType = UpdateTrail }", True),
        ('{ $.eventType != "UpdateTrail" }', False),
        ('{ $.missing != "x" }', False),
        ("{ $.sourceIPAddress != 123.123.* }", True),
        ("{ $.sourceIPAddress = 111.111.* }", True),
        ('{ $.arrayKey[0] = "value" }', True),
        ('{ $.arrayKey[5] = "value" }', False),
        ("{ $.objectList[1].id = 2 }", True),
        ("{ $.objectList[1].id > 2 }", False),
        ("{ $.SomeObject IS NULL }", True),
        ("{ $.eventType IS NULL }", False),
        ("{ $.SomeOtherObject NOT EXISTS }", True),
        ("{ $.SomeObject NOT EXISTS }", False),
        ("{ $.ThisFlag IS TRUE }", True),
        ("{ $.ThisFlag IS FALSE }", False),
        ("{ $.['cluster.name'] = \"c\" }", True),
        ("{ $.bandwidth > 74.5 }", True),
        ("{ $.bandwidth = 75 }", True),
        ('{ $.eventType = "*" }', True),
        ('{ $.missing = "*" }', False),
        ("{ ($.bandwidth < 3 || $.bandwidth > 70) && $.ThisFlag IS TRUE }", True),
        ('{ ($.eventType = "x") || ($.eventType = "UpdateTrail") }', True),
        ('{ ($.eventType = "x") && ($.eventType = "UpdateTrail") }', False),
        ("{ $.eventType = %^Update[A-Z]% }", True),
    ],
)
def test_conditions_select_fields(pattern: str, found: bool) -> None:
    assert selecting(pattern)(json.dumps(EVENT) + "\n") is found


def test_a_text_in_quotation_marks_may_hold_quotation_marks() -> None:
    assert selecting('{ $.a = "say \\"x\\"" }')('{"a": "say \\"x\\""}')


@pytest.mark.parametrize(
    "pattern",
    [
        "[ERROR] timed",
        '"open',
        "a-b",
        '{ $.level = "ERROR"',
        "{ level = ERROR }",
        "{ $.level }",
        "{ $.level = }",
        '{ $.level > "x" }',
        "{ $.a = 1 $.b = 2 }",
        "{ ($.a = 1 }",
        "{ $.a NOT NULL }",
    ],
)
def test_a_pattern_that_aws_refuses_is_refused(pattern: str) -> None:
    with pytest.raises((BadPatternError, NotImplementedError)):
        selecting(pattern)
