"""watch_pods: wakes the buyer of the right clusters, whatever fails."""

import threading
import time

import pytest
from leeway.pod_watch.follower import pause_after
from leeway.pod_watch.watch_pods import HANDOVER, Lease, WatchMode
from leeway.ports.aws import CloudUnavailable
from leeway.ports.kubernetes import ClusterForbidden, ClusterUnavailable

from tests.pod_watch.watching import MINUTE, World, until, waits

NONE, MINUTELY, WATCHED = WatchMode.NOT_AT_ALL, WatchMode.BY_THE_MINUTE, WatchMode.BY_WATCH


@pytest.fixture
def world() -> World:
    return World()


def test_nothing_runs_where_no_cluster_has_a_pool(world: World) -> None:
    world.modes.of = {"blue": NONE}
    report = world.tick()
    assert (report.woken, report.reason.code) == ((), "PodsNotWatched")
    assert (world.wakes.wakes, world.lease.stored, world.watches.clusters) == ([], None, {})
    assert world.told.measured == []


def test_a_cluster_without_a_watch_is_left_to_the_minute(world: World) -> None:
    world.modes.of = {"blue": MINUTELY}
    assert world.tick().woken == ("blue",)
    assert world.wakes.wakes == [("blue", MINUTE)]
    assert world.watches.clusters == {}


def test_pods_wake_the_buyer_of_their_cluster_once(world: World) -> None:
    with world.running():
        until(lambda: world.watches.of("blue").watches and world.watches.of("green").watches)
        with world.watches.of("blue").changed:  # all at once, however busy the machine is
            for number in range(20):
                world.watches.of("blue").put(waits(f"uid-{number}"))
        until(lambda: world.reported("blue"))
        time.sleep(0.6)
        assert world.reported("blue") == 1
        assert world.reported("green") == 0
    (why,) = [why for name, why in world.wakes.wakes if name == "blue" and why != MINUTE]
    assert why == "The scheduler found no node for 20 new pods."


def test_pods_that_wait_when_the_watch_begins_are_found(world: World) -> None:
    world.watches.of("blue").put(waits("early"))
    with world.running():
        until(lambda: world.reported("blue"))


def test_a_pod_that_is_bound_at_once_wakes_nobody(world: World) -> None:
    with world.running():
        until(lambda: world.watches.of("blue").watches)
        with world.watches.of("blue").changed:
            world.watches.of("blue").put(waits("bound"))
            world.watches.of("blue").put(waits("bound"), gone=True)
        world.watches.of("green").put(waits("waits"))
        until(lambda: world.reported("green"))
    assert world.reported("blue") == 0


def test_a_run_beside_a_living_holder_only_wakes_the_buyers(world: World) -> None:
    with world.running():
        until(lambda: world.lease.stored and world.lease.stored.watching)
        report = world.tick()
        assert report.reason.code == "PodsNotWatched"
        assert report.woken == ("blue", "green")
        assert report.watched == ()
        assert world.wakes.count("blue") == 2


def test_a_run_takes_over_from_a_holder_that_has_died(world: World) -> None:
    with world.running():
        until(lambda: world.lease.stored and world.lease.stored.watching)
    assert world.lease.stored
    old = world.lease.stored
    world.lease.stored = aged(old)
    world.modes.of = {"blue": WATCHED}
    with world.running():
        until(lambda: world.lease.stored and world.lease.stored.holder != old.holder)
        world.watches.of("blue").put(waits("a"))
        until(lambda: world.reported("blue"))


def test_a_handover_has_no_gap(world: World) -> None:
    near_its_end = HANDOVER.total_seconds()  # when it begins
    with world.running(near_its_end) as old:
        until(lambda: world.lease.stored and world.lease.stored.watching)
        with world.running() as new:
            until(lambda: old.report)
            assert old.report
            assert "another run watches" in old.report.reason.message
            assert new.is_alive()
            world.watches.of("blue").put(waits("after"))
            until(lambda: world.reported("blue"))


def test_a_run_whose_lease_was_stolen_goes_on_until_the_thief_watches(world: World) -> None:
    with world.running() as run:
        until(lambda: world.lease.stored and world.lease.stored.watching)
        assert world.lease.stored
        stolen = world.lease.stored.model_copy(update={"holder": "thief", "watching": False})
        world.lease.stored = stolen.model_copy(update={"version": stolen.version + 10})
        time.sleep(0.4)
        world.watches.of("blue").put(waits("a"))
        until(lambda: world.reported("blue"))
        assert run.is_alive()
        world.lease.stored = world.lease.stored.model_copy(update={"watching": True})
        until(lambda: run.report)


def aged(lease: Lease) -> Lease:
    return lease.model_copy(update={"renewed_at": lease.renewed_at.replace(year=2020)})


def test_a_cluster_that_is_down_does_not_disturb_the_others(world: World) -> None:
    world.watches.of("blue").error = ClusterUnavailable("no answer")
    with world.running():
        until(lambda: world.watches.of("blue").watches >= 2)
        world.watches.of("green").put(waits("a"))
        until(lambda: world.reported("green"))
        until(lambda: 1 in world.told.measured)
        assert world.tick().woken == ("blue", "green"), "the minute's wake goes on"
    assert world.told.problems == [("blue", "PodWatchFailed")], "logged once"


def test_a_cluster_that_is_up_again_is_watched_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.pod_watch.follower.HEALTHY_AFTER", 0.2)
    blue = world.watches.of("blue")
    blue.error = ClusterUnavailable("no answer")
    with world.running():
        until(lambda: blue.watches >= 1)
        blue.error = None
        blue.put(waits("a"))
        until(lambda: world.reported("blue"))
        time.sleep(0.3)
        blue.error = ClusterUnavailable("closed")  # ends the watch, which was healthy
        blue.wake_watches()
        until(lambda: world.told.restored == ["blue"])


def test_a_refusal_names_the_missing_right(world: World) -> None:
    world.watches.of("blue").error = ClusterForbidden("403: pods is forbidden")
    with world.running():
        until(lambda: world.told.problems)
    assert world.told.problems == [("blue", "PodWatchFailed")]
    assert "Apply rbac/" in world.told.sentences[0]


def test_an_api_server_that_closes_watches_at_once_is_not_hammered(world: World) -> None:
    blue = world.watches.of("blue")
    blue.closes_at_once = True
    blue.put(waits("a"))
    began = time.monotonic()
    with world.running():
        until(lambda: world.reported("blue"))
        time.sleep(2.0)
        pauses = blue.watches - 1
        shortest = sum(pause_after(failures, 0.0) for failures in range(1, pauses + 1))
        assert shortest <= time.monotonic() - began
        assert world.reported("blue") == 1, "the repeated list holds the same pod"
        blue.put(waits("b"))
        until(lambda: world.reported("blue") == 2)
    assert world.told.problems == [("blue", "PodWatchFailed")]


def test_an_expired_version_begins_the_watch_again_without_a_second_wake(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.pod_watch.follower.HEALTHY_AFTER", 0.0)
    blue = world.watches.of("blue")
    with world.running():
        blue.put(waits("a"))
        until(lambda: world.reported("blue") == 1)
        with blue.changed:  # the next watch finds all of it
            blue.end_watches()
            blue.put(waits("b"))
            blue.compact()
        until(lambda: world.reported("blue") == 2)
    assert blue.expired == 1
    whys = [why for name, why in world.wakes.wakes if name == "blue" and why != MINUTE]
    assert whys == ["The scheduler found no node for 1 new pod."] * 2
    assert world.told.problems == []


def test_a_version_that_went_backwards_begins_the_watch_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.pod_watch.follower.HEALTHY_AFTER", 0.0)
    blue = world.watches.of("blue")
    with world.running():
        for name in ("a", "b", "c"):
            blue.put(waits(name))
        until(lambda: world.reported("blue"))
        blue.restore(1)
        for watches in (2, 3):
            blue.end_watches()
            until(lambda expected=watches: blue.watches == expected)  # type: ignore[misc]
        reported = world.reported("blue")
        blue.put(waits("d"))
        until(lambda: world.reported("blue") > reported)
    assert world.told.problems == []


def test_clusters_that_get_or_lose_pools_are_noticed(world: World) -> None:
    world.modes.of = {"blue": WATCHED, "green": NONE}
    with world.running() as run:
        until(lambda: world.watches.of("blue").watches)
        world.modes.of = {"blue": NONE, "green": WATCHED}
        until(lambda: world.watches.of("green").watches)
        world.watches.of("green").put(waits("a"))
        world.watches.of("blue").put(waits("b"))
        until(lambda: world.reported("green"))
        assert world.reported("blue") == 0
        world.modes.of = {"blue": NONE, "green": NONE}
        until(lambda: run.report)
        assert run.report
        assert run.report.reason.code == "PodWatchEnded"


def test_a_cluster_whose_pools_cannot_be_read_stays_watched(world: World) -> None:
    with world.running():
        until(lambda: world.watches.of("blue").watches)
        world.modes.of["blue"] = CloudUnavailable("ThrottlingException")
        until(lambda: ("blue", "PoolsNotRead") in world.told.problems)
        world.watches.of("blue").put(waits("a"))
        until(lambda: world.reported("blue"))


def test_pools_that_cannot_be_read_delay_no_other_cluster(world: World) -> None:
    world.modes.of = {"blue": CloudUnavailable("ThrottlingException"), "green": MINUTELY}
    assert world.tick().woken == ("green",)
    assert world.told.measured == [1]


def test_a_queue_that_fails_gets_the_message_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.pod_watch.burst.RETRY_AFTER", 0.1)
    with world.running():
        until(lambda: world.watches.of("blue").watches)
        world.wakes.failures = 2
        world.watches.of("blue").put(waits("a"))
        until(lambda: world.reported("blue"))
    assert [code for _, code in world.told.problems] == ["ProvisioningNotWoken"] * 2


def test_a_message_that_takes_long_delays_only_the_next_one_of_its_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.pod_watch.burst.SPACING", 0.0)
    with world.running():
        until(lambda: world.watches.of("blue").watches and world.watches.of("green").watches)
        world.wakes.slow = "blue"
        world.watches.of("blue").put(waits("a"))
        until(lambda: world.reported("blue") == 1)
        world.watches.of("blue").put(waits("b"))
        world.watches.of("green").put(waits("c"))
        until(lambda: world.reported("green"))
        time.sleep(0.7)
        assert world.reported("blue") == 1
        world.wakes.answers.set()
        until(lambda: world.reported("blue") == 2)


def test_a_run_goes_on_if_its_lease_cannot_be_renewed(world: World) -> None:
    with world.running():
        until(lambda: world.lease.stored and world.lease.stored.watching)
        world.lease.fail(CloudUnavailable("ThrottlingException"))
        until(lambda: world.told.problems)
        world.watches.of("blue").put(waits("a"))
        until(lambda: world.reported("blue"))
        until(lambda: 1 in world.told.measured)
    assert world.told.problems == [("", "WatchLeaseUnavailable")], "logged once"


def test_a_run_that_cannot_read_the_lease_wakes_the_buyers_and_does_not_watch(
    world: World,
) -> None:
    world.lease.fail(CloudUnavailable("ThrottlingException"))
    report = world.tick()
    assert (report.woken, report.reason.code) == (("blue", "green"), "WatchLeaseUnavailable")
    assert world.told.measured == [1]
    assert world.watches.clusters == {}


def test_a_run_with_little_time_does_not_watch(world: World) -> None:
    assert "Raise its timeout" in world.tick(seconds=55).reason.message


def test_a_run_ends_with_its_time_and_reports_what_it_has_collected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leeway.pod_watch.watch_pods.LONGEST_WATCH", 0.7)
    monkeypatch.setattr("leeway.pod_watch.watch_pods.SHORTEST_WATCH", 0.1)
    monkeypatch.setattr("leeway.pod_watch.burst.SILENCE", 60.0)
    monkeypatch.setattr("leeway.pod_watch.burst.LONGEST", 60.0)
    world.watches.of("blue").put(waits("a"))
    report = world.tick()
    assert report.reason.message.endswith("its time is over.")
    assert world.reported("blue") == 1
    assert not [t for t in threading.enumerate() if t.name.startswith("watch ")]
