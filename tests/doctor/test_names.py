"""The names and events that the doctor looks for are those of template.yaml."""

import json
from pathlib import Path

import pytest
from leeway import __version__
from leeway_cli.doctor.names import (
    ALIAS,
    AWAKE,
    DURABLE,
    EVENTS,
    FUNCTIONS,
    function_name,
    matches,
    schedule_names,
)
from leeway_sandbox.template import DeployedTemplate, parse_template, read_template

TEMPLATE = Path(__file__).parents[2] / "template.yaml"


@pytest.fixture(scope="module")
def template() -> DeployedTemplate:
    return read_template(TEMPLATE, {"ClusterNames": "prod", "SubnetIds": "subnet-1"})


def test_the_stack_states_the_version_of_its_code() -> None:
    outputs = parse_template(TEMPLATE.read_text())["Outputs"]
    assert outputs["Version"]["Value"] == __version__


def test_functions_and_their_aliases(template: DeployedTemplate) -> None:
    aliases = {one.name: one.aliases for one in template.functions}
    assert set(aliases) == {function_name("leeway", one) for one in FUNCTIONS}
    published = {name for name, given in aliases.items() if given == (ALIAS,)}
    assert published == {function_name("leeway", one) for one in DURABLE}


def test_schedules_in_a_vpc_and_outside(template: DeployedTemplate) -> None:
    targets = {one.name: one.definition["Target"]["Arn"] for one in template.schedules}
    expected = schedule_names("leeway", in_vpc=True)
    assert set(targets) == set(expected)
    assert all(f":{function_name('leeway', expected[name])}" in targets[name] for name in targets)
    outside = schedule_names("leeway", in_vpc=False)
    assert set(expected) - set(outside) == {f"leeway-{one}-stays-awake" for one in AWAKE}


def test_every_rule_matches_its_events_and_every_event_has_a_rule(
    template: DeployedTemplate,
) -> None:
    rules = [one for one in template.rules if one.pattern]
    matched = [[event for event in EVENTS if matches(one.pattern or {}, event)] for one in rules]
    assert all(matched)
    assert {id(event) for events in matched for event in events} == set(map(id, EVENTS))


def test_the_queues_of_failures_have_names_by_which_they_are_found(
    template: DeployedTemplate,
) -> None:
    dead = {
        json.loads(q.attributes["RedrivePolicy"])["deadLetterTargetArn"]
        for q in template.queues
        if "RedrivePolicy" in q.attributes
    }
    dead |= {one.dead_letter or one.on_failure or "" for one in template.functions} - {""}
    names = {one.name for one in template.queues if one.arn in dead}
    assert len(names) == 5
    assert all("failures" in name.lower() and name.startswith("leeway-") for name in names)
