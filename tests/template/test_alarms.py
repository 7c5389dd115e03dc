"""Each alarm of the template notifies its topic and has a section in the runbook.

`test_reached.py` tests that it watches a metric that is emitted.
"""

import re

from tests.template.granted import resources
from tests.template.reached import FUNCTIONS, ROOT
from tests.template.translation import translated

ALARMS = {n: r for n, r in resources().items() if r["Type"] == "AWS::CloudWatch::Alarm"}

DONE_AGAIN = {"ProvisionFailures", "ReconcileFailures"}
"""Queues whose work the run of the next minute repeats."""

CAN_WAIT = {
    "CatalogNotRefreshedAlarm",
    "MinorProblemsAlarm",
    "RetirementProblemsAlarm",
}
"""Alarms that can wait until the morning: nodes are drained and replaced in spite of them."""

BY_THE_CLOCK = {
    "CatalogNotRefreshedAlarm",
    "HeadroomNotKeptAlarm",
    "ReconcileNotDoneAlarm",
    "WatchPodsNotDoneAlarm",
}
"""Alarms of scheduled functions, for which missing data is the failure."""


def test_every_queue_of_work_that_is_not_repeated_is_watched() -> None:
    queues = {name for name, r in resources().items() if r["Type"] == "AWS::SQS::Queue"}
    watched = [a["Properties"] for a in ALARMS.values()]
    named = {str(m["Dimensions"]) for m in watched if m["Namespace"] == "AWS/SQS"}
    unwatched = {queue for queue in queues if not any(f"'{queue}'" in text for text in named)}
    assert unwatched == DONE_AGAIN


def test_an_alarm_notifies_its_topic_at_its_start_and_end() -> None:
    page = {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    later = {"Fn::If": ["HasWarningTopic", [{"Ref": "WarningTopicArn"}], page]}
    for name, alarm in ALARMS.items():
        topics, found = later if name in CAN_WAIT else page, alarm["Properties"]
        assert (found["AlarmActions"], found["OKActions"]) == (topics, topics), name


def test_missing_data_has_the_right_meaning_for_each_alarm() -> None:
    """Metrics of failures have no data without failures. Metrics of scheduled functions have no
    data if they do not run. SQS stops its metrics six hours after the last message."""
    for name, alarm in ALARMS.items():
        of_a_queue = alarm["Properties"].get("Namespace") == "AWS/SQS"
        expected = "ignore" if of_a_queue else "notBreaching"
        if name in BY_THE_CLOCK:
            expected = "breaching"
        assert alarm["Properties"]["TreatMissingData"] == expected, name


def test_every_scheduled_function_has_an_alarm_for_missing_runs() -> None:
    scheduled = {
        r["Properties"]["Target"]["Arn"]["Fn::GetAtt"][0]
        for r in resources().values()
        if r["Type"] == "AWS::Scheduler::Schedule" and "State" not in r["Properties"]
    }
    assert len(scheduled) == len(BY_THE_CLOCK)
    watched = [str(ALARMS[name]["Properties"]["Dimensions"]) for name in BY_THE_CLOCK]
    for function in scheduled:
        variables = resources()[function]["Properties"]["Environment"]["Variables"]
        names = (f"'Ref': '{function}'", f"'{variables['POWERTOOLS_SERVICE_NAME']}'")
        assert [any(name in metrics for name in names) for metrics in watched].count(True) == 1


def test_an_alarm_over_several_minutes_tolerates_one_good_minute() -> None:
    alarms = [a["Properties"] for a in ALARMS.values()]
    patient = [a for a in alarms if a.get("Period", 60) == 60 and a["EvaluationPeriods"] > 1]
    assert patient
    for alarm in patient:
        assert 1 < alarm["DatapointsToAlarm"] < alarm["EvaluationPeriods"]


def sections() -> dict[str, str]:
    """Return the sections of the runbook by alarm."""
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    found = re.findall(r"^## (\w+Alarm)\n(.*?)(?=^## |\Z)", runbook, re.MULTILINE | re.DOTALL)
    return dict(found)


def test_the_runbook_has_a_section_for_every_alarm_and_for_no_other() -> None:
    assert sorted(sections()) == sorted(ALARMS)


def test_a_section_has_the_meaning_the_places_to_check_and_the_actions() -> None:
    for name, section in sections().items():
        for part in ("**Means.**", "**Look.**", "**Do.**"):
            assert section.count(part) == 1, name
        assert ("This alarm can wait until the morning." in section) == (name in CAN_WAIT), name


def test_an_alarms_description_ends_with_the_link_to_its_section() -> None:
    for name, alarm in ALARMS.items():
        text = alarm["Properties"]["AlarmDescription"]["Fn::Sub"]
        sentence, _, link = text.rpartition(". ")
        assert sentence, name
        assert link == f"${{RunbookUrl}}#{name.lower()}"


def test_the_runbook_names_only_existing_functions_and_outputs() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    names = {name.replace("_", "-") for name in FUNCTIONS}
    called = set(re.findall(r"(?:/aws/lambda/|--function-name )leeway-([a-z-]+)", runbook))
    assert "retire-node" in called
    assert called <= names
    template = translated()
    known = template["Outputs"].keys() | template["Parameters"].keys()
    assert set(re.findall(r"`(\w+(?:Url|Arn|Size|Names|Ids))`", runbook)) <= known
