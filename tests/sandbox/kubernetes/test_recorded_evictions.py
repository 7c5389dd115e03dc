"""Every recorded eviction and deletion is answered as by the real server."""

from __future__ import annotations

import json
import re

import pytest

from tests.sandbox.kubernetes.live import BUDGETS, Live, bare_pod, budget
from tests.sandbox.kubernetes.recorded import Exchange, differences, exchanges

_POD = re.compile(r"(free|blocked|twice)-[0-9a-z]{8,10}-[0-9a-z]{5}")
_UID = re.compile(r"(?<=UID in record \()[0-9a-f-]{36}")


class Names:
    """The mapping from recorded pods to running ones."""

    def __init__(self, pods: dict[str, list[str]]) -> None:
        self._free = pods
        self._chosen: dict[str, str] = {}

    def to_live(self, text: str) -> str:
        """Replace the recorded names of a text."""
        return _POD.sub(lambda match: self._choose(match[0], match[1]), text)

    def _choose(self, recorded: str, app: str) -> str:
        if recorded not in self._chosen:
            self._chosen[recorded] = self._free[app].pop(0)
        return self._chosen[recorded]


@pytest.fixture(scope="module")
def names(live: Live) -> Names:
    """Build the cluster of the recording; its pods stop slowly, so that tests can read them."""
    live.add_nodes(1, 2, 3)
    slow = {"sandbox.leeway.sh/ends-after": "30s"}
    pods = {
        app: [pod["metadata"]["name"] for pod in live.deploy(app, replicas, annotations=slow)]
        for app, replicas in (("free", 6), ("blocked", 3), ("twice", 2))
    }
    live.create(BUDGETS, budget("blocked", "blocked", minAvailable=3))
    live.create(BUDGETS, budget("twice-a", "twice", maxUnavailable=1))
    live.create(BUDGETS, budget("twice-b", "twice", maxUnavailable=1))
    live.create("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    stuck = bare_pod("stuck", terminationGracePeriodSeconds=1)
    stuck["metadata"]["finalizers"] = ["example.com/never"]
    live.create("/api/v1/namespaces/leaving/pods", stuck)
    live.until(lambda: live.running("", "leaving"))
    live.api.delete("/api/v1/namespaces/leaving")
    return Names(pods)


@pytest.mark.parametrize("exchange", exchanges("evictions"), ids=lambda one: one.label)
def test_an_eviction_is_answered_as_recorded(live: Live, names: Names, exchange: Exchange) -> None:
    path = names.to_live(exchange.path)
    if "finished" in exchange.label:
        pod = path.removesuffix("/eviction")
        live.patch(f"{pod}/status", {"status": {"phase": "Succeeded"}})
    sent = names.to_live((exchange.content or b"").decode())

    response = live.api.request(
        exchange.method, path, content=sent, headers={"Content-Type": "application/json"}
    )

    assert response.status_code == exchange.status
    assert response.headers["Content-Type"] == exchange.answer_type
    recorded = json.loads(names.to_live(json.dumps(exchange.answer)))
    answer = response.json()
    if "UID in record" in answer.get("message", ""):
        uid = live.api.get(path.removesuffix("/eviction")).json()["metadata"]["uid"]
        recorded["message"] = _UID.sub(uid, recorded["message"])
    assert differences(recorded, answer) == []
    if exchange.status == 429:
        assert "Retry-After" not in response.headers
