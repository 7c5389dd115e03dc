"""Remembers answers of AWS that rarely change, so that a warm function does not ask each minute."""

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta

from leeway.clock import Clock

FOR = timedelta(minutes=5)
"""How long an answer counts."""


class Remembered[K: Hashable, V]:
    """Answers by their questions. Errors are not remembered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[K, tuple[datetime, V]] = {}

    def get(self, question: K, ask: Callable[[], V]) -> V:
        """Return the answer to a question; `ask` if there is none of the last five minutes."""
        now = self._clock.now()
        at, answer = self._answers.get(question, (None, None))
        if at is not None and answer is not None and timedelta(0) <= now - at < FOR:
            return answer
        answer = ask()
        self._answers[question] = (now, answer)
        return answer
