"""The demos with pools: scale-up and scale-down.

Leeway launches the nodes, at first and in the demo: `watch_pods` sees pending pods, and
`provision_nodes` launches for them. A scale-down is three simulated days.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from leeway.manifests.node_pool import pools_of
from leeway.reasons import counted
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.reading.cluster_objects import daemons_of, pending_pods
from leeway_sandbox.provisioning import client, create_workloads
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Manifest, Pool, Scenario
from rich.console import Console

from leeway_cli.report.scale_down import ScaleDownReport
from leeway_cli.report.scale_up import Offering, ScaleUpPlan, ScaleUpReport, scale_up_from_journal
from leeway_cli.simulated_day.cluster import Options
from leeway_cli.simulated_day.day import simulate
from leeway_cli.simulated_day.record import Moment, Record
from leeway_cli.simulated_day.workload import DAY
from leeway_cli.terminal import ProgressBars

if TYPE_CHECKING:
    from leeway.selection.offers.survey import Survey
    from leeway_sandbox.sandbox import Sandbox

SCHEDULES_WAIT = {"aws": ["--schedule-speed", "0"]}
"""The option of a sandbox whose schedules begin with `start_schedules`. A function that ran before
the manifests are stored would know for a minute that there are none."""

WATCH = "watch-pods"


def start_pools(
    sandbox: Sandbox, scenario: Scenario, show: Callable[[str, int, int | None], None]
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


def start_schedules(sandbox: Sandbox) -> None:
    """Let schedules run in real time, and `watch_pods` at once."""
    sandbox.set_schedule_speed(1)
    for schedule in sandbox.schedules():
        if schedule["name"].endswith(WATCH):
            sandbox.fire(schedule["name"])


def store_catalog(sandbox: Sandbox) -> None:
    """Store the catalog that `refresh_catalog` would read from the sandbox's EC2."""
    from leeway.aws.table import DynamoTable
    from leeway.catalog.stored import SURVEY
    from leeway.selection.offers.survey import compressed

    from leeway_cli.selection.sources import SANDBOX_REGION, sandbox_survey

    dynamodb, table = client("dynamodb", sandbox.aws_url), sandbox.environment()["LEEWAY_TABLE"]
    DynamoTable(lambda: dynamodb, table).put(
        SURVEY, compressed(sandbox_survey()), region=SANDBOX_REGION
    )


def store_pools(sandbox: Sandbox, pools: Iterable[Pool]) -> None:
    """Store the manifests of pools as `leeway apply` does, and the catalog."""
    from leeway.aws.table import DynamoTable
    from leeway.manifests.configuration import StoredManifests
    from leeway.manifests.reading import read_manifests

    from leeway_cli.manifests.changes import plan_change

    store_catalog(sandbox)
    dynamodb, table = client("dynamodb", sandbox.aws_url), sandbox.environment()["LEEWAY_TABLE"]
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


TIMEOUT = 150.0  # seconds after the scaling within which every pod must run
QUIET = 4.0  # seconds for which the report waits for launches that are too many
LOOK_EVERY = 0.5


def scale(sandbox: Sandbox, scenario: Scenario, after: int) -> ScaleUpPlan:
    """Scale the Deployment of the scenario's pool; return the plan of the report."""
    from lightkube import Client, KubeConfig
    from lightkube.resources.apps_v1 import Deployment

    from leeway_cli.selection.sources import sandbox_survey

    workload, prices = _deployment_of(scenario), prices_of(sandbox_survey())
    metadata = workload["metadata"]
    plan = ScaleUpPlan(
        cluster=scenario.cluster,
        owner=f"Deployment/{metadata['namespace']}/{metadata['name']}",
        before=workload["spec"]["replicas"],
        after=after,
        nodes=scenario.nodes,
        scaled_at=time.time(),
        prices=prices,
    )
    config = KubeConfig.from_dict(sandbox.write_kubeconfig())
    with Client(config, trust_env=False) as kube:
        scaled = {"spec": {"replicas": after}}
        kube.patch(Deployment, metadata["name"], scaled, namespace=metadata["namespace"])
    return plan


def follow_scale_up(
    sandbox: Sandbox, plan: ScaleUpPlan, show: Callable[[ScaleUpReport], None]
) -> ScaleUpReport:
    """Follow the scale-up until every pod runs and nothing more is launched, or until TIMEOUT."""
    until = time.monotonic() + TIMEOUT
    while True:
        report = scale_up_from_journal(sandbox.journal(), plan)
        show(report)
        if is_over(report, time.time()) or time.monotonic() > until:
            return report
        time.sleep(LOOK_EVERY)


def is_over(report: ScaleUpReport, now: float) -> bool:
    """Return whether every pod runs, every launched node is Ready, and both for QUIET seconds."""
    if report.settled_at is None or any(one.ready_at is None for one in report.launches):
        return False
    last = max([report.settled_at, *(one.ready_at or 0.0 for one in report.launches)])
    return now >= last + QUIET


def with_bound(report: ScaleUpReport, scenario: Scenario) -> ScaleUpReport:
    """Add the lower bound of the price of any nodes for the pods that run on launched nodes."""
    from leeway.manifests.reading import read_manifests

    from leeway_cli.selection.sources import sandbox_catalog

    if not report.on_new_nodes:
        return report
    manifests = [
        written.manifest
        for manifest in manifests_of(scenario.pools)
        for written in read_manifests(json.dumps(manifest), "demo").written
    ]
    workload = dict(_deployment_of(scenario))
    replicas = {workload["metadata"]["name"]: report.on_new_nodes}
    daemons = daemons_of([dict(one) for one in scenario.workloads if one["kind"] == "DaemonSet"])
    supply = Supply(pools_of(manifests), sandbox_catalog(), daemons=daemons)
    plan = pack(pending_pods([workload], replicas), supply)
    return replace(report, bound=plan.bound)


def prices_of(survey: "Survey") -> Mapping[Offering, float]:
    """Return the prices of a survey by offering."""
    found = {
        Offering(name, zone, "spot"): price
        for zone, prices in survey.spot.items()
        for name, price in prices.items()
    }
    for zone, names in survey.offered.items():
        for name in names & survey.on_demand.keys():
            found[Offering(name, zone, "on-demand")] = survey.on_demand[name]
    return found


def _deployment_of(scenario: Scenario) -> Manifest:
    found: list[Mapping[str, Any]] = [
        manifest
        for pool in scenario.pools
        for manifest in pool.workloads
        if manifest["kind"] == "Deployment"
    ]
    return found[0]


def simulate_days(seed: int, console: Console, minutes: int = DAY) -> ScaleDownReport:
    """Simulate a day with Leeway, one in which only empty nodes are given back, and one in which
    none is, all with the same pods."""
    with _Progress(console) as progress:
        return ScaleDownReport(
            leeway=progress.day("Leeway", Options(seed, minutes)),
            only_empty=progress.day("Only empty nodes", Options(seed, minutes, only_empty=True)),
            never=progress.day("No give-back", Options(seed, minutes, gives_back=False)),
        )


class _Progress(ProgressBars):
    """A context that shows the minutes of days on the given console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "{task.fields[now]}")

    def day(self, name: str, options: Options) -> Record:
        """Simulate one day."""
        task = self._bars.add_task(name, total=options.minutes, now="")
        if not self._console.is_terminal:
            self._console.print(
                f"{name}: {counted(options.minutes // 60, 'hour')} of a day are simulated"
            )

        def show(moment: Moment) -> None:
            now = (
                f"{moment.minute // 60:02}:{moment.minute % 60:02}, "
                f"{counted(moment.nodes, 'node')}, {moment.price:.2f} USD per hour"
            )
            self._bars.update(task, completed=moment.minute + 1 - options.start, now=now)

        return simulate(options, show)
