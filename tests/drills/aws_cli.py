"""The AWS CLI, as far as the runbook uses it: service, operation, options, --query, --output.

Operations and options are those of botocore's models, as in the CLI, so that a command with an
unknown word fails. `aws logs tail` makes the calls of version 2 of the CLI.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jmespath
from botocore import xform_name
from botocore.model import OperationModel, Shape

type Clients = Callable[[str], Any]

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "s": "seconds"}


class UsageError(Exception):
    """The CLI would print its usage."""


def run(words: list[str], clients: Clients) -> str:
    """Run the words after `aws`; return what it prints.

    Raises:
        UsageError: the CLI has no such service, operation or option.
        ClientError: AWS refuses the call.
    """
    service, command, *rest = words
    if (service, command) == ("logs", "tail"):
        return _tail(rest, clients("logs"))
    client = clients(service)
    names = {xform_name(name, "-"): name for name in client.meta.service_model.operation_names}
    if command not in names:
        raise UsageError(f"aws {service} has no command {command}")
    operation = client.meta.service_model.operation_model(names[command])
    given, query, output = _arguments(operation, rest)
    answer = getattr(client, xform_name(operation.name))(**given)
    answer.pop("ResponseMetadata", None)
    for name, value in answer.items():
        if hasattr(value, "read"):
            answer[name] = value.read().decode()
    found = jmespath.search(query, answer) if query else answer
    if output == "text":
        return _as_text(found)
    return json.dumps(found, indent=4, default=str, ensure_ascii=False) + "\n"


def _arguments(operation: OperationModel, words: list[str]) -> tuple[dict[str, Any], str, str]:
    members: Mapping[str, Shape] = operation.input_shape.members if operation.input_shape else {}
    options = {f"--{xform_name(name, '-')}": name for name in members}
    given: dict[str, Any] = {}
    own = {"--query": "", "--output": "json", "--cli-binary-format": ""}
    rest = list(words)
    while rest:
        option = rest.pop(0)
        if option in own:
            own[option] = rest.pop(0)
        elif option in options:
            name = options[option]
            values: list[str] = []
            while rest and not rest[0].startswith("--"):
                values.append(rest.pop(0))
            given[name] = _value(members[name], values)
        elif option == "/dev/stdout" and operation.name == "Invoke":
            continue  # the file of the answer
        elif option.startswith("--no-") and option.replace("--no-", "--", 1) in options:
            given[options[option.replace("--no-", "--", 1)]] = False
        else:
            raise UsageError(f"aws has no option {option} for {operation.name}")
    return given, own["--query"], own["--output"]


def _value(shape: Shape, values: list[str]) -> Any:
    match shape.type_name:
        case "boolean":
            return True
        case "integer" | "long":
            return int(values[0])
        case "list":
            return values
        case "structure" | "map":
            return json.loads(values[0])
        case "blob":
            path = values[0].removeprefix("file://")
            return Path(path).read_bytes() if path != values[0] else values[0].encode()
        case "timestamp":
            return datetime.fromisoformat(values[0])
    (value, *more) = values
    if more:
        raise UsageError(f"unknown word {more[0]}")
    return value


def _as_text(found: Any) -> str:
    if isinstance(found, list):
        if all(not isinstance(one, list | dict) for one in found):
            return "\t".join(map(str, found)) + "\n"
        return "".join(_as_text(one) for one in found)
    return f"{found}\n"


def _tail(words: list[str], client: Any) -> str:
    """Source: `aws logs tail help` of version 2."""
    group, *rest = words
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    if unknown := options.keys() - {"--since", "--format", "--filter-pattern"}:
        raise UsageError(f"aws logs tail has no option {unknown}")
    age = re.fullmatch(r"(\d+)([smhd])", options.get("--since", "10m"))
    if age is None:
        raise UsageError("--since: a number with s, m, h or d")
    start = datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: int(age[1])})
    asked = {"logGroupName": group, "startTime": int(start.timestamp() * 1000)}
    if pattern := options.get("--filter-pattern"):
        asked["filterPattern"] = pattern
    pages = client.get_paginator("filter_log_events").paginate(**asked, interleaved=True)
    return "".join(
        f"{datetime.fromtimestamp(one['timestamp'] / 1000, UTC):%Y-%m-%dT%H:%M:%S} "
        f"{one['message'].rstrip()}\n"
        for page in pages
        for one in page["events"]
    )
