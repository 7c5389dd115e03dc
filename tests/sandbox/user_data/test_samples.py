"""User data as users and other tools write it, each with the node that it describes."""

import json
from base64 import b64encode
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pytest
from leeway_sandbox.user_data.configuration import Family, NodeConfiguration
from leeway_sandbox.user_data.families import read_user_data

SAMPLES = Path(__file__).parent / "samples"
FAMILIES = get_args(Family.__value__)


def _family(name: str) -> Any:
    return name.partition("-")[0]


def _shown(configuration: NodeConfiguration) -> Any:
    """The configuration as its golden file has it."""
    shown = asdict(configuration)
    authority = configuration.certificate_authority
    shown["certificate_authority"] = authority and b64encode(authority).decode()
    return json.loads(json.dumps(shown))


@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.txt")))
def test_a_sample_is_read_as_its_golden_file_says(name: str) -> None:
    configuration = read_user_data(_family(name), (SAMPLES / f"{name}.txt").read_bytes())
    golden = SAMPLES / f"{name}.json"
    assert _shown(configuration) == json.loads(golden.read_text())


def test_every_family_has_a_sample() -> None:
    assert {_family(path.stem) for path in SAMPLES.glob("*.txt")} == set(FAMILIES)
