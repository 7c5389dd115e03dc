"""Reads the faults that a user asks a sandbox for, each in a few words."""

import fnmatch
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.errors import BadInputError, unreadable

Fault = dict[str, Any]

PARTS = ("kubernetes", "aws", "lambda")
FORMS = """\
aws:SERVICE:ACTION:error=RATE        that share of the calls fails (aws:ec2:Describe*:error=0.3)
aws:SERVICE:ACTION:latency=SECONDS   they take that much longer
aws:SERVICE:ACTION:lost=RATE         that share of the calls is done, and the answer is lost
kubernetes:VERB:RESOURCE:error=RATE  (kubernetes:create:pods/eviction:error=0.3)
kubernetes:VERB:RESOURCE:latency=SECONDS
evictions:hold=SECONDS               they wait that long between budget and deletion
down                                 the API server refuses connections
capacity:TYPE:ZONE:lost=RATE         launches of groups and fleets find none of a type in a zone
                                     (capacity:m5.large:us-east-1a:lost=1)
capacity:TYPE:ZONE:MARKET:lost=RATE  the same for one market: spot or on-demand
throttle                             EC2 and Auto Scaling limit rates as AWS does
lambda:FUNCTION:kill=STEP            killed before its checkpoint of that number is recorded
events:copies=N                      every event is delivered so often
events:late=SECONDS                  … so late
events:shuffled=SECONDS              … up to so late, each by itself: out of order
events:lost=RATE                     that share is never delivered
PART=FILE.json                       a list of faults for kubernetes, aws or lambda, as it is"""


@dataclass
class Wanted:
    """The faults of each part, and whether EC2 and Auto Scaling limit rates."""

    parts: dict[str, list[Fault]] = field(default_factory=lambda: {part: [] for part in PARTS})
    throttle: bool = False


def read_faults(words: Sequence[str]) -> Wanted:
    """Read them all; BadInputError for what is none, or for a file that holds no list."""
    wanted = Wanted()
    for word in words:
        if word == "throttle":
            wanted.throttle = True
        elif word == "down":
            wanted.parts["kubernetes"].append({"refuse": True})
        elif word.partition("=")[0] in PARTS:
            part, _, path = word.partition("=")
            wanted.parts[part] += _from_file(Path(path))
        else:
            part, fault = _read(word)
            _add(wanted.parts[part], fault)
    return wanted


def _add(faults: list[Fault], fault: Fault) -> None:
    """Of the faults that match, a call meets one: what befalls deliveries is made one fault."""
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
    forms = "a form that `leeway sandbox faults --help` lists"
    raise BadInputError(f"fault {word!r}: expected {forms}")


def _number(word: str, text: str, limit: float | None) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= (limit or 1e6):
        most = f" to {limit:g}" if limit else " or more"
        raise BadInputError(f"fault {word!r}: expected a number, 0{most}, got {text!r}")
    return number


def _aws(place: list[str], **effect: Any) -> Fault:
    return {"service": place[1], "action": place[2], **effect}


def _kubernetes(place: list[str], **effect: Any) -> Fault:
    return {"verb": place[1], "resource": place[2], **effect}


def _delivery(**effect: Any) -> Fault:
    return {"service": "events", "action": "Deliver", **effect}


def _capacity(place: list[str], rate: float) -> Fault:
    message = f"We currently do not have sufficient {place[1]} capacity in {place[2]}."
    lost = {"error": "InsufficientInstanceCapacity", "message": message, "rate": rate}
    market = {"capacity_type": place[3]} if len(place) > 4 else {}
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
# What a form looks like up to its `=`: the part it is for, the fault, the most that its number is.
_FORMS: Mapping[str, tuple[str, _Build, float | None]] = {
    "aws:*:*:error": ("aws", lambda at, n: _aws(at, rate=n, **_UNAVAILABLE), 1),
    "aws:*:*:latency": ("aws", lambda at, n: _aws(at, latency=n), None),
    "aws:*:*:lost": ("aws", lambda at, n: _aws(at, rate=n, drop=True), 1),
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
        raise BadInputError(f"{path}: expected JSON: {error}") from error
    if not isinstance(faults, list) or not all(isinstance(fault, dict) for fault in faults):
        raise BadInputError(f"{path}: expected a JSON list of faults")
    return faults
