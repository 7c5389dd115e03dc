"""Scales a Deployment of a sandbox, follows the scale-up to its end, and computes its bound."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Manifest, Scenario

from leeway_cli.demo.pools import manifests_of
from leeway_cli.report.scale_up import Offering, ScaleUpPlan, ScaleUpReport, scale_up_from_journal

if TYPE_CHECKING:
    from leeway.selection.offers.survey import Survey

TIMEOUT = 150.0  # seconds after the scaling within which every pod must run
QUIET = 4.0  # seconds for which the report waits for launches that are too many
LOOK_EVERY = 0.5


def scale(sandbox: Sandbox, scenario: Scenario, after: int) -> ScaleUpPlan:
    """Scale the Deployment of the scenario's pool; return the plan of the report."""
    from lightkube import Client, KubeConfig
    from lightkube.resources.apps_v1 import Deployment

    from leeway_cli.selection.catalogs import sandbox_survey

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
    from leeway.manifests.pools import pools_of
    from leeway.manifests.reading import read_manifests
    from leeway.selection.packing.planning import pack
    from leeway.selection.packing.supply import Supply
    from leeway.selection.reading.cluster_objects import daemons_of, pending_pods

    from leeway_cli.selection.catalogs import sandbox_catalog

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
