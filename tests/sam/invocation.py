"""One run of `sam local invoke`."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

RESULT = re.compile(r"^Result: +(\{.*\})$", re.MULTILINE)
"""The line with the result of a durable function in SAM's summary of the execution."""


@dataclass(frozen=True)
class Invocation:
    """The output of `sam local invoke`: the answer of the function and its logs."""

    stdout: str
    stderr: str

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON object that the function returned, or its error."""
        durable = RESULT.search(self.stdout + self.stderr)
        answer = durable[1] if durable else self.stdout
        assert answer.strip(), f"the function gave no answer:\n{self.stderr}"
        found: dict[str, Any] = json.loads(answer)
        return found


Invoke = Callable[[str, Mapping[str, Any]], Invocation]
"""Invokes a function, by its logical ID, with an event."""
