"""Storms of fifty interruptions while the cluster's API and AWS fail: the promises hold."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from sandbox.provisioning import client, create_workloads
from sandbox.sandbox import Sandbox
from sandbox.scenario import Group, Scenario, budget
from tests.end_to_end.conftest import daemonset, deployment
from tests.end_to_end.promises import Promises
from tests.end_to_end.rehearsal import Aftermath, Rehearsal, tick, until

Fault = dict[str, Any]

STORM = 50
HALF = STORM // 2
GROUP = 30

# Budgets make the pods of fifty nodes queue: each that has gone runs elsewhere before the next may.
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
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """A sandbox that a storm of fifty leaves with ten nodes, for a moment."""
    options = {"lambda": ["--retry-delay", "1"], "aws": ["--schedule-speed", "0"]}
    state = tmp_path_factory.mktemp("stormy")
    with Sandbox.start(WORLD, state_dir=state, options=options) as sandbox:
        yield Rehearsal(sandbox)


def api_errors(share: float) -> list[Fault]:
    """Every way in which an API server fails, as often as each other: so many of all calls."""
    ways: list[Fault] = [
        {"status": 500},
        {"status": 429, "retryAfter": 1},
        {"status": 401},
        {"drop": True},
        {"drop": "before"},
    ]
    # Of the faults, a call meets the first that strikes.
    rate = 1 - (1 - share) ** (1 / len(ways))
    return [way | {"rate": rate} for way in ways]


def aws_errors(share: float) -> list[Fault]:
    """So many of all AWS calls fail; of the failed ones, some were carried out all the same."""
    rate = 1 - (1 - share) ** (1 / 2)
    said = {
        "ec2": ("RequestLimitExceeded", 503),
        "autoscaling": ("Throttling", 400),
        "dynamodb": ("InternalServerError", 500),
        "events": ("InternalFailure", 500),
        "eks": ("ServerException", 500),
    }
    return [
        {"service": name, "error": error, "status": status, "rate": rate, "when": when}
        for name, (error, status) in said.items()
        for when in ("before", "after")
    ]


LEFT_BY_OTHERS = 0.1
"""Of the buckets of requests of EC2 and Auto Scaling: the rest of the account uses them too."""

# Others have used up this one altogether: what the instances are, Leeway has to know.
DESCRIBING = {"service": "ec2", "action": "DescribeInstances"}
REFUSED: Fault = DESCRIBING | {"error": "RequestLimitExceeded", "status": 503}


def test_a_storm_of_fifty_in_which_10_percent_of_the_api_fails_and_aws_throttles(
    rehearsal: Rehearsal,
) -> None:
    sandbox = rehearsal.sandbox
    before = Counter(sandbox.status()["aws"]["throttled"])
    seen = storm(rehearsal, api_errors(0.1), [REFUSED], share=LEFT_BY_OTHERS)
    throttled = Counter(sandbox.status()["aws"]["throttled"]) - before
    assert throttled, "no bucket was empty"
    asked = {e["request_id"] for e in seen.of("logs") if "DescribeInstances" in str(e["line"])}
    received = seen.of("invocation", function="leeway-receive-notice")
    assert not asked & {e["request_id"] for e in received}, "nobody asks what an instance is"
    assert not seen.of("pod-deletion", via="delete"), "no budget is passed by"


def test_a_storm_of_fifty_in_which_30_percent_of_the_api_and_10_percent_of_aws_fail(
    rehearsal: Rehearsal,
) -> None:
    never = budget("default", "ledger", minAvailable=4)
    create_workloads([never], rehearsal.sandbox.write_kubeconfig())
    # Its pods are waited for until their latest moment, so the warnings come somewhat late.
    seen = storm(rehearsal, api_errors(0.3), aws_errors(0.1), late=20)
    deleted = {e["pod"].partition("-")[0] for e in seen.of("pod-deletion", via="delete")}
    assert deleted == {"default/ledger"}, "only what its budget never lets go is deleted"


def storm(
    rehearsal: Rehearsal,
    api: Sequence[Fault],
    aws: Sequence[Fault],
    late: float = 0,
    share: float | None = None,
) -> Aftermath:
    """Interrupt fifty at once amid these faults, and hold what comes of it to the promises.

    This machine does the work of fifty functions, of AWS and of a cluster on a few processors: what
    a storm takes is mostly its time, and the warnings leave it more than a minute and a half.
    """
    nodes = rehearsal.take(HALF, "hooked") | rehearsal.take(HALF, "plain")
    wait_until_known(rehearsal, nodes)
    promises = Promises(rehearsal)
    rehearsal.sandbox.faults("kubernetes", api)
    rehearsal.sandbox.faults("aws", aws)
    if share is not None:
        rehearsal.sandbox.throttle(enabled=True, share=share)
    rehearsal.interrupt(list(nodes), late=late, patience=150)
    seen = promises.hold(nodes)
    results = Counter(o["result"] for instance in nodes for o in seen.outcomes(instance))
    assert set(results) == {"drained"}
    cut_short = [e for e in seen.of("invocation") if e["outcome"] in {"killed", "timeout"}]
    assert not cut_short, "no function dies, whatever fails around it"
    struck = [e for e in seen.of("eviction") if e["status"] in {401, 500} or not e["answered"]]
    assert struck, "no call met a fault"
    return seen


def wait_until_known(rehearsal: Rehearsal, instances: Iterable[str]) -> None:
    """Let a minute pass, in which Leeway gets to know these instances."""
    tick(rehearsal)
    table = rehearsal.sandbox.environment()["LEEWAY_TABLE"]
    dynamodb = client("dynamodb", rehearsal.sandbox.aws_url)

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
