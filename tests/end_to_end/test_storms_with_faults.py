"""Storms of fifty interruptions with failing API servers and AWS: the invariants hold."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from leeway_sandbox.provisioning import client, create_workloads
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario, budget

from tests.end_to_end.conftest import daemonset, deployment
from tests.end_to_end.environment import Environment, Journal, run_reconcile, until
from tests.end_to_end.invariants import InvariantChecks

Fault = dict[str, Any]

STORM = 50
HALF = STORM // 2
GROUP = 30

# Budgets serialise the pods of fifty nodes: a pod runs on another node before the next may end.
WORLD = Scenario(
    cluster="stormy",
    groups=(Group("hooked", GROUP, terminate_hook=True), Group("plain", GROUP)),
    workloads=(
        deployment("web", 120, 5),
        budget("default", "web", maxUnavailable="20%"),
        deployment("api", 50, 10),
        budget("default", "api", minAvailable="70%"),
        deployment("checkout", 6, 5),
        budget("default", "checkout", maxUnavailable=2),
        deployment("ledger", 4, 45),
        daemonset("cni"),
    ),
)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A sandbox that has ten nodes left during a storm of fifty."""
    options = {"lambda": ["--retry-delay", "1"], "aws": ["--schedule-speed", "0"]}
    state = tmp_path_factory.mktemp("stormy")
    with Sandbox.start(WORLD, state_dir=state, options=options) as sandbox:
        yield Environment(sandbox)


def api_errors(share: float) -> list[Fault]:
    """Return faults so that this share of all API calls fails, in every way with the same rate."""
    ways: list[Fault] = [
        {"status": 500},
        {"status": 429, "retryAfter": 1},
        {"status": 401},
        {"drop": True},
        {"drop": "before"},
    ]
    # Only the first matching fault applies to a call.
    rate = 1 - (1 - share) ** (1 / len(ways))
    return [way | {"rate": rate} for way in ways]


def aws_errors(share: float) -> list[Fault]:
    """Return faults so that this share of all AWS calls fails. Some of the failed calls take
    effect."""
    rate = 1 - (1 - share) ** (1 / 2)
    errors = {
        "ec2": ("RequestLimitExceeded", 503),
        "autoscaling": ("Throttling", 400),
        "dynamodb": ("InternalServerError", 500),
        "events": ("InternalFailure", 500),
        "eks": ("ServerException", 500),
    }
    return [
        {"service": name, "error": error, "status": status, "rate": rate, "when": when}
        for name, (error, status) in errors.items()
        for when in ("before", "after")
    ]


LEFT_BY_OTHERS = 0.1
"""The remaining share of the request buckets of EC2 and Auto Scaling; the rest of the account uses
the other part."""

# This bucket is empty: Leeway must use the facts that it has stored.
DESCRIBING = {"service": "ec2", "action": "DescribeInstances"}
REFUSED: Fault = DESCRIBING | {"error": "RequestLimitExceeded", "status": 503}


def test_a_storm_of_fifty_in_which_10_percent_of_the_api_fails_and_aws_throttles(
    env: Environment,
) -> None:
    sandbox = env.sandbox
    before = Counter(sandbox.status()["aws"]["throttled"])
    seen = storm(env, api_errors(0.1), [REFUSED], share=LEFT_BY_OTHERS)
    throttled = Counter(sandbox.status()["aws"]["throttled"]) - before
    assert throttled, "no bucket was empty"
    described = {e["request_id"] for e in seen.of("logs") if "DescribeInstances" in str(e["line"])}
    received = seen.of("invocation", function="leeway-receive-notice")
    assert not described & {e["request_id"] for e in received}, "no instance is described"
    assert not seen.of("pod-deletion", via="delete"), "no budget is bypassed"


def test_a_storm_of_fifty_in_which_30_percent_of_the_api_and_10_percent_of_aws_fail(
    env: Environment,
) -> None:
    never = budget("default", "ledger", minAvailable=4)
    create_workloads([never], env.sandbox.write_kubeconfig())
    # The drain waits for these pods until their latest time, so the warnings arrive late.
    seen = storm(env, api_errors(0.3), aws_errors(0.1), late=20)
    deleted = {e["pod"].partition("-")[0] for e in seen.of("pod-deletion", via="delete")}
    assert deleted == {"default/ledger"}, "only pods that a budget always blocks are deleted"


def storm(
    env: Environment,
    api: Sequence[Fault],
    aws: Sequence[Fault],
    late: float = 0,
    share: float | None = None,
) -> Journal:
    """Interrupt fifty nodes at once with these faults, and check the invariants.

    This machine runs fifty functions, AWS and a cluster on a few processors, so a storm takes
    mostly CPU time. The warnings leave more than a minute and a half.
    """
    nodes = env.unused_nodes(HALF, "hooked") | env.unused_nodes(HALF, "plain")
    wait_until_known(env, nodes)
    invariants = InvariantChecks(env)
    env.sandbox.faults("kubernetes", api)
    env.sandbox.faults("aws", aws)
    if share is not None:
        env.sandbox.throttle(enabled=True, share=share)
    env.interrupt(list(nodes), late=late)
    seen = invariants.check(nodes)
    results = Counter(o["result"] for instance in nodes for o in seen.outcomes(instance))
    assert set(results) == {"drained"}
    cut_short = [e for e in seen.of("invocation") if e["outcome"] in {"killed", "timeout"}]
    assert not cut_short, "no function is killed or times out"
    failed = [e for e in seen.of("eviction") if e["status"] in {401, 500} or not e["answered"]]
    assert failed, "no call failed"
    return seen


def wait_until_known(env: Environment, instances: Iterable[str]) -> None:
    """Run reconcile, and wait until the index has these instances."""
    run_reconcile(env)
    table = env.sandbox.environment()["LEEWAY_TABLE"]
    dynamodb = client("dynamodb", env.sandbox.aws_url)

    def known() -> set[str]:
        query = dynamodb.get_paginator("query").paginate(
            TableName=table,
            IndexName="by-cluster",
            KeyConditionExpression="#cluster = :cluster AND sk = :sk",
            ExpressionAttributeNames={"#cluster": "cluster"},
            ExpressionAttributeValues={":cluster": {"S": WORLD.cluster}, ":sk": {"S": "FACTS"}},
        )
        items = [item for page in query for item in page["Items"]]
        return {json.loads(item["record"]["S"])["instance"] for item in items}

    until(lambda: set(instances) <= known())
