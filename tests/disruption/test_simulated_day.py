"""A simulated evening of a changing workload: no rule is broken, and no plan undoes another."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest
from leeway.disruption.rules import Budget, Cause
from leeway.policy.rules import USUAL, ChurnCap, Worth
from leeway_cli.simulated_day.cluster import Machine, Options, SimulatedPod
from leeway_cli.simulated_day.day import minutes, simulate
from leeway_cli.simulated_day.record import (
    GivenBack,
    Launched,
    Record,
    bought_again,
    replaced_twice,
    undone,
)

from bench import scheduler_simulation
from bench.day import check

AFTERNOON, EVENING = 14 * 60, 17 * 60
SCALE = 0.25
SEEDS = range(4)


@cache
def evening(interruptions: bool = False, gives_back: bool = True) -> Record:
    """An hour and a half in which the load of the day goes down."""
    return simulate(options(interruptions, gives_back))


def options(interruptions: bool, gives_back: bool = True) -> Options:
    return Options(
        minutes=90,
        start=EVENING,
        scale=SCALE,
        interruptions=interruptions,
        gives_back=gives_back,
        after=timedelta(minutes=3),
        budgets=(Budget("20%"), Budget("2")),
    )


@pytest.mark.parametrize("interruptions", [False, True])
def test_a_day_breaks_no_rule_and_no_plan_undoes_another(interruptions: bool) -> None:
    record = evening(interruptions)
    check(record, options(interruptions))
    assert record.given_back, "nothing was given back, so nothing was tested"
    assert bool(record.interrupted) is interruptions


@cache
def afternoon(seed: int) -> tuple[Record, Options]:
    """An hour in which moves are cheap and much may be disrupted, so that nodes are replaced."""
    eager = Options(
        seed,
        minutes=60,
        start=AFTERNOON,
        scale=0.3,
        interruptions=seed % 2 == 0,
        after=timedelta(minutes=3),
        budgets=(Budget("30%"),),
        churn=ChurnCap(percent=50),
        worth=Worth(per_pod=0.001, share=0.02, least_age=timedelta(minutes=10)),
        bounds=False,
    )
    return simulate(eager), eager


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_undoes_another_when_moves_are_cheap(seed: int) -> None:
    check(*afternoon(seed))


def test_nodes_are_replaced_when_moves_are_cheap() -> None:
    causes = sum((afternoon(seed)[0].causes for seed in SEEDS), Counter[str]())
    assert causes["Underutilized, replaced"], "nothing was replaced, so nothing was tested"


def returned(minute: int, node: str, replaced: bool) -> GivenBack:
    kind, cause = ("m5.large", "spot"), Cause.UNDERUTILIZED
    return GivenBack(minute, node, kind, cause, "Because.", 0.01, 2, replaced, (1, 1))


@pytest.mark.parametrize(("minute", "twice", "again"), [(14, 1, 1), (15, 0, 1), (70, 0, 0)])
def test_a_successor_that_goes_too_soon_is_found(minute: int, twice: int, again: int) -> None:
    launched = Launched(10, "new", ("c5.large", "spot"), 2, 0, 2, frozenset({"old"}), (1, 1))
    back = [returned(10, "old", replaced=True), returned(minute, "new", replaced=False)]
    record = Record(given_back=back, launched=[launched])
    assert [one.node for one in replaced_twice(record, timedelta(minutes=5))] == ["new"] * twice
    assert [one.node for one in undone(record, USUAL)] == ["old"] * again, "it pays in an hour"


def test_giving_back_costs_less_than_keeping_and_more_than_the_bound() -> None:
    record = evening()
    assert record.bound < record.dollars < evening(gives_back=False).dollars
    assert not evening(gives_back=False).given_back


def test_few_nodes_are_bought_again_before_the_move_has_paid() -> None:
    record = evening()
    again = bought_again(record, options(False).worth)
    assert len(again) <= len(record.given_back) / 10


def test_a_day_is_the_same_again() -> None:
    first, whole = 30, evening(interruptions=True)
    again = simulate(replace(options(interruptions=True), minutes=first))
    assert again.moments == whole.moments[: len(again.moments)]
    assert again.launched == [one for one in whole.launched if one.minute < EVENING + first]
    assert again.given_back == [one for one in whole.given_back if one.minute < EVENING + first]
    assert again.launched, "nothing happened, so nothing was tested"
    assert again.given_back


def test_every_pod_is_on_a_node_that_kube_scheduler_admits_it_to() -> None:
    checked = 0
    for cluster in minutes(replace(options(interruptions=True), minutes=20)):
        for one in cluster.machines.values():
            for pod in one.pods.values():
                assert _admits(one, pod), pod.pod.name
                checked += 1
    assert checked > 100


def _admits(one: Machine, pod: SimulatedPod) -> bool:
    """Whether the filters admit a pod to its node, as the node is without the pod."""
    host = scheduler_simulation.host_of(one.node())
    host.pods.remove(pod.pod.spec)
    host.free.update(pod.pod.spec.requests)
    return scheduler_simulation.admits(host, pod.pod.spec, [host])
