"""The faults of `leeway sandbox`, from their short forms."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from leeway_cli.errors import BadInputError
from leeway_cli.sandbox.faults import read_faults
from leeway_sandbox.aws.faults import Fault as AwsFault
from leeway_sandbox.kubernetes.control import Fault as KubernetesFault
from leeway_sandbox.lambda_service.faults import Fault as LambdaFault

UNAVAILABLE = {"error": "ServiceUnavailable", "status": 503}


@pytest.mark.parametrize(
    ("word", "part", "fault"),
    [
        (
            "aws:ec2:Describe*:error=0.3",
            "aws",
            {"service": "ec2", "action": "Describe*", "rate": 0.3, **UNAVAILABLE},
        ),
        ("aws:*:*:latency=2", "aws", {"service": "*", "action": "*", "latency": 2}),
        (
            "kubernetes:create:pods/eviction:error=1",
            "kubernetes",
            {"verb": "create", "resource": "pods/eviction", "rate": 1, "status": 503},
        ),
        (
            "kubernetes:*:nodes:latency=0.5",
            "kubernetes",
            {"verb": "*", "resource": "nodes", "latency": 0.5},
        ),
        (
            "capacity:m5.large:us-east-1a:lost=1",
            "aws",
            {
                "service": "*",
                "action": "Launch",
                "instance_type": "m5.large",
                "zone": "us-east-1a",
                "error": "InsufficientInstanceCapacity",
                "message": "We currently do not have sufficient m5.large capacity in us-east-1a.",
                "rate": 1,
            },
        ),
        (
            "capacity:m5.*:*:spot:lost=0.5",
            "aws",
            {
                "service": "*",
                "action": "Launch",
                "instance_type": "m5.*",
                "zone": "*",
                "capacity_type": "spot",
                "error": "InsufficientInstanceCapacity",
                "message": "We currently do not have sufficient m5.* capacity in *.",
                "rate": 0.5,
            },
        ),
        (
            "aws:ec2:CreateFleet:lost=1",
            "aws",
            {"service": "ec2", "action": "CreateFleet", "drop": True, "rate": 1},
        ),
        ("down", "kubernetes", {"refuse": True}),
        (
            "evictions:hold=5",
            "kubernetes",
            {"verb": "create", "resource": "pods/eviction", "hold": 5},
        ),
        (
            "lambda:*watch-pods:timeout=20",
            "lambda",
            {"function": "*watch-pods", "timeout": 20},
        ),
        ("queues:copies=2", "lambda", {"copies": 2}),
        ("queues:late=3", "lambda", {"latency": 3}),
        (
            "lambda:*retire-node:kill=3",
            "lambda",
            {"function": "*retire-node", "kill": "before", "step": 3},
        ),
        (
            "events:lost=0.1",
            "aws",
            {"service": "events", "action": "Deliver", "drop": True, "rate": 0.1},
        ),
    ],
)
def test_a_fault_has_the_form_of_its_part_of_the_sandbox(
    word: str, part: str, fault: dict[str, Any]
) -> None:
    wanted = read_faults([word])
    assert wanted.parts == {"kubernetes": [], "aws": [], "lambda": []} | {part: [fault]}
    match part:
        case "aws":
            AwsFault.model_validate(fault)
        case "lambda":
            LambdaFault.model_validate(fault)
        case _:
            msgspec.convert(fault, KubernetesFault)


def test_the_faults_of_deliveries_are_merged() -> None:
    words = ["events:copies=2", "events:late=5", "events:lost=0.1", "events:shuffled=3"]
    delivery = {"service": "events", "action": "Deliver"}
    assert read_faults(words).parts["aws"] == [
        {**delivery, "drop": True, "rate": 0.1},
        {**delivery, "copies": 2, "latency": 5, "jitter": 3},
    ]


def test_throttle_is_a_switch_and_a_file_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    path.write_text(json.dumps([{"verb": "get", "status": 429}]))
    wanted = read_faults(["throttle", f"kubernetes={path}"])
    assert wanted.throttle
    assert wanted.parts["kubernetes"] == [{"verb": "get", "status": 429}]


@pytest.mark.parametrize(
    ("word", "printed"),
    [
        ("azure", "expected a form that"),
        ("aws:ec2:error=0.3", "expected a form that"),
        ("aws:ec2:Describe*:error=2", "expected a number, 0 to 1, got '2'"),
        ("events:late=soon", "expected a number, 0 or more, got 'soon'"),
        ("aws", "expected a form that"),
        ("aws=nowhere.json", "nowhere.json: No such file or directory"),
    ],
)
def test_an_invalid_fault_is_one_line(word: str, printed: str) -> None:
    with pytest.raises(BadInputError, match=printed) as refused:
        read_faults([word])
    assert "\n" not in str(refused.value)
