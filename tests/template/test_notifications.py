"""examples/notifications.yaml sends each of Leeway's events that needs a person, whole."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from leeway.retirement.outcome import RetirementResult
from leeway_sandbox.intrinsics import Resolver
from moto.events.models import EventPattern
from samtranslator.yaml_helper import yaml_parse

from tests.admission.admission_run import admit
from tests.admission.launched import with_failures
from tests.fakes.retirement import retire, retirement_fakes

TEMPLATE = yaml_parse((Path(__file__).parents[2] / "examples" / "notifications.yaml").read_text())
TARGETS = ("EmailRule", "SlackRule", "TeamsRule")
HOSTILE = 'The API server answers "no" \\ <!channel> {"text": 1}\nand ends.'


def resolved(**parameters: str) -> Resolver:
    everybody = {
        "Email": "ops@example.com",
        "SlackUrl": "https://hooks.slack.com/services/T/B/x",
        "TeamsUrl": "https://example.com/hook",
    }
    return Resolver(
        TEMPLATE, everybody | parameters, stack="told", region="eu-central-1", account="1" * 12
    )


def event(title: str, detail: dict[str, Any]) -> Any:
    return {"source": "leeway", "detail-type": title, "detail": detail}


@cache
def events() -> Mapping[str, Any]:
    """Events as the functions publish them: a drained node, one with pods left, a failed launch and
    the pause of its pool."""
    drained = retire(retirement_fakes())
    left = replace(drained, result=RetirementResult.INCOMPLETE)
    failed = with_failures()
    admit(failed)
    not_admitted, paused = failed.details[1], failed.details[0]
    return {
        "drained": event(drained.title, json.loads(drained.to_json())),
        "left": event(left.title, json.loads(left.to_json())),
        "paused": event("Leeway Pool Paused", paused),
        "not admitted": event("Leeway Node Not Admitted", not_admitted),
    }


def is_sent(resolver: Resolver, rule: str, told: Any) -> bool:
    pattern = resolver.value(TEMPLATE["Resources"][rule]["Properties"]["EventPattern"], rule)
    return bool(EventPattern(None, pattern).matches_event(told))


def rendered(rule: str, told: Any) -> str:
    """Render the input of a target. Source: EventBridge user guide, "Transforming target input": a
    placeholder that stands in quotes becomes the text, another one the JSON of its value."""
    (target,) = TEMPLATE["Resources"][rule]["Properties"]["Targets"]
    paths = target["InputTransformer"]["InputPathsMap"]
    template = target["InputTransformer"]["InputTemplate"]
    values = {
        name: told[path.removeprefix("$.")]
        if path == "$.detail-type"
        else told["detail"][path.removeprefix("$.detail.")]
        for name, path in paths.items()
    }
    template = re.sub(r": <(\w+)>", lambda m: ": " + json.dumps(values[m[1]]), template)
    return re.sub(r"<(cluster|message|title)>", lambda m: str(values[m[1]]), template)


@pytest.mark.parametrize("rule", TARGETS)
def test_what_needs_a_person_is_sent_and_nothing_else(rule: str) -> None:
    sent = {name for name, told in events().items() if is_sent(resolved(), rule, told)}
    assert sent == {"left", "paused", "not admitted"}
    everything = resolved(Everything="yes")
    assert all(is_sent(everything, rule, told) for told in events().values())
    foreign = {**events()["left"], "source": "com.example"}
    assert not is_sent(everything, rule, foreign)


@pytest.mark.parametrize("rule", TARGETS)
@pytest.mark.parametrize("name", ["drained", "left", "paused", "not admitted"])
def test_a_message_names_the_cluster_and_says_what_happened(rule: str, name: str) -> None:
    told = events()[name]
    text = rendered(rule, told)
    assert told["detail"]["cluster"] == "prod"
    assert f"{told['detail-type']}, cluster prod" in text
    assert json.dumps(told["detail"]["message"])[1:-1] in text


@pytest.mark.parametrize("rule", ["SlackRule", "TeamsRule"])
def test_a_message_of_any_characters_stays_one_text(rule: str) -> None:
    left = events()["left"]
    told = left | {"detail": left["detail"] | {"message": HOSTILE}}
    body = json.loads(rendered(rule, told))

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [found for one in value.values() for found in texts(one)]
        if isinstance(value, list):
            return [found for one in value for found in texts(one)]
        return [value]

    assert texts(body).count(HOSTILE) == 1
    assert not [one for one in texts(body) if "<!channel>" in one and one != HOSTILE]


def test_only_what_has_an_address_is_created() -> None:
    alone = resolved(SlackUrl="", TeamsUrl="")
    assert {name for name in TEMPLATE["Resources"] if alone.exists(name)} == {
        "Topic",
        "TopicPolicy",
        "EmailRule",
    }
