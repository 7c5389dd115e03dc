"""Classification of the API server's answers to evictions and deletions."""

import re
from dataclasses import dataclass
from enum import StrEnum

from leeway.drain.reasons import (
    API_SERVER_THROTTLES,
    BUDGET_BLOCKS,
    EVICTION_DENIED,
    EVICTION_FAILED,
    NAMESPACE_TERMINATING,
    POD_EVICTED,
    POD_GONE,
    POD_REPLACED,
    SEVERAL_BUDGETS,
)
from leeway.ports.kubernetes_objects import Response
from leeway.reasons import Reason, clause


class Meaning(StrEnum):
    """The kinds of answer that a drain handles differently."""

    ACCEPTED = "accepted"
    GONE = "gone"
    BLOCKED = "blocked"
    TERMINATING = "terminating"
    THROTTLED = "throttled"
    NOT_EVICTABLE = "not-evictable"
    DENIED = "denied"
    TRANSIENT = "transient"


@dataclass(frozen=True, slots=True)
class Answer:
    """A classified answer. `budgets` are the names of the PodDisruptionBudgets that block the
    eviction; `retry_after` are the seconds after which the request may be repeated."""

    meaning: Meaning
    reason: Reason
    retry_after: int | None = None
    budgets: tuple[str, ...] = ()


_BUDGET = re.compile(r"disruption budget (\S+) ")

_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
"""A part of kube-apiserver's message for a pod that several budgets select."""

_LONGEST_MESSAGE = 200
"""Characters of an unexpected answer that a reason contains."""


def read_answer(response: Response) -> Answer:
    """Classify the answer to `pods/eviction` or to a pod's DELETE.

    Source: recorded answers of kube-apiserver; Kubernetes documentation, "API-initiated eviction".
    """
    causes = dict(response.causes)
    message = clause(response.message)
    match response.status:
        case 200 | 201 | 202:
            return Answer(Meaning.ACCEPTED, POD_EVICTED())
        case 404:
            return Answer(Meaning.GONE, POD_GONE())
        case 409 if "precondition" in response.message:
            return Answer(Meaning.GONE, POD_REPLACED())
        case 429 if "DisruptionBudget" in causes:
            cause = causes["DisruptionBudget"]
            reason = BUDGET_BLOCKS(answer=clause(cause))
            return Answer(Meaning.BLOCKED, reason, budgets=tuple(_BUDGET.findall(cause)))
        case 429:
            return Answer(Meaning.THROTTLED, API_SERVER_THROTTLES(), response.retry_after)
        case 403 if "NamespaceTerminating" in causes:
            cause = clause(causes["NamespaceTerminating"])
            return Answer(Meaning.TERMINATING, NAMESPACE_TERMINATING(answer=cause))
        case 400 | 403 | 405 | 422:
            return Answer(Meaning.DENIED, EVICTION_DENIED(answer=message))
        case 500 if _SEVERAL_BUDGETS in response.message:
            return Answer(Meaning.NOT_EVICTABLE, SEVERAL_BUDGETS(budgets="names not read yet"))
        case 0:
            reason = EVICTION_FAILED(answer=message or "the connection was lost")
            return Answer(Meaning.TRANSIENT, reason, response.retry_after)
        case status:
            reason = EVICTION_FAILED(answer=f"{status}: {message}"[:_LONGEST_MESSAGE])
            return Answer(Meaning.TRANSIENT, reason, response.retry_after)
