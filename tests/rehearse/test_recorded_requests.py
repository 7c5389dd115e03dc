"""A rehearsal with the times at which a real run made its requests."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.retirement.progress import RemovalMethod
from leeway_cli.rehearse.pace import Pace

from tests.rehearse.documents import NOW, budget, fates, node, pod, storm_of, workload

THREE = (node("a"), node("b"), node("c"))


def test_a_request_is_decided_again_when_the_run_made_it() -> None:
    pods = [pod("web-1", "a", grace=60), pod("web-2", "a", grace=60)]
    times = {"web-1": [1.0], "web-2": [112.0]}
    found = fates(storm_of(*THREE, *pods, lost="a", pace=Pace(pod_stop=3.5), recorded=times))

    assert (found["web-2"].granted, found["web-2"].cut, found["web-2"].ended_at) == (3, True, 115)
    assert not found["web-1"].cut


def test_a_refused_eviction_and_the_deletion_after_it_have_times_of_their_own() -> None:
    objects = [*THREE, pod("web-1", "a", grace=300), workload("Deployment", "web", 1)]
    objects.append(budget(minAvailable=1))
    found = fates(storm_of(*objects, lost="a", recorded={"web-1": [90, 105.5]}))["web-1"]

    assert found.progress is not None
    assert (found.progress.attempts, found.progress.method) == (2, RemovalMethod.DELETE)
    assert (found.granted, found.ended_at) == (9, 107.5)


def test_a_request_is_not_made_later_than_at_the_deadline() -> None:
    times = {"web-1": [1.0], "web-2": [119.0]}
    pods = [pod("web-1", "a"), pod("web-2", "a")]
    found = fates(storm_of(*THREE, *pods, lost="a", recorded=times))["web-2"]

    assert (found.granted, found.ended_at) == (1, 116)


def test_a_drain_begins_with_the_first_request_of_its_node() -> None:
    pods = [pod("web-1", "a"), pod("web-2", "a"), pod("web-3", "b")]
    found = fates(storm_of(*THREE, *pods, lost="a b", recorded={"web-1": [40], "web-2": [50]}))

    assert [found[f"web-{n}"].ended_at for n in (1, 2, 3)] == [42, 52, 3]


def test_a_run_that_asked_sooner_than_the_rehearsal_does_not_hasten_it() -> None:
    objects = [*THREE, pod("web-1", "a"), budget(minAvailable=1)]
    usual = fates(storm_of(*objects, lost="a"))["web-1"]
    hasty = fates(storm_of(*objects, lost="a", recorded={"web-1": [1, 1.1, 1.2]}))["web-1"]

    assert hasty.ended_at == usual.ended_at == 115 - 30 + 2


@settings(max_examples=40, deadline=None)
@given(
    graces=st.lists(st.sampled_from([0, 2, 30, 300]), min_size=1, max_size=6),
    lost=st.sets(st.sampled_from("ab"), min_size=1),
    most=st.integers(0, 2),
)
def test_a_rehearsal_at_its_own_times_is_the_same(
    graces: list[int], lost: set[str], most: int
) -> None:
    pods = [pod(f"web-{n}", "ab"[n % 2], grace=grace) for n, grace in enumerate(graces)]
    objects = [*THREE, *pods, budget(maxUnavailable=most)]
    names = " ".join(sorted(lost))
    usual = storm_of(*objects, lost=names)
    asked = {
        one.pod.partition("/")[2]: (one.progress.requested_at - NOW).total_seconds()
        for one in usual.fates
        if one.progress and one.progress.requested_at and one.progress.attempts == 1
    }
    again = storm_of(*objects, lost=names, recorded={name: [at] for name, at in asked.items()})

    assert fates(again) == fates(usual)


@pytest.mark.parametrize("late", [0.0, 5.0, 90.0])
def test_every_request_of_a_late_machine_is_as_late(late: float) -> None:
    pods = [pod(f"web-{n}", "a", grace=10) for n in range(4)]
    times = {f"web-{n}": [1 + late] for n in range(4)}
    found = fates(storm_of(*THREE, *pods, lost="a", recorded=times))

    assert {one.ended_at for one in found.values()} == {1 + late + 2}
