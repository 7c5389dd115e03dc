"""Remembers the answers to calls with a client token, as EC2 does for idempotent calls.

Source: EC2 developer guide, "Ensuring idempotency in Amazon EC2 API requests". The same token and
the same parameters have the same answer, and nothing is done again. Other parameters are refused.
A call that failed is not remembered.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moto.ec2.exceptions import EC2ClientError

KEPT = 20_000  # answers
_NO_PARAMETERS = {"ClientToken", "Action", "Version"}

type Answers = dict[str, tuple[dict[str, Any], dict[str, Any]]]


class ClientTokens:
    """The answers of one action in one region, by token."""

    def __init__(self) -> None:
        self._answers: Answers = {}

    def answer(
        self, token: str | None, request: Mapping[str, Any], act: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """The remembered answer, or that of `act`. `request` has the call's parameters."""
        if not token:
            return act()
        wanted = {key: value for key, value in request.items() if key not in _NO_PARAMETERS}
        if token in self._answers:
            known, answer = self._answers[token]
            if known != wanted:
                raise EC2ClientError(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in "
                    "previous request(s).",
                )
            return answer
        answer = act()
        self._answers[token] = (wanted, answer)
        if len(self._answers) > KEPT:
            del self._answers[next(iter(self._answers))]
        return answer
