"""The API fails on command, and recovers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx
import pytest

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod


@pytest.fixture
def world(live: Live) -> Iterator[Live]:
    """Return a cluster of one node, without faults before and after."""
    live.add_nodes(1)
    live.fail_with()
    yield live
    live.fail_with()


def test_a_rate_limit_is_plain_text_with_a_time_to_wait(world: Live) -> None:
    world.fail_with({"verb": "list", "resource": "nodes", "status": 429, "retryAfter": 3})

    refused = world.api.get("/api/v1/nodes")

    assert refused.status_code == 429
    assert refused.headers["Content-Type"].startswith("text/plain")
    assert refused.headers["Retry-After"] == "3"
    assert world.api.get("/api/v1/pods").status_code == 200


@pytest.mark.parametrize(("status", "reason"), [(500, "InternalError"), (401, "Unauthorized")])
def test_a_status_strikes_as_often_as_it_was_told(world: Live, status: int, reason: str) -> None:
    world.fail_with({"resource": "nodes", "status": status, "count": 2})

    answers = [world.api.get("/api/v1/nodes") for _ in range(3)]

    assert [one.status_code for one in answers] == [status, status, 200]
    assert answers[0].json()["reason"] == reason


def test_a_rate_strikes_some(world: Live) -> None:
    world.fail_with({"status": 500, "rate": 0.5})

    codes = {world.api.get("/api/v1/nodes").status_code for _ in range(40)}

    assert codes == {200, 500}


def test_a_dropped_connection_has_done_its_work(world: Live) -> None:
    world.fail_with({"verb": "create", "resource": "pods", "drop": True, "count": 1})

    with pytest.raises(httpx.RemoteProtocolError):
        world.api.post(PODS, json=bare_pod("lost-answer"))

    assert world.api.get(f"{PODS}/lost-answer").status_code == 200


def test_a_connection_dropped_before_has_done_nothing(world: Live) -> None:
    world.fail_with({"verb": "create", "resource": "pods", "drop": "before", "count": 1})

    with pytest.raises(httpx.RemoteProtocolError):
        world.api.post(PODS, json=bare_pod("lost-request"))

    assert world.api.get(f"{PODS}/lost-request").status_code == 404


def test_a_dead_server_refuses_connections_and_comes_back(world: Live) -> None:
    world.fail_with({"refuse": True})

    with pytest.raises(httpx.TransportError):
        world.api.get("/api/v1/nodes")
    with pytest.raises(httpx.ConnectError):
        world.api.get("/api/v1/nodes")
    assert world.control.get("/_sandbox/status").json()["listening"] is False

    world.fail_with()
    assert world.api.get("/api/v1/nodes").status_code == 200


def test_every_eviction_is_in_the_journal_with_its_answer(world: Live) -> None:
    world.create(PODS, bare_pod("evictee"))
    world.until(lambda: world.api.get(f"{PODS}/evictee").json()["status"]["phase"] == "Running")
    world.fail_with({"verb": "create", "resource": "pods/eviction", "status": 500, "count": 1})

    world.evict("evictee")
    world.evict("evictee")

    entries = [one for one in world.journal("eviction") if one["pod"] == "default/evictee"]
    assert [one["status"] for one in entries] == [500, 201]
    assert {one["user"] for one in entries} == {"admin"}
    assert entries[0]["node"] == "ip-10-0-0-1.ec2.internal"


def test_an_eviction_whose_answer_was_lost_is_in_the_journal_as_such(world: Live) -> None:
    world.create(PODS, bare_pod("unheard"))
    world.until(lambda: world.api.get(f"{PODS}/unheard").json()["status"]["phase"] == "Running")
    world.fail_with({"verb": "create", "resource": "pods/eviction", "drop": True, "count": 1})

    with pytest.raises(httpx.RemoteProtocolError):
        world.evict("unheard")
    world.evict("unheard")

    entries = [one for one in world.journal("eviction") if one["pod"] == "default/unheard"]
    assert [(one["status"], one["answered"]) for one in entries] == [(201, False), (201, True)]
    [deletion] = [one for one in world.journal("pod-deletion") if one["pod"] == "default/unheard"]
    assert (deletion["grace"], deletion["own_grace"], deletion["volumes"]) == (30, 30, False)


@pytest.mark.parametrize(("name", "wrong"), [("ahead", 60), ("behind", -60)])
def test_a_wrong_clock_shows_in_dates_and_in_what_is_written(
    world: Live, name: str, wrong: float
) -> None:
    world.fail_with({"clock": wrong})
    shown = datetime.now(UTC) + timedelta(seconds=wrong)
    answer = world.api.post(PODS, json=bare_pod(name))

    created = datetime.fromisoformat(answer.json()["metadata"]["creationTimestamp"])
    assert abs(created - shown) < timedelta(seconds=5)
    assert abs(parsedate_to_datetime(answer.headers["Date"]) - shown) < timedelta(seconds=5)

    world.fail_with()
    healed = parsedate_to_datetime(world.api.get("/api/v1/nodes").headers["Date"])
    assert abs(healed - datetime.now(UTC)) < timedelta(seconds=5)


def test_a_fault_nobody_understands_is_refused(world: Live) -> None:
    refused = world.control.put("/_sandbox/faults", json={"faults": [{"stauts": 500}]})

    assert refused.status_code == 400
    assert "stauts" in refused.text
