"""One run of `sam local invoke`, as a test sees it."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

RESULT = re.compile(r"^Result: +(\{.*\})$", re.MULTILINE)
"""What SAM prints of a durable function's answer, in a summary of the execution."""


@dataclass(frozen=True)
class Invocation:
    """What `sam local invoke` printed: the function's answer, and its logs among SAM's words."""

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
"""Invokes a function, by its logical id, with an event."""
