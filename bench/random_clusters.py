"""Random clusters for comparisons of rehearsals with real runs."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from leeway_sandbox.scenario import (
    Group,
    Manifest,
    Scenario,
    bare_pod,
    budget,
    daemon_set,
    deployment,
    namespace,
    pod_spec,
    stateful_set,
)

LABEL = "rehearsal"
"""The label of nodes with the name of their random cluster."""


def name_of(seed: int) -> str:
    """Return the name of the random cluster of a seed: its group, its namespace and the value of
    its nodes' label."""
    return f"c{seed}"


def random_clusters(seeds: Sequence[int]) -> Scenario:
    """Return a scenario with a random cluster for each seed, in a group and a namespace of its
    own."""
    groups, workloads = [], [_agent()]
    for seed in seeds:
        rng, name = random.Random(seed), name_of(seed)
        groups.append(
            Group(
                name,
                rng.randint(3, 4),
                terminate_hook=rng.random() < 0.5,
                labels=((LABEL, name),),
            )
        )
        workloads += _random_workloads(rng, name)
    return Scenario("rehearsal", tuple(groups), tuple(workloads))


def _agent() -> Manifest:
    tolerations = [{"operator": "Exists"}]
    return daemon_set("kube-system", "agent", pod_spec(cpu="50m", tolerations=tolerations))


def _random_workloads(rng: random.Random, space: str) -> Iterator[Manifest]:
    yield namespace(space)
    for number in range(rng.randint(3, 5)):
        name, replicas = f"w{number}", rng.randint(1, 5)
        template = _random_template(rng, space)
        if rng.random() < 0.25:
            body: Any = stateful_set(space, name, replicas, template)
            body["spec"]["podManagementPolicy"] = rng.choice(["Parallel", "OrderedReady"])
        else:
            body = deployment(space, name, replicas, template)
        yield body
        yield from _random_budgets(rng, space, name, replicas)
    if rng.random() < 0.4:
        yield bare_pod(space, "by-hand", _random_template(rng, space))


def _random_template(rng: random.Random, space: str) -> dict[str, Any]:
    # Between the time that a pod needs and the time that it gets there is always a second or more.
    grace = rng.choice([2, 5, 10, 20, 60, 300])
    template = pod_spec(
        cpu=rng.choice(["50m", "100m", "200m"]),
        grace=grace,
        ends_after=rng.choice([0.5, 1.0, 3.5, 8.0, 70.0]),
        starts_after=rng.choice([0.5, 1.0, 3.0]),
        priority_class="system-cluster-critical" if rng.random() < 0.1 else None,
    )
    template["spec"]["nodeSelector"] = {LABEL: space}
    return template


def _random_budgets(rng: random.Random, space: str, name: str, replicas: int) -> Iterator[Manifest]:
    rules: list[dict[str, int | str] | None] = [
        None,
        None,
        {"maxUnavailable": 1},
        {"maxUnavailable": "50%"},
        {"minAvailable": max(1, replicas - 1)},
        {"minAvailable": replicas},
        {"minAvailable": "100%"},
    ]
    rule = rng.choice(rules)
    if rule is not None:
        yield budget(space, name, **rule)
        if rng.random() < 0.15:
            second: Any = budget(space, name, maxUnavailable=1)
            second["metadata"]["name"] = f"{name}-again"
            yield second
