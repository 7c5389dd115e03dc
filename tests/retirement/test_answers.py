"""The classification of a real API server's answers."""

import pytest
from leeway.ports.kubernetes_objects import Response
from leeway.retirement.pods import Meaning, read_answer

BUDGET = (("DisruptionBudget", "The disruption budget web needs 3 healthy pods and has 3"),)
LEAVING = (("NamespaceTerminating", "namespace leaving is being terminated"),)


@pytest.mark.parametrize(
    ("response", "meaning"),
    [
        (Response(201), Meaning.ACCEPTED),
        (Response(200), Meaning.ACCEPTED),
        (Response(404, 'pods "web-1" not found'), Meaning.GONE),
        (Response(409, "the UID in the precondition (a) does not match"), Meaning.GONE),
        (Response(409, "the object has been modified"), Meaning.TRANSIENT),
        (Response(429, "Cannot evict pod", causes=BUDGET), Meaning.BLOCKED),
        (Response(429, "too many requests", retry_after=7), Meaning.THROTTLED),
        (Response(403, "forbidden", causes=LEAVING), Meaning.TERMINATING),
        (Response(403, 'User "leeway" cannot create pods/eviction'), Meaning.DENIED),
        (Response(422, "invalid"), Meaning.DENIED),
        (
            Response(
                500,
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support.",
            ),
            Meaning.NOT_EVICTABLE,
        ),
        (Response(500, "etcdserver: request timed out"), Meaning.TRANSIENT),
        (Response(503), Meaning.TRANSIENT),
        (Response(401, "Unauthorized"), Meaning.TRANSIENT),
        (Response(0, "connection reset"), Meaning.TRANSIENT),
    ],
)
def test_each_answer_is_classified(response: Response, meaning: Meaning) -> None:
    assert read_answer(response).meaning is meaning


def test_a_blocked_eviction_is_reported_with_the_budget_and_the_servers_message() -> None:
    answer = read_answer(Response(429, causes=BUDGET))
    assert "budget web needs 3" in answer.reason.message
    assert answer.budgets == ("web",)


def test_the_retry_after_of_a_throttled_request_is_kept() -> None:
    assert read_answer(Response(429, retry_after=7)).retry_after == 7
