"""The demo of `leeway switch`: a cluster that Karpenter runs goes to Leeway and back.

The command runs in a process of its own, as a person runs it, beside the small Karpenter of the
sandbox. Each of its lines becomes a mark in the report.
"""

import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from leeway_sandbox.karpenter import Karpenter
from leeway_sandbox.provisioning import client, create_workloads
from leeway_sandbox.scenario import Scenario

from leeway_cli.demo.pools import start_schedules, store_catalog
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.report.switched import Mark, SwitchReport, switch_from_journal
from leeway_cli.switch.claims import is_taken

if TYPE_CHECKING:
    from leeway_sandbox.sandbox import Sandbox

type Show = Callable[[str, int, int | None], None]

PODS_MORE = 3
"""The pods that the Deployment gets while Leeway launches: they need one more node."""
SETTLES = 5.0  # seconds after the last command in which a pod could still restart
_RUN = "from leeway_cli.main import main; main()"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CLASSES = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
_POOLS = "/apis/karpenter.sh/v1/nodepools"


def run_switch(sandbox: "Sandbox", scenario: Scenario, show: Show) -> SwitchReport:
    """Let Karpenter launch the nodes, switch to Leeway, let it launch one, and switch back.

    Raises:
        CannotBeDoneError: the command failed.
        SandboxError: the pods do not run in time.
    """
    (pool,), marks = scenario.pools, list[Mark]()
    deployed = next(one for one in pool.workloads if one["kind"] == "Deployment")
    with _cluster(sandbox) as http:
        show("creating NodePools, and nodes of Karpenter", 0, None)
        _keep_manifests(sandbox, http, pool.manifests)
        services = (client(name, sandbox.aws_url) for name in ("ec2", "eks", "ssm"))
        karpenter = Karpenter(http, sandbox.endpoints.cluster, *services)
        karpenter.install()
        with karpenter.running():
            for number in range(pool.nodes):
                karpenter.add_claim(f"{pool.name}-{number}", pool.name)
            create_workloads(pool.workloads, sandbox.write_kubeconfig())
            nodes, pods = scenario.nodes + pool.nodes, scenario.pods + pool.pods + 1
            sandbox.wait_for(nodes, pods, show)
            start_schedules(sandbox)
            began_at = time.time()
            _command(sandbox, "--from", marks, show)
            show("Leeway launches a node for more pods", 0, None)
            marks.append(Mark(time.time(), f"{PODS_MORE} more pods"))
            metadata = deployed["metadata"]
            path = (
                f"/apis/apps/v1/namespaces/{metadata['namespace']}/deployments/{metadata['name']}"
            )
            spec = {"replicas": deployed["spec"]["replicas"] + PODS_MORE}
            http.patch(
                f"{path}/scale",
                json={"spec": spec},
                headers={"Content-Type": "application/merge-patch+json"},
            ).raise_for_status()
            sandbox.wait_for(nodes + 1, pods + PODS_MORE, show)
            _command(sandbox, "--to", marks, show)
            time.sleep(SETTLES)
            claims = http.get("/apis/karpenter.sh/v1/nodeclaims").raise_for_status().json()
    names = [str(one["metadata"]["name"]) for one in claims["items"] if is_taken(one)]
    owner = f"Deployment/{metadata['namespace']}/{metadata['name']}"
    return switch_from_journal(
        sandbox.journal(), owner, began_at, time.time(), marks, names, karpenter
    )


def _keep_manifests(sandbox: "Sandbox", http: httpx2.Client, manifests: Any) -> None:
    """Do what `leeway adopt --manifests cluster` does, and apply the manifests there."""
    from leeway.aws.table import DynamoTable
    from leeway.manifests.in_cluster import HOME, Home, ManifestHome

    from leeway_cli.manifests.crds import crd_of, defined_kinds

    for kind in defined_kinds():
        http.post(_CRDS, json=crd_of(kind)).raise_for_status()
    store_catalog(sandbox)
    dynamodb, table = client("dynamodb", sandbox.aws_url), sandbox.environment()["LEEWAY_TABLE"]
    home = ManifestHome(sandbox.endpoints.cluster, 1, Home.CLUSTER)
    DynamoTable(lambda: dynamodb, table).put(HOME, home)
    for manifest in manifests:
        path = _POOLS if manifest["kind"] == "NodePool" else _CLASSES
        until = time.monotonic() + 30
        while http.get(path).status_code != httpx2.codes.OK and time.monotonic() < until:
            time.sleep(0.1)
        http.post(path, json=manifest).raise_for_status()


def _command(sandbox: "Sandbox", direction: str, marks: list[Mark], show: Show) -> None:
    """Run `leeway switch` in one direction, and add a mark for each of its steps."""
    cluster = sandbox.endpoints.cluster
    command = ["switch", cluster, direction, "karpenter", "--yes", "-o", "json"]
    sandbox.write_kubeconfig()
    environment = {
        **os.environ,
        **sandbox.environment(),
        "KUBECONFIG": str(sandbox.kubeconfig),
    }
    marks.append(Mark(time.time(), f"leeway switch {direction} karpenter"))
    with subprocess.Popen(
        [sys.executable, "-c", _RUN, *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        said = []
        for line in process.stderr or ():
            said.append(line.strip())
            title = line.partition(":")[0]
            show(f"leeway switch {direction} karpenter: {line.strip()}", 0, None)
            marks.append(Mark(time.time(), title))
    if process.returncode:
        raise CannotBeDoneError(f"`leeway switch {direction} karpenter` failed: {said[-1]}")


@contextmanager
def _cluster(sandbox: "Sandbox") -> Iterator[httpx2.Client]:
    """Open the API server as the admin of the sandbox."""
    ends = sandbox.endpoints
    with httpx2.Client(
        base_url=ends.kubernetes,
        headers={"Authorization": f"Bearer {ends.token}"},
        verify=ssl.create_default_context(cafile=str(ends.ca)),
        trust_env=False,
        timeout=30,
    ) as http:
        yield http
