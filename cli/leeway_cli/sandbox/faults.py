"""Reads the faults of a sandbox from the command line."""

import fnmatch
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leeway_cli.errors import BadInputError, as_clause, unreadable

if TYPE_CHECKING:
    from leeway_sandbox.sandbox import Sandbox

Fault = dict[str, Any]

PARTS = ("kubernetes", "aws", "lambda")
FORMS = """\
aws:SERVICE:ACTION:error=RATE        this share of the calls fails (aws:ec2:Describe*:error=0.3)
aws:SERVICE:ACTION:lost=RATE         this share of the calls takes effect, and the answer is lost
aws:SERVICE:ACTION:latency=SECONDS   the calls take this much longer
kubernetes:VERB:RESOURCE:error=RATE  (kubernetes:create:pods/eviction:error=0.3)
kubernetes:VERB:RESOURCE:latency=SECONDS
evictions:hold=SECONDS               evictions wait this long between budget and deletion
down                                 the API server refuses connections
capacity:TYPE:ZONE:lost=RATE         launches of groups and fleets find no instance of a type
                                     in a zone
                                     (capacity:m5.large:us-east-1a:lost=1)
capacity:TYPE:ZONE:MARKET:lost=RATE  the same for one market: spot or on-demand
throttle                             EC2 and Auto Scaling limit rates as AWS does
lambda:FUNCTION:kill=STEP            is killed before it records the checkpoint of this number
lambda:FUNCTION:timeout=SECONDS      its timeout is shorter
queues:copies=N                      functions get every message of a queue N times
queues:late=SECONDS                  functions get the messages of queues this much later
events:copies=N                      every event is delivered N times
events:late=SECONDS                  every event is delivered this much later
events:shuffled=SECONDS              each event is delivered up to this much later, out of order
events:lost=RATE                     this share of the events is not delivered
PART=FILE.json                       a JSON list of faults for kubernetes, aws or lambda"""


@dataclass
class FaultSettings:
    """The faults of each part, and whether EC2 and Auto Scaling limit rates."""

    parts: dict[str, list[Fault]] = field(default_factory=lambda: {part: [] for part in PARTS})
    throttle: bool = False

    def apply(self, sandbox: "Sandbox") -> None:
        """Replace the faults of a sandbox."""
        for part, faults in self.parts.items():
            sandbox.faults(part, faults)
        sandbox.throttle(enabled=self.throttle)


def read_faults(words: Sequence[str]) -> FaultSettings:
    """Read faults in the forms of FORMS.

    Raises:
        BadInputError: a word has none of the forms, or a file holds no list.
    """
    settings = FaultSettings()
    for word in words:
        if word == "throttle":
            settings.throttle = True
        elif word == "down":
            settings.parts["kubernetes"].append({"refuse": True})
        elif (named := word.partition("="))[0] in PARTS and named[2]:
            settings.parts[named[0]] += _from_file(Path(named[2]))
        else:
            part, fault = _read(word)
            _add(settings.parts[part], fault)
    return settings


def _add(faults: list[Fault], fault: Fault) -> None:
    """Add a fault. Only the first matching fault applies to a call, so the faults of deliveries are
    merged."""
    deliveries = [one for one in faults if one.get("action") == "Deliver" and "drop" not in one]
    if fault.get("drop"):
        faults.insert(0, fault)
    elif fault.get("action") == "Deliver" and deliveries:
        deliveries[0].update(fault)
    else:
        faults.append(fault)


def _read(word: str) -> tuple[str, Fault]:
    place, equals, value = word.rpartition("=")
    for pattern, (part, build, limit) in _FORMS.items():
        if (
            equals
            and fnmatch.fnmatchcase(place, pattern)
            and place.count(":") == pattern.count(":")
        ):
            return part, build(place.split(":"), _number(word, value, limit))
    raise BadInputError(
        f"The fault {word!r} is invalid: expected a form that `leeway sandbox faults --help` lists."
    )


def _number(word: str, text: str, limit: float | None) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= (limit or 1e6):
        most = f" to {limit:g}" if limit else " or more"
        raise BadInputError(
            f"The fault {word!r} is invalid: expected a number, 0{most}, got {text!r}."
        )
    return number


def _aws(place: list[str], **effect: Any) -> Fault:
    return {"service": place[1], "action": place[2], **effect}


def _kubernetes(place: list[str], **effect: Any) -> Fault:
    return {"verb": place[1], "resource": place[2], **effect}


def _delivery(**effect: Any) -> Fault:
    return {"service": "events", "action": "Deliver", **effect}


def _capacity(place: list[str], rate: float) -> Fault:
    message = f"We currently do not have sufficient {place[1]} capacity in {place[2]}."
    market = {"capacity_type": place[3]} if len(place) > 4 else {}
    lost = {"error": "InsufficientInstanceCapacity", "message": message, "rate": rate}
    return {
        "service": "*",
        "action": "Launch",
        "instance_type": place[1],
        "zone": place[2],
        **market,
        **lost,
    }


_UNAVAILABLE = {"error": "ServiceUnavailable", "status": 503}
_Build = Callable[[list[str], float], Fault]
# By the text before the `=`: the part of the sandbox, the fault, the maximum of its number.
_FORMS: Mapping[str, tuple[str, _Build, float | None]] = {
    "aws:*:*:error": ("aws", lambda at, n: _aws(at, rate=n, **_UNAVAILABLE), 1),
    "aws:*:*:lost": ("aws", lambda at, n: _aws(at, rate=n, drop=True), 1),
    "aws:*:*:latency": ("aws", lambda at, n: _aws(at, latency=n), None),
    "kubernetes:*:*:error": ("kubernetes", lambda at, n: _kubernetes(at, rate=n, status=503), 1),
    "kubernetes:*:*:latency": ("kubernetes", lambda at, n: _kubernetes(at, latency=n), None),
    "capacity:*:*:lost": ("aws", _capacity, 1),
    "capacity:*:*:*:lost": ("aws", _capacity, 1),
    "evictions:hold": (
        "kubernetes",
        lambda _, n: {"verb": "create", "resource": "pods/eviction", "hold": n},
        None,
    ),
    "lambda:*:kill": (
        "lambda",
        lambda at, n: {"function": at[1], "kill": "before", "step": max(int(n), 1)},
        None,
    ),
    "lambda:*:timeout": ("lambda", lambda at, n: {"function": at[1], "timeout": max(n, 0.1)}, 900),
    "queues:copies": ("lambda", lambda _, n: {"copies": max(int(n), 1)}, None),
    "queues:late": ("lambda", lambda _, n: {"latency": n}, None),
    "events:copies": ("aws", lambda _, n: _delivery(copies=max(int(n), 1)), None),
    "events:late": ("aws", lambda _, n: _delivery(latency=n), None),
    "events:shuffled": ("aws", lambda _, n: _delivery(jitter=n), None),
    "events:lost": ("aws", lambda _, n: _delivery(drop=True, rate=n), 1),
}


def _from_file(path: Path) -> list[Fault]:
    try:
        faults = json.loads(path.read_bytes())
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        raise BadInputError(f"{path}: expected JSON: {as_clause(error)}.") from error
    if not isinstance(faults, list) or not all(isinstance(fault, dict) for fault in faults):
        raise BadInputError(f"{path}: expected a JSON list of faults.")
    return faults
