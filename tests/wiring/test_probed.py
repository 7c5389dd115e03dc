"""Only a probe is answered as a probe: no event of AWS ever is, and no probe gets to a handler."""

import json
from pathlib import Path
from typing import Any

import pytest
from leeway.wiring import probes
from leeway.wiring.clients import probed, settings

from tests.template.granted import resources

EVENTS = Path(__file__).parents[2] / "events"


@probed
def handler(event: Any, context: object) -> str:
    return "handled"


@pytest.fixture(autouse=True)
def stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEEWAY_TABLE", "table")
    monkeypatch.setenv("LEEWAY_CLUSTERS", "prod")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "nothing")
    monkeypatch.setattr(probes, "PROBES", {"nothing": ()})
    settings.cache_clear()


def inputs_of_schedules() -> list[Any]:
    texts = [
        json.dumps(one["Properties"]["Target"].get("Input", "null"))
        for one in resources().values()
        if one["Type"] == "AWS::Scheduler::Schedule"
    ]
    return [json.loads(text) for text in texts]


def test_an_event_gets_to_the_handler() -> None:
    files = sorted(EVENTS.rglob("*.json"))
    assert len(files) > 20
    for file in files:
        assert handler(json.loads(file.read_text()), None) == "handled", file


def test_what_has_other_keys_gets_to_the_handler() -> None:
    events = [
        None,
        "probe",
        [],
        {},
        {"leeway": "probe"},
        {"Records": []},
        {"instance": "i-00000000", "cluster": "none", "attempt": 1},
        {"leeway": "probe", "cluster": "prod", "detail-type": "EC2 Spot Instance Interruption"},
        *inputs_of_schedules(),
    ]
    for event in events:
        assert handler(event, None) == "handled", event


def test_a_probe_is_answered_instead_of_the_handler() -> None:
    answer = handler({"leeway": "probe", "cluster": "prod"}, None)
    assert answer == {"function": "nothing", "cluster": "prod", "answers": [], "kubernetes": None}


@pytest.mark.parametrize("cluster", ["other", "prod,other", "../prod", ["prod"]])
def test_a_probe_asks_only_about_clusters_of_the_stack(cluster: Any) -> None:
    answer = handler({"leeway": "probe", "cluster": cluster}, None)
    assert isinstance(answer, dict)
    assert answer["answers"] == []
    assert answer["problem"]
