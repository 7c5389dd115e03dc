"""Watches on manifests: a change wakes the buyer, and their failures concern no pod."""

from leeway.pod_watch.burst import MOST_MANIFESTS, ManifestBursts, ManifestMark
from leeway.pod_watch.follower import KindMissing
from leeway.pod_watch.watch_pods import WatchMode
from leeway.ports.kubernetes import ClusterForbidden, ClusterUnavailable

from tests.fakes.pod_watches import PodWatchesInMemory
from tests.pod_watch.watching import World, until, waits

WITH, WITHOUT = WatchMode.WITH_MANIFESTS, WatchMode.BY_WATCH


class Watched:
    """A world whose clusters keep manifests of two kinds in their API servers."""

    def __init__(self) -> None:
        self.pools, self.classes = PodWatchesInMemory(), PodWatchesInMemory()
        self.world = World(of_manifests=[self.pools, self.classes])
        self.world.modes.of = {"blue": WITH, "green": WITHOUT}

    def reasons(self) -> list[str]:
        return [why for name, why in self.world.wakes.wakes if name == "blue"]


def test_manifests_that_change_wake_the_buyer_once() -> None:
    watched = Watched()
    with watched.world.running():
        until(lambda: watched.pools.of("blue").watches and watched.classes.of("blue").watches)
        with watched.pools.of("blue").changed:
            watched.pools.of("blue").change("pool", 1)
            watched.pools.of("blue").change("other", 1)
        until(lambda: any("2 manifests changed." in why for why in watched.reasons()))
        assert not watched.pools.of("green").watches


def test_a_fresh_watch_and_an_unchanged_mark_wake_nobody() -> None:
    watched = Watched()
    watched.pools.of("blue").change("pool", 1)
    with watched.world.running():
        until(lambda: "1 manifest changed." in watched.reasons())
        before = watched.pools.of("blue").watches
        watched.pools.of("blue").end_watches()  # a short watch begins from nothing
        until(lambda: watched.pools.of("blue").watches > before)
        watched.pools.of("blue").change("pool", 1)  # its status
        watched.classes.of("blue").change("class", 1)
        until(lambda: watched.reasons().count("1 manifest changed.") == 2)
        watched.pools.of("blue").change("pool", 1, gone=True)
        until(lambda: watched.reasons().count("1 manifest changed.") == 3)


def test_a_kind_that_is_missing_is_no_problem_and_the_other_kinds_and_pods_are_watched() -> None:
    watched = Watched()
    watched.pools.of("blue").error = KindMissing("the API server has no nodepools")
    with watched.world.running():
        until(lambda: watched.pools.of("blue").watches > 1)
        watched.classes.of("blue").change("class", 1)
        watched.world.watches.of("blue").put(waits("a"))
        until(lambda: any("manifest" in why for why in watched.reasons()))
        until(lambda: any("new pod" in why for why in watched.reasons()))
    assert watched.world.told.problems == []


def test_a_watch_that_is_refused_is_told_once_and_pods_are_watched() -> None:
    watched = Watched()
    watched.pools.of("blue").error = ClusterForbidden("403: no")
    watched.classes.of("blue").error = ClusterUnavailable("503: later")
    with watched.world.running():
        until(lambda: watched.pools.of("blue").watches > 1 and watched.classes.of("blue").watches)
        watched.world.watches.of("blue").put(waits("a"))
        until(lambda: any("new pod" in why for why in watched.reasons()))
        until(lambda: 1.0 in watched.world.told.measured)
    assert watched.world.told.problems == [("blue", "ManifestWatchFailed")]


def test_a_home_that_changes_ends_the_watches_on_manifests() -> None:
    watched = Watched()
    blue = [watched.pools.of("blue"), watched.classes.of("blue")]
    with watched.world.running():
        until(lambda: all(one.open for one in blue))
        watched.world.modes.of["blue"] = WITHOUT
        watched.world.modes.of["green"] = WITH
        until(lambda: not any(one.open for one in blue))
        until(lambda: watched.pools.of("green").open)
        watched.pools.of("green").change("pool", 1)
        until(lambda: ("green", "1 manifest changed.") in watched.world.wakes.wakes)
        for one in blue:
            one.change("pool", 1)
        watched.world.watches.of("blue").put(waits("a"))
        until(lambda: any("new pod" in why for why in watched.reasons()))
    assert not any("manifest" in why for why in watched.reasons())


def test_a_wake_that_failed_is_repeated() -> None:
    bursts = ManifestBursts()
    bursts.change("b", ManifestMark("a", 1), False, 0.0)
    taken = bursts.take(1.0)
    bursts.change("b", ManifestMark("a", 1), False, 1.0)
    assert bursts.due_at() == float("inf")
    bursts.give_back(taken, 1.0)
    assert bursts.due_at() < 10.0


def test_the_manifests_of_tenants_do_not_fill_the_memory() -> None:
    bursts = ManifestBursts()
    for number in range(MOST_MANIFESTS + 10):
        bursts.change("b", ManifestMark(str(number), 1), False, 0.0)
    assert len(bursts.take(10.0)) == MOST_MANIFESTS
    bursts.change("pools", ManifestMark("pool", 1), False, 11.0)
    assert bursts.take(12.0) == {"pool"}, "another kind has its own"
    bursts.change("b", ManifestMark("0", 2), False, 20.0)
    assert bursts.take(30.0) == {"0"}
    bursts.change("b", ManifestMark("unknown", 1), True, 40.0)
    assert bursts.due_at() == float("inf")
