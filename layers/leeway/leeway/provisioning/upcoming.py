"""Pods that cron windows will bring soon: their nodes are launched before the window opens.

Leeway's own buffers create their pause pods ahead of a window, and these are pending pods. A target
that a user owns is scaled by the run of keep_headroom after its window opens, so its pods are
planned for before they exist, and its nodes stay until that run.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from leeway.execution.retrying import API_ERRORS
from leeway.headroom.plan import (
    SCALED_WITHIN,
    PodTemplate,
    ScaleTarget,
    UpcomingNeed,
    conflicting_targets,
    upcoming_needs,
)
from leeway.launch.hibernating import LONGEST_LEAD, Lead, lead_of, measured
from leeway.manifests.configuration import Configuration
from leeway.manifests.scaled_object import ScaledObject
from leeway.pool_pauses import JOIN_TIME
from leeway.reasons import Reason, ReasonCode, clause
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.unschedulable import unmet_requirements
from leeway.selection.pods import NodePool, Pod, PodSpec
from leeway.selection.reading.cluster_objects import pending_pods
from leeway.table import Table


class PodTemplates(Protocol):
    """The pod templates of a cluster's objects."""

    def template(self, target: ScaleTarget) -> PodTemplate | None:
        """Read the pod template of an object; None if the object does not exist."""
        ...


UPCOMING_PODS_NOT_READ = ReasonCode(
    "UpcomingPodsNotRead",
    "Leeway cannot read the pods that {target} will have soon, so their nodes are launched when "
    "the pods are pending: {error}.",
    "nodes-are-not-launched-before-a-window",
)
PROVISIONED_AHEAD = ReasonCode(
    "ProvisionedAhead",
    "{target} will have {pods:more pod} at {time} UTC: Leeway plans their nodes {lead} s before. "
    "{why}",
)

KINDS = ("scaledobject.keda.sh",)


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The pods that are due soon, why now, and why those of some targets are not known."""

    pods: tuple[Pod, ...] = ()
    reasons: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()

    def with_needs(
        self, needs: Iterable[UpcomingNeed], template: PodTemplate, lead: Lead
    ) -> "Upcoming":
        """Add the pods that a target lacks for its needs.

        Raises:
            BadObject: the pod template is not valid.
        """
        pods, reasons, seconds = self.pods, self.reasons, round(lead.time.total_seconds())
        for need in needs:
            if due := pods_of(need, template):
                pods += due
                reason = PROVISIONED_AHEAD(
                    target=need.target,
                    pods=len(due),
                    time=f"{need.since:%H:%M}",
                    lead=seconds,
                    why=lead.why,
                )
                reasons += (reason,)
        return replace(self, pods=pods, reasons=reasons)


class UpcomingPods:
    """Reads the pods that are due. `templates_in` returns the objects of a cluster."""

    def __init__(
        self,
        manifests: Configuration,
        table: Table,
        templates_in: Callable[[str], PodTemplates],
    ) -> None:
        self._manifests = manifests
        self._table = table
        self._templates_in = templates_in

    def read(
        self, cluster: str, pools: Sequence[NodePool], catalog: Catalog, now: datetime
    ) -> Upcoming:
        """Read the pods that targets will have within their lead and do not have yet. The lead of a
        target is that of the pools that have nodes for its pods. A target that several manifests
        scale is not scaled, so it is left out.

        Raises:
            CloudUnavailable, CloudRefused: the table cannot be read. Errors of a target are among
                the problems.
        """
        written = self._manifests.manifests(cluster, KINDS)
        targets = [o.manifest.target() for o in written if isinstance(o.manifest, ScaledObject)]
        conflicts = conflicting_targets(targets)
        soon = [
            (scaled, need)
            for scaled in targets
            for need in upcoming_needs([scaled], now, LONGEST_LEAD, SCALED_WITHIN)
            if scaled.target not in conflicts
        ]
        times = measured(self._table.list(JOIN_TIME, cluster=cluster)) if soon else {}
        found = Upcoming()
        for scaled, furthest in soon:
            try:
                template = self._templates_in(cluster).template(scaled.target)
                pods = pods_of(furthest, template) if template is not None else ()
                if template is None or not pods:
                    continue
                lead = lead_of(_pools_for(pods[0].spec, pools, catalog), times)
                needs = upcoming_needs([scaled], now, lead.time, SCALED_WITHIN)
                found = found.with_needs(needs, template, lead)
            except (*API_ERRORS, ValueError) as error:
                why = clause(error)
                problem = UPCOMING_PODS_NOT_READ(target=scaled.target, error=why)
                found = replace(found, problems=(*found.problems, problem))
        return found


def _pools_for(spec: PodSpec, pools: Iterable[NodePool], catalog: Catalog) -> list[str]:
    """The names of the pools that have nodes for a pod."""
    return [
        pool.name
        for pool in pools
        if pool.replicas is None
        and not unmet_requirements(spec, pool, catalog.for_node_class(pool.node_class))
    ]


def pods_of(need: UpcomingNeed, template: PodTemplate) -> tuple[Pod, ...]:
    """Return the pods that a target lacks for its coming size.

    Raises:
        BadObject: the pod template is not valid.
    """
    target, missing = need.target, need.size - (template.replicas or 0)
    if missing <= 0:
        return ()
    pod = {"metadata": {"labels": dict(template.labels)}, "spec": dict(template.spec)}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": target.name, "namespace": target.namespace},
        "spec": {"replicas": missing, "template": pod},
    }
    due = f"{target.namespace}/{target.name}, due at {need.since:%H:%M} UTC"
    return tuple(
        replace(one, name=f"{due} ({number})")
        for number, one in enumerate(pending_pods([workload], {}), 1)
    )
