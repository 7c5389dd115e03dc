"""Measures one run of provision_nodes on a cluster of prepared bytes, with the sandbox's AWS.

`python -m bench.provision_run PORT PENDING` runs in the environment of the function, whose cluster
has stored manifests. It prints seconds and megabytes as JSON.
"""

import json
import sys
import time
from datetime import timedelta
from typing import Any

import httpx
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.provision_run import NodeProvisioning
from leeway.wiring.clients import clock, settings
from leeway.wiring.provision_nodes import dependencies

from bench.connections import connection_of
from bench.statistics import peak_mb

SECONDS = timedelta(seconds=60)


def main(port: str, pending: str) -> None:
    """Run for a cluster without pending pods, for one, for `pending` new ones, and once more with
    their nodes on the way. The second run connects to the services and reads what stays known."""
    url = f"http://127.0.0.1:{port}"
    connection = connection_of(url)
    buyer = NodeProvisioning(dependencies(KubernetesClusterStates(lambda _: connection, clock())))
    found: dict[str, Any] = {"cold": _timed(buyer)}
    httpx.post(f"{url}/_more", params={"count": 1})
    found["connecting"] = _timed(buyer)
    httpx.post(f"{url}/_more", params={"count": pending})
    found["launching"] = _timed(buyer)
    found["again"] = _timed(buyer)
    found["peak"] = peak_mb()
    sys.stdout.write(json.dumps(found))


def _timed(buyer: NodeProvisioning) -> dict[str, float]:
    """Run once; return wall and CPU seconds and the number of launched nodes."""
    (cluster,) = settings().clusters
    wall, cpu = time.perf_counter(), time.process_time()
    report = buyer.run(cluster, "bench", clock().now() + SECONDS)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if report.failures or report.without_node:
        raise SystemExit(f"{report.result.message} {report.failures} {report.without_node[:1]}")
    return {"wall": wall, "cpu": cpu, "launched": len(report.launched)}


if __name__ == "__main__":
    main(*sys.argv[1:])
