"""`leeway logs`: which lines it shows, in which order, and how."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO, TextIOWrapper
from typing import Any

import pytest
from botocore.exceptions import ClientError
from leeway_cli import main
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.logs import FUNCTIONS, About, Level, LogSearch, parse_line

from tests.sandbox.aws.started import Sandbox
from tests.template.granted import resources

INSTANCE, OTHER = "i-0b662ef9931388ba0", "i-0b662ef9931388ba1"


def line(message: str, level: str = "INFO", **fields: Any) -> str:
    logged = {"level": level, "location": "x:1", "message": message, "timestamp": "t", **fields}
    return json.dumps(logged | {"service": "s"}, separators=(",", ":")) + "\n"


LINES: dict[str, list[tuple[float, str]]] = {
    "receive-notice": [
        (1, line("The notice starts.", code="RetirementStarted", instance=INSTANCE, cluster="a")),
        (9, "REPORT RequestId: 1\tDuration: 1 ms\n"),
    ],
    "retire-node": [
        (2, "START RequestId: 2 Version: 1\n"),
        (
            5,
            line(
                "Pods are left.",
                "WARNING",
                code="PodsLeftBehind",
                instance=INSTANCE,
                cluster="a",
                left_behind=["shop/web-1: a budget"],
            ),
        ),
        (6, line("Other.", code="NodeDrained", instance=OTHER, cluster="b")),
        (7, '{"_aws":{},"service":"leeway","NodesNotCordoned":1}\n'),
    ],
    "reconcile": [
        (4, "2026-11-23T14:00:00Z 7d Task timed out after 60.00 seconds\n\n"),
        (3, "[ERROR] KeyError: 'x'\nTraceback (most recent call last):\n  File y\n"),
    ],
    "provision-nodes": [
        (8, line("Leeway launched i-1 for pool web.", code="NodeLaunched", cluster="a")),
        (8.5, line("Leeway launched i-2 for pool web-big.", code="NodeLaunched", cluster="a")),
        (8.7, line("\x1b[31mred", "ERROR", code="ProvisioningFailed", cluster="b")),
    ],
}


@pytest.fixture
def groups(aws: Sandbox) -> Iterator[Any]:
    """The log groups of the functions in LINES, with their lines."""
    client = aws.client("logs")
    begun = int(time.time() * 1000) - 60_000
    for function, lines in LINES.items():
        place = {"logGroupName": f"/aws/lambda/leeway-{function}"}
        client.create_log_group(**place)
        client.create_log_stream(**place, logStreamName="a")
        events = [{"timestamp": begun + int(at * 1000), "message": m} for at, m in sorted(lines)]
        client.put_log_events(**place, logStreamName="a", logEvents=events)
    yield client
    for function in LINES:
        client.delete_log_group(logGroupName=f"/aws/lambda/leeway-{function}")


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The third word of each line and what follows: level, code, subject and sentence."""
    assert main.run(["logs", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [" ".join(one.split()[3:]) for one in lines]


def test_the_functions_are_those_of_the_template() -> None:
    names = {
        one["Properties"]["LogGroupName"]["Fn::Sub"].removeprefix("/aws/lambda/${AWS::StackName}-")
        for one in resources().values()
        if one["Type"] == "AWS::Logs::LogGroup"
    }
    assert names == set(FUNCTIONS)


def test_all_functions_are_shown_in_one_order_of_time(
    groups: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys) == [
        f"INFO RetirementStarted a/{INSTANCE}: The notice starts.",
        "ERROR - -: [ERROR] KeyError: 'x'",
        "ERROR - -: 2026-11-23T14:00:00Z 7d Task timed out after 60.00 seconds",
        f"WARNING PodsLeftBehind a/{INSTANCE}: Pods are left.",
        f"INFO NodeDrained b/{OTHER}: Other.",
        "INFO NodeLaunched a: Leeway launched i-1 for pool web.",
        "INFO NodeLaunched a: Leeway launched i-2 for pool web-big.",
        "ERROR ProvisioningFailed b: \\u001b[31mred",
    ]


def test_groups_that_do_not_exist_yet_are_named(
    groups: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["logs"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("warning: these log groups do not exist: /aws/lambda/leeway-admit-node,")
    assert "/aws/lambda/leeway-retire-node" not in said


def test_lines_are_selected(groups: Any, capsys: pytest.CaptureFixture[str]) -> None:
    selections: list[tuple[list[str], list[str]]] = [
        (["retire-node"], ["PodsLeftBehind", "NodeDrained"]),
        (["leeway-retire_node"], ["PodsLeftBehind", "NodeDrained"]),
        (["--level", "warning"], ["-", "-", "PodsLeftBehind", "ProvisioningFailed"]),
        (["reconcile", "--level", "error"], ["-", "-"]),
        (["--instance", INSTANCE], ["RetirementStarted", "PodsLeftBehind"]),
        (["--instance", INSTANCE, "--level", "warning"], ["PodsLeftBehind"]),
        (["--pod", "shop/web-1"], ["PodsLeftBehind"]),
        (["--pod", "shop/web"], []),
        (["--pool", "web"], ["NodeLaunched"]),
        (["--cluster", "b"], ["NodeDrained", "ProvisioningFailed"]),
        (["--cluster", "b", "--level", "error"], ["ProvisioningFailed"]),
        (["--cluster", "b", "--instance", INSTANCE], []),
        (["--since", "1s"], []),
    ]
    for arguments, codes in selections:
        assert [one.split()[1] for one in shown(capsys, *arguments)] == codes, arguments


def test_json_has_the_fields_of_a_line(groups: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["logs", "--pod", "shop/web-1", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["lines"]
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "function": "retire-node",
        "level": "WARNING",
        "code": "PodsLeftBehind",
        "cluster": "a",
        "subject": INSTANCE,
        "message": "Pods are left.",
        "fields": {"instance": INSTANCE, "left_behind": ["shop/web-1: a budget"]},
    }


def test_follow_prints_each_new_line_once(
    groups: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [line("Late.", code="Late"), line("Later.", code="Later")]

    def write_or_stop(_seconds: float) -> None:
        if not said:
            raise KeyboardInterrupt
        # The first line is older than the last one that was shown.
        event = {"timestamp": int(time.time() * 1000) - 55_000, "message": said.pop(0)}
        place = {"logGroupName": "/aws/lambda/leeway-retire-node", "logStreamName": "a"}
        groups.put_log_events(**place, logEvents=[event])

    monkeypatch.setattr("leeway_cli.logs.time.sleep", write_or_stop)
    codes = [one.split()[1] for one in shown(capsys, "retire-node", "--follow")]
    assert codes == ["PodsLeftBehind", "NodeDrained", "Late", "Later"]


def test_follow_keeps_no_line_back_in_a_pipe(groups: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(pipe))
    read: list[bytes] = []

    def read_and_stop(_seconds: float) -> None:
        read.append(pipe.getvalue())
        raise KeyboardInterrupt

    monkeypatch.setattr("leeway_cli.logs.time.sleep", read_and_stop)
    assert main.run(["logs", "retire-node", "--follow"]) == 0
    (first,) = read
    assert [one.split()[4] for one in first.splitlines()] == [b"PodsLeftBehind", b"NodeDrained"]


class Searched:
    """A client of CloudWatch Logs. `asked` has the start of each search in milliseconds."""

    def __init__(self, events: dict[str, list[tuple[int, str]]]) -> None:
        self.events, self.asked, self.refused = events, list[int](), ""

    def get_paginator(self, _: str) -> "Searched":
        return self

    def paginate(self, **asked: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(asked["startTime"])
        function = asked["logGroupName"].removeprefix("/aws/lambda/leeway-")
        found = [one for one in self.events.get(function, ()) if one[0] >= asked["startTime"]]
        yield {"events": [{"timestamp": at, "eventId": m, "message": m} for at, m in found]}
        if function == self.refused:
            answer: Any = {"Error": {"Code": "ThrottlingException", "Message": "slow down"}}
            raise ClientError(answer, "FilterLogEvents")


SECOND = 1_000
HOUR = 3_600 * SECOND


def search_of(client: Searched, monkeypatch: pytest.MonkeyPatch, clock: list[int]) -> LogSearch:
    monkeypatch.setattr("leeway.wiring.clients.client", lambda _: client)
    start = datetime.fromtimestamp(0, UTC)
    return LogSearch(
        "leeway",
        ("reconcile", "retire-node"),
        About(),
        Level.INFO,
        start,
        lambda: start + timedelta(milliseconds=clock[0]),
    )


def test_a_search_does_not_read_more_and_more_while_a_function_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [HOUR]
    client = Searched({"reconcile": [(HOUR - 400 * SECOND, line("Done."))]})
    search = search_of(client, monkeypatch, clock)
    assert [one.message for one in search.new_lines()] == ["Done."]
    clock[0] = 10 * HOUR
    # The clock of this machine is 4 minutes ahead of that of AWS.
    client.events["reconcile"].append((10 * HOUR - 240 * SECOND, line("Again.")))
    assert [one.message for one in search.new_lines()] == ["Again."]
    assert search.new_lines() == []
    assert client.asked[:2] == [0, 0]
    assert client.asked[2:4] == [HOUR - 330 * SECOND] * 2
    assert client.asked[4:] == [10 * HOUR - 270 * SECOND, 10 * HOUR - 330 * SECOND]


def test_a_search_that_fails_loses_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    events = {
        "reconcile": [(1, line("One."))],
        "retire-node": [(HOUR, line("Three.")), (HOUR - 60 * SECOND, line("Two."))],
    }
    client = Searched(events)
    client.refused = "retire-node"
    search = search_of(client, monkeypatch, [HOUR])
    assert [one.message for one in search.new_lines_or_warning()] == ["One.", "Two.", "Three."]
    with pytest.raises(CannotBeDoneError):
        search.new_lines()
    client.events["reconcile"].append((HOUR, line("Four.")))
    with pytest.raises(CannotBeDoneError):
        search.new_lines()
    client.refused = ""
    assert [one.message for one in search.new_lines()] == ["Four."]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["drain"], "FUNCTION: expected one of receive-notice, retire-node, admit-node, "),
        (["--since", "yesterday"], "--since: expected a duration such as 90s or 1h30m"),
        (["--since", "0"], "--since: expected a duration such as 15m or 1h, got 0."),
        (["--instance", "node-1"], "--instance: expected an instance ID such as i-0b662ef9"),
        (["--pod", "web-1"], "--pod: expected NAMESPACE/NAME, got 'web-1'."),
        (["--pool", 'a" }'], "--pool: expected the name of a node pool, got 'a\" }'."),
        (["--cluster", "a b"], "--cluster: expected the name of a cluster, got 'a b'."),
        (["--stack", "a/b"], "--stack: expected the name of a stack, got 'a/b'."),
        (["--follow", "-o", "json"], "--output: expected table with --follow."),
        (["--level", "loud"], "'loud' is not one of 'debug', 'info', 'warning', 'error'."),
    ],
)
def test_bad_input_gets_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main.run(["logs", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_stack_without_log_groups_is_one_line(
    aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["logs", "--stack", "none"]) == 1
    assert capsys.readouterr().err == (
        "leeway: Region us-east-1 has no log group /aws/lambda/none-receive-notice. Check "
        "AWS_REGION and --stack; `sam deploy` creates the log groups of a stack.\n"
    )


def test_a_refused_call_names_the_right(
    groups: Any, aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = {"service": "logs", "error": "AccessDeniedException", "message": "no"}
    aws.control("PUT", "faults", {"faults": [fault]})
    assert main.run(["logs", "reconcile"]) == 1
    aws.control("PUT", "faults", {"faults": []})
    assert "may not call FilterLogEvents on log group /aws/lambda/" in capsys.readouterr().err


@pytest.mark.parametrize(
    "secret",
    [
        "k8s-aws-v1.aHR0cHM6Ly9zdHM",
        "https://sts/?X-Amz-Signature=0123abcd&X-Amz-Security-Token=IQoJb3J%2F",
        "Authorization: Bearer abc.def-ghi",
    ],
)
def test_tokens_and_signatures_are_hidden(secret: str) -> None:
    found = parse_line("reconcile", 0, line(f"Refused: {secret} end"), About(), Level.INFO)
    assert found is not None
    assert "***" in found.message
    assert found.message.endswith(" end")
    for part in ("aHR0", "0123abcd", "IQoJ", "abc.def"):
        assert part not in found.as_text()
