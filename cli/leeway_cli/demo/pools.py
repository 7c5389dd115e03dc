"""The pools of a demo: their manifests and the catalog in Leeway's table, and their first nodes.

Leeway launches the nodes, at first and in the demo: `watch_pods` sees pending pods, and
`provision_nodes` launches for them.
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from leeway_sandbox.provisioning import client, create_workloads
from leeway_sandbox.scenario import Manifest, Pool, Scenario

if TYPE_CHECKING:
    from leeway_sandbox.sandbox import Sandbox

SCHEDULES_WAIT = {"aws": ["--schedule-speed", "0"]}
"""The option of a sandbox whose schedules begin with `start_schedules`. A function that ran before
the manifests are stored would know for a minute that there are none."""

WATCH = "watch-pods"


def start_pools(
    sandbox: "Sandbox", scenario: Scenario, show: Callable[[str, int, int | None], None]
) -> None:
    """Store the manifests, create the workloads of the pools, and wait until Leeway has launched
    their nodes and the pods run.

    Raises:
        SandboxError: the pods do not run in time.
    """
    if scenario.pools:
        store_pools(sandbox, scenario.pools)
    start_schedules(sandbox)
    if not scenario.pools:
        return
    show("creating the workloads of pools", 0, None)
    workloads = [manifest for pool in scenario.pools for manifest in pool.workloads]
    create_workloads(workloads, sandbox.write_kubeconfig())
    nodes = sum(pool.nodes for pool in scenario.pools)
    pods = sum(pool.pods for pool in scenario.pools)
    sandbox.wait_for(scenario.nodes + nodes, scenario.pods + pods, show)


def start_schedules(sandbox: "Sandbox") -> None:
    """Let schedules run in real time, and `watch_pods` at once."""
    sandbox.set_schedule_speed(1)
    for schedule in sandbox.schedules():
        if schedule["name"].endswith(WATCH):
            sandbox.fire(schedule["name"])


def store_pools(sandbox: "Sandbox", pools: Iterable[Pool]) -> None:
    """Store the manifests of pools as `leeway apply` does, and the catalog that `refresh_catalog`
    would read from the sandbox's EC2."""
    from leeway.aws.table import DynamoTable
    from leeway.catalog.stored import SURVEY
    from leeway.manifests.configuration import StoredManifests
    from leeway.manifests.reading import read_manifests
    from leeway.selection.offers.survey import compressed

    from leeway_cli.manifests.planned_change import plan_change
    from leeway_cli.selection.catalogs import SANDBOX_REGION, sandbox_survey

    dynamodb, table = client("dynamodb", sandbox.aws_url), sandbox.environment()["LEEWAY_TABLE"]
    DynamoTable(lambda: dynamodb, table).put(
        SURVEY, compressed(sandbox_survey()), region=SANDBOX_REGION
    )
    writing = StoredManifests(DynamoTable(lambda: dynamodb, table))
    now = datetime.now(UTC)
    for manifest in manifests_of(pools):
        for written in read_manifests(json.dumps(manifest), "demo").written:
            stored = plan_change(written, (), now).after
            if stored is not None:
                writing.write(sandbox.endpoints.cluster, stored, 0)


def manifests_of(pools: Iterable[Pool]) -> list[Manifest]:
    """Return the manifests of pools, each once."""
    found = {}
    for pool in pools:
        for manifest in pool.manifests:
            found[manifest["kind"], manifest["metadata"]["name"]] = manifest
    return list(found.values())
