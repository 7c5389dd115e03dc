"""Faults of the API, and recovery."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx
import pytest

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod


@pytest.fixture
def cluster(live: Live) -> Iterator[Live]:
    """Return a cluster of one node; remove the faults after each test."""
    live.add_nodes(1)
    live.fail_with()
    yield live
    live.fail_with()


def test_a_rate_limit_is_plain_text_with_a_time_to_wait(cluster: Live) -> None:
    cluster.fail_with({"verb": "list", "resource": "nodes", "status": 429, "retryAfter": 3})

    refused = cluster.api.get("/api/v1/nodes")

    assert refused.status_code == 429
    assert refused.headers["Content-Type"].startswith("text/plain")
    assert refused.headers["Retry-After"] == "3"
    assert cluster.api.get("/api/v1/pods").status_code == 200


@pytest.mark.parametrize(("status", "reason"), [(500, "InternalError"), (401, "Unauthorized")])
def test_a_fault_applies_up_to_its_count(cluster: Live, status: int, reason: str) -> None:
    cluster.fail_with({"resource": "nodes", "status": status, "count": 2})

    answers = [cluster.api.get("/api/v1/nodes") for _ in range(3)]

    assert [one.status_code for one in answers] == [status, status, 200]
    assert answers[0].json()["reason"] == reason


def test_a_rate_applies_to_some_calls(cluster: Live) -> None:
    cluster.fail_with({"status": 500, "rate": 0.5})

    codes = {cluster.api.get("/api/v1/nodes").status_code for _ in range(40)}

    assert codes == {200, 500}


@pytest.mark.parametrize(("drop", "found"), [(True, 200), ("before", 404)])
def test_a_connection_is_dropped_after_or_before_the_action(
    cluster: Live, drop: bool | str, found: int
) -> None:
    name = f"lost-{drop}".lower()
    cluster.fail_with({"verb": "create", "resource": "pods", "drop": drop, "count": 1})

    with pytest.raises(httpx.RemoteProtocolError):
        cluster.api.post(PODS, json=bare_pod(name))

    assert cluster.api.get(f"{PODS}/{name}").status_code == found


def test_a_fault_refuses_connections_until_it_is_removed(cluster: Live) -> None:
    cluster.fail_with({"refuse": True})

    with pytest.raises(httpx.TransportError):
        cluster.api.get("/api/v1/nodes")
    with pytest.raises(httpx.ConnectError):
        cluster.api.get("/api/v1/nodes")
    assert cluster.control.get("/_sandbox/status").json()["listening"] is False

    cluster.fail_with()
    assert cluster.api.get("/api/v1/nodes").status_code == 200


def test_the_journal_marks_an_eviction_whose_answer_was_lost(cluster: Live) -> None:
    unheard = bare_pod("unheard")
    unheard["metadata"]["annotations"] = {"sandbox.leeway.sh/ends-after": "30s"}
    cluster.create(PODS, unheard)
    cluster.until(lambda: cluster.api.get(f"{PODS}/unheard").json()["status"]["phase"] == "Running")
    cluster.fail_with({"verb": "create", "resource": "pods/eviction", "drop": True, "count": 1})

    with pytest.raises(httpx.RemoteProtocolError):
        cluster.evict("unheard")
    cluster.evict("unheard")

    entries = [one for one in cluster.journal("eviction") if one["pod"] == "default/unheard"]
    assert [(one["status"], one["answered"]) for one in entries] == [(201, False), (201, True)]
    [deletion] = [one for one in cluster.journal("pod-deletion") if one["pod"] == "default/unheard"]
    assert (deletion["grace"], deletion["own_grace"], deletion["volumes"]) == (30, 30, False)


def test_a_wrong_clock_changes_dates_and_timestamps(cluster: Live) -> None:
    wrong = -60
    cluster.fail_with({"clock": wrong})
    shown = datetime.now(UTC) + timedelta(seconds=wrong)
    answer = cluster.api.post(PODS, json=bare_pod("behind"))

    created = datetime.fromisoformat(answer.json()["metadata"]["creationTimestamp"])
    assert abs(created - shown) < timedelta(seconds=20)
    assert abs(parsedate_to_datetime(answer.headers["Date"]) - shown) < timedelta(seconds=20)

    cluster.fail_with()
    healed = parsedate_to_datetime(cluster.api.get("/api/v1/nodes").headers["Date"])
    assert abs(healed - datetime.now(UTC)) < timedelta(seconds=20)


def test_an_invalid_fault_is_refused(cluster: Live) -> None:
    refused = cluster.control.put("/_sandbox/faults", json={"faults": [{"stauts": 500}]})

    assert refused.status_code == 400
    assert "stauts" in refused.text
