"""Runs one function for `bench.scale`, in a process of its own with little else in its memory.

`python -m bench.scale_run RUN URL CLUSTERS NODES` prints what it used as JSON.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.connections import connection_of
from bench.statistics import peak_mb

EVENTS = Path(__file__).parents[1] / "events"

LOST = 10
"""One node of this many is interrupted in the storm."""

BUYERS = 10
"""Runs of provision_nodes at the same time: MaximumConcurrency of its queue. A process here stands
for one of them, with its share of the clusters."""

WATCHED = 75.0
"""Seconds for which watch_pods watches."""


def cluster_name(number: int) -> str:
    """Return the name of a cluster."""
    return f"cluster-{number:03}"


def instance_id(number: int) -> str:
    """Return the id of an instance; it is in the cluster `number % clusters`."""
    return f"i-{number:017x}"


def _measure(run: str, url: str, clusters: int, nodes: int) -> dict[str, float]:
    """Prepare a process as a function, run it, and return what the measured part of it used."""
    names = [cluster_name(number) for number in range(clusters)]
    os.environ |= {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
        "LEEWAY_ACCOUNT": "123456789012",
        "LEEWAY_RETIRE_NODE": "leeway-retire-node",
        "LEEWAY_ADMIT_NODE": "leeway-admit-node",
        "LEEWAY_PROVISION_QUEUE": f"{url}/123456789012/provision.fifo",
        "LEEWAY_TABLE": "leeway",
        "LEEWAY_CLUSTERS": ",".join(names),
        "POWERTOOLS_METRICS_NAMESPACE": "Leeway",
        "POWERTOOLS_SERVICE_NAME": "leeway",
    }
    from leeway.wiring.clients import session

    calls, read = Counter[str](), Counter[str]()

    def count(http_response: Any, model: Any, **_: object) -> None:
        service = model.service_model.service_name
        calls[service] += 1
        assert (run, model.name) != ("provision_nodes", "SendMessage"), "a node is to be given back"
        read[service] += len(http_response.content)

    # Clients copy the handlers of their session.
    session().events.register("after-call", count)
    connected = {name: connection_of(f"{url}/{name}") for name in names}
    for one in connected.values():
        one.plain.event_hooks["response"].append(
            lambda answer: read.update(api=int(answer.headers.get("Content-Length", 0)))
        )
    of, measured = RUNS[run](names, nodes, SimpleNamespace(get=connected.__getitem__))
    calls.clear()
    read.clear()
    began = time.process_time()
    measured()
    cpu = time.process_time() - began
    table = calls["dynamodb"]
    return {
        "of": of,
        "cpu": cpu,
        "peak": peak_mb(),
        "table": table,
        "others": calls.total() - table,
        "table_kb": read["dynamodb"] / 1024,
        "api_kb": read["api"] / 1024,
    }


type Prepared = tuple[int, Callable[[], object]]
"""How many clusters or notices a run serves, and what is measured."""


def _reconcile(names: list[str], _nodes: int, opened: Any) -> Prepared:
    """The second run: the first one writes the index."""
    from leeway import costs
    from leeway.reconciliation.reconcile import ReconcileRequest
    from leeway.wiring import clusters
    from leeway.wiring import reconcile as wiring

    _connect(opened, wiring, clusters)
    # One run in five minutes lists the pods, too. The first one does, the measured one does not.
    costs.SAMPLE_SECONDS = 10**9
    reconciling = wiring.reconciliation()

    def run() -> None:
        for report in reconciling.run(ReconcileRequest()):
            assert not report.problems, report.problems

    run()
    return len(names), run


def _provision_nodes(names: list[str], _nodes: int, opened: Any) -> Prepared:
    """The second message of each cluster, for the share of one environment."""
    from leeway.wiring import clusters
    from leeway.wiring import provision_nodes as wiring

    _connect(opened, wiring, clusters)
    share = names[: max(1, len(names) // BUYERS)]

    def run() -> None:
        for name in share:
            body = json.dumps({"cluster": name, "why": "The schedule of each minute."})
            record = {"messageId": name, "receiptHandle": name, "body": body}
            assert not wiring.provision_nodes().receive({"Records": [record]}, 170.0)

    run()
    return len(share), run


def _watch_pods(names: list[str], _nodes: int, opened: Any) -> Prepared:
    """A run that watches all clusters."""
    from leeway.pod_watch import watch_pods
    from leeway.wiring import watch_pods as wiring

    _connect(opened, wiring)

    def run() -> None:
        report = wiring.watch_pods().run(names, WATCHED + watch_pods.TIME_TO_CLOSE)
        assert len(report.woken) == len(report.watched) == len(names), report.reason

    return len(names), run


def _keep_headroom(names: list[str], _nodes: int, opened: Any) -> Prepared:
    """The second run, without a headroom."""
    from leeway.wiring import keep_headroom as wiring

    _connect(opened, wiring)
    keeping = wiring.keep_headroom()
    keeping.run(names)
    return len(names), lambda: keeping.run(names)


def _receive_notice(_names: list[str], nodes: int, _opened: Any) -> Prepared:
    """The warnings of the storm."""
    from leeway.wiring.receive_notice import receive

    warning = json.loads((EVENTS / "spot-interruption.json").read_text())
    lost = range(0, nodes, LOST)

    def run() -> None:
        for number in lost:
            detail = {**warning["detail"], "instance-id": instance_id(number)}
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            receive({**warning, "id": f"{number:08}", "time": now, "detail": detail})

    return len(lost), run


RUNS: dict[str, Callable[[list[str], int, Any], Prepared]] = {
    "reconcile": _reconcile,
    "keep_headroom": _keep_headroom,
    "watch_pods": _watch_pods,
    "provision_nodes": _provision_nodes,
    "receive_notice": _receive_notice,
    "reconcile:in the storm": _reconcile,
}


def _connect(opened: Any, *modules: Any) -> None:
    """Have modules use the prepared API servers."""
    for module in modules:
        vars(module)["connections"] = lambda: opened


if __name__ == "__main__":
    name, url, clusters, nodes = sys.argv[1:]
    found = _measure(name, url, int(clusters), int(nodes))
    sys.stdout.write(f"\n{json.dumps(found)}")
