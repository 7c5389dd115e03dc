"""A night on call: a fault, and the commands of the runbook's section about it."""

import os
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from leeway_sandbox.provisioning import client, create_workloads
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.stack import Named

from tests.drills.page import RUNBOOK, Section, sections
from tests.drills.shell import Shell
from tests.end_to_end.environment import PATIENCE, Entry, Environment, Journal, until
from tests.end_to_end.provisioning import CLUSTER

PAGE = sections(RUNBOOK.read_text(encoding="utf-8"))

_DATED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  ")

type Test = Callable[..., None]

DRILLED: dict[str, set[str]] = {}
"""The reason codes that each section's drills show, by the anchor of the section."""

LED_TO: dict[str, set[str]] = {}
"""The sections that drills are led to by the first one of each, by its anchor."""


type Path = tuple[Sequence[Section], Collection[str]]
"""The sections of a drill, and the reason codes that the commands of each show."""


def drill(*anchors: str, codes: Collection[str] = ()) -> Callable[[Test], Test]:
    """Mark a test as the drill of a section of the runbook, and of those that it leads to. The
    commands of each show these reason codes."""

    def mark(test: Test) -> Test:
        vars(test)["drill"] = _path(anchors, codes)
        return test

    return mark


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table of drills: the function whose next run meets these faults of a part of the
    sandbox, and the anchors and codes of `drill`."""

    function: str
    anchors: tuple[str, ...]
    codes: tuple[str, ...]
    part: str
    faults: Sequence[dict[str, Any]]


def drills(*rows: Row) -> Callable[[Test], Test]:
    """Mark a test with a `row` as the drill of each row."""
    for row in rows:
        _path(row.anchors, row.codes)
    mark: Callable[[Test], Test] = pytest.mark.parametrize(
        "row", rows, ids=lambda row: "-".join(row.codes)
    )
    return mark


def path_of(request: pytest.FixtureRequest) -> Path:
    """Return the path of the drill that a test is."""
    callspec = getattr(request.node, "callspec", None)
    if callspec and isinstance(row := callspec.params.get("row"), Row):
        return _path(row.anchors, row.codes)
    found: Path = request.function.drill
    return found


def _path(anchors: Collection[str], codes: Collection[str]) -> Path:
    for anchor in anchors:
        DRILLED.setdefault(anchor, set()).update(codes)
    first, *others = anchors
    LED_TO.setdefault(first, set()).update(others)
    return [PAGE[anchor] for anchor in anchors], codes


def consume_queue(sandbox: Sandbox, *, enabled: bool) -> None:
    """Let provision_nodes consume its queue, or no longer: then none of its batches runs."""
    functions = client("lambda", sandbox.lambda_url)
    asked = {"FunctionName": "leeway-provision-nodes"}
    (mapping,) = functions.list_event_source_mappings(**asked)["EventSourceMappings"]
    wanted = "Enabled" if enabled else "Disabled"

    def changed() -> bool:
        answer = functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=enabled)
        return bool(answer["State"] == wanted)

    until(changed)


class Night:
    """One drill: time counts from its begin."""

    def __init__(
        self, env: Environment, shell: Shell, path: Sequence[Section], codes: Collection[str]
    ) -> None:
        self.env = env
        self._shell, self._path, self._codes = shell, path, codes
        self.begun = time.time()
        self.values = {"CLUSTER": CLUSTER}
        self._pods: list[str] = []

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox."""
        return self.env.sandbox

    @property
    def seen(self) -> Journal:
        """What has happened since the begin of the drill."""
        return self.env.since(self.begun)

    def output(self, name: str) -> str:
        """Return an output of the stack."""
        assert self.sandbox.deployed is not None
        return self.sandbox.deployed.stack.outputs[name]["Value"]

    def waiting(self, output: str) -> bool:
        """Whether a message is in the queue that an output of the stack names. It is the queue of
        the section's commands."""
        self.values["URL"] = self.output(output)
        name = "ApproximateNumberOfMessages"
        asked = {"QueueUrl": self.values["URL"], "AttributeNames": [name]}
        sqs = client("sqs", self.sandbox.aws_url)
        return int(sqs.get_queue_attributes(**asked)["Attributes"][name]) > 0

    def create(self, *pods: dict[str, Any]) -> None:
        """Create pods, which end with the drill."""
        self._pods += [pod["metadata"]["name"] for pod in pods]
        create_workloads(pods, self.sandbox.write_kubeconfig())

    def end(self) -> None:
        """Remove the faults, and then the pods. A run that is left over would find them."""
        for part in ("kubernetes", "aws", "lambda"):
            self.faults(part)
        if self._pods:
            self.type(f"kubectl delete pods {' '.join(self._pods)} --now --ignore-not-found")
            self._pods.clear()

    def faults(self, part: str, *faults: dict[str, Any]) -> None:
        """Replace the faults of a part of the sandbox."""
        self.sandbox.faults(part, faults)

    def end_warm(self, function: str) -> None:
        """End the warm processes of a function: they remember manifests for 45 seconds."""
        self.env.end_warm(f"leeway-{function}")

    def next_run(self, function: str) -> Entry:
        """Run a function as its schedule does, and wait for the end of the run. Other runs after
        it are tries of the same event."""
        return self.env.next_run(f"leeway-{function}")

    def fire(self, function: str) -> None:
        """Run the schedule of a function."""
        assert self.sandbox.fire(f"leeway-{function}") == [f"leeway-{function}"]

    def first_run(self, function: str) -> Entry:
        """Wait for the first run of a function since the begin of the drill."""
        return self.until(lambda: self._runs(function))[0]

    def _runs(self, function: str) -> list[Entry]:
        return self.seen.of("invocation", function=f"leeway-{function}")

    def until[T](self, found: Callable[[], T]) -> T:
        """Return the first truthy result."""
        return self.env.until(self.begun, lambda _seen: found())

    def look(self, *promises: str, counted: bool = True) -> str:
        """Run the commands of the drill's sections; return what they print. `promises` are when
        they say that they show the cause. Every reason code of the drill must be in each section.
        Wait until the metric of an alarm is `counted`."""
        whole = ""
        for section in self._path:
            assert section.seen.startswith(promises), section.seen
            assert section.look, f"{section.title}: no command under Look"
            whole += self._shown_by(section)
            if counted and (metric := self._metric_of(section)):
                self.until(lambda: self._counted(metric))
        return whole

    def _metric_of(self, section: Section) -> str:
        """Return the metric of problems that the alarm of a section is about, empty if it is about
        something else."""
        assert self.sandbox.deployed is not None
        alarms = self.sandbox.deployed.stack.alarms
        found = [one for name, one in alarms.items() if name.lower() == section.anchor]
        return next((one.properties["MetricName"] for one in found if _counts_problems(one)), "")

    def _counted(self, metric: str) -> bool:
        """Whether a function has counted problems for an alarm in this drill."""
        lines = [entry["line"] for entry in self.seen.of("logs")]
        return any(metric in line for line in lines if isinstance(line, dict))

    def _shown_by(self, section: Section) -> str:
        """Run the commands of a section until they show each reason code. A function writes its
        last log line after its outcome, and on a busy machine seconds later."""
        until = time.monotonic() + PATIENCE
        while True:
            said = self.of_this_night(self.type(*section.look))
            missing = [code for code in self._codes if code not in said]
            if not missing:
                return said
            assert time.monotonic() < until, f"{section.title}: {missing} not in\n{said}"
            time.sleep(1)

    def of_this_night(self, said: str) -> str:
        """Leave out the log lines of earlier drills."""
        begun = f"{datetime.fromtimestamp(self.begun, UTC):%Y-%m-%d %H:%M:%SZ}"
        lines = said.splitlines(keepends=True)
        return "".join(one for one in lines if not _DATED.match(one) or one[:20] >= begun)

    def type(self, *commands: str) -> str:
        """Run commands of the page; their words in capitals are values of this drill."""
        return self._shell.run(commands, self.values)


def _counts_problems(alarm: Named) -> bool:
    """Whether an alarm is about a metric of Leeway that exists only if there are problems."""
    missing = alarm.properties.get("TreatMissingData")
    return alarm.properties.get("Namespace") == "Leeway" and missing == "notBreaching"


def shell_of(sandbox: Sandbox) -> Shell:
    """Return a shell with the variables that `leeway sandbox up` prints."""
    state = sandbox.state_dir
    own = {"KUBECONFIG": str(sandbox.kubeconfig), "HOME": str(state), "PATH": os.environ["PATH"]}
    return Shell({**own, **sandbox.environment(), "LEEWAY_CLUSTERS": CLUSTER})
