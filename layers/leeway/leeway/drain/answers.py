"""What the API server's answer to an eviction means for the drain."""

import re
from dataclasses import dataclass
from enum import StrEnum

from leeway.ports.kubernetes_objects import Response


class Meaning(StrEnum):
    """The kinds of answer that a drain tells apart."""

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
    """What a response means, in words for the report. `budgets` are those that stand in the way;
    `retry_after` is in seconds."""

    meaning: Meaning
    detail: str = ""
    retry_after: int | None = None
    budgets: tuple[str, ...] = ()


_BUDGET = re.compile(r"disruption budget (\S+) ")

SEVERAL_BUDGETS = "more than one PodDisruptionBudget"


def read_answer(response: Response) -> Answer:
    """Classify the answer to `pods/eviction` or to a pod's DELETE.

    Source: recorded answers of kube-apiserver; Kubernetes documentation, "API-initiated eviction".
    """
    causes = dict(response.causes)
    match response.status:
        case 200 | 201 | 202:
            return Answer(Meaning.ACCEPTED)
        case 404:
            return Answer(Meaning.GONE, "it is gone")
        case 409 if "precondition" in response.message:
            return Answer(Meaning.GONE, "another pod has its name now")
        case 429 if "DisruptionBudget" in causes:
            said = causes["DisruptionBudget"]
            budgets = tuple(_BUDGET.findall(said))
            return Answer(Meaning.BLOCKED, said, budgets=budgets)
        case 429:
            return Answer(
                Meaning.THROTTLED, "the API server asks for patience", response.retry_after
            )
        case 403 if "NamespaceTerminating" in causes:
            return Answer(Meaning.TERMINATING, causes["NamespaceTerminating"])
        case 403:
            return Answer(Meaning.DENIED, response.message)
        case 400 | 405 | 422:
            return Answer(Meaning.DENIED, response.message)
        case 500 if SEVERAL_BUDGETS in response.message:
            return Answer(Meaning.NOT_EVICTABLE, "it has more than one PodDisruptionBudget")
        case 0:
            return Answer(Meaning.TRANSIENT, response.message or "no answer")
        case status:
            return Answer(Meaning.TRANSIENT, f"{status}: {response.message}"[:200])
