"""Measures how long after its last pod an empty node goes, on the sandbox, in real minutes.

The pool has `consolidateAfter: 1m` and the usual budget of 10 %: its nodes go one after the other.
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import pod_spec
from lightkube import Client, KubeConfig
from lightkube.codecs import from_dict
from lightkube.resources.core_v1 import Pod

from bench.provision import CLUSTER, SMALL, manifests, sandbox_with_pools

NODES = 4
WAIT_TIMEOUT = 1200.0


def main() -> None:
    """Print when each node went after its last pod, and after the one before it."""
    with (
        TemporaryDirectory() as folder,
        sandbox_with_pools(Path(folder), _documents(), speed=1) as sandbox,
    ):
        sandbox.write_kubeconfig()
        with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
            empty_since = _emptied(kube)
        _wait(lambda: len(_gone(sandbox)) == NODES)
        gone = sorted(_gone(sandbox))
        runs = [
            e
            for e in sandbox.journal()
            if e["kind"] == "queue-batch" and empty_since <= e["at"] <= gone[-1]
        ]
    sys.stdout.write(
        f"The last pods ended at {datetime.fromtimestamp(empty_since, UTC):%H:%M:%S}\n"
    )
    sys.stdout.write("node  after the last pod  after the node before\n")
    for number, (at, before) in enumerate(zip(gone, [empty_since, *gone], strict=False), 1):
        sys.stdout.write(f"{number:4} {at - empty_since:17.1f} s {at - before:20.1f} s\n")
    minutes = (gone[-1] - empty_since) / 60
    sys.stdout.write(f"{len(runs)} invocations of provision_nodes in {minutes:.1f} minutes\n")


def _documents() -> list[dict[str, Any]]:
    """The pools, of which each keeps the usual budget."""
    found = manifests(CLUSTER)
    for one in found:
        if one["kind"] == "NodePool":
            one["spec"]["disruption"] = {"consolidateAfter": "1m"}
    return found


def _emptied(kube: Client) -> float:
    """Create a pod for each node, wait until all run and the nodes are quiet, and delete them;
    return when the last one was gone."""
    spec = pod_spec(cpu="1500m", grace=1)["spec"] | {
        "tolerations": [{"key": SMALL["key"], "operator": "Exists"}],
        "nodeSelector": {"karpenter.sh/nodepool": "small"},
    }
    for number in range(NODES):
        metadata = {"name": f"pod-{number}", "namespace": "default"}
        pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        kube.create(from_dict({**pod, "spec": spec}))
    _wait(lambda: _running(kube) == NODES)
    time.sleep(75)  # the minute's runs have seen the nodes, and reconcile has indexed them
    for number in range(NODES):
        kube.delete(Pod, f"pod-{number}", namespace="default")
    _wait(lambda: not list(kube.list(Pod, namespace="default")))
    return time.time()


def _running(kube: Client) -> int:
    pods = kube.list(Pod, namespace="default")
    return sum(one.status is not None and one.status.phase == "Running" for one in pods)


def _gone(sandbox: Sandbox) -> list[float]:
    """When each instance was told to terminate."""
    events = [e for e in sandbox.journal() if e["kind"] == "put-events"]
    ended = [e for e in events if e["detail"].get("terminated") is True]
    return [float(e["at"]) for e in ended if e["detail"].get("cluster") == CLUSTER]


def _wait(found: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_TIMEOUT
    while not found():
        if time.monotonic() > until:
            raise TimeoutError("nothing happened in time")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
