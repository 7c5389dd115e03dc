"""Pods that cron windows will bring soon: their nodes are launched before the window opens.

Leeway's own buffers create their pause pods ahead of a window, and these are pending pods. A target
that a user owns is scaled when its window opens, so its pods are planned for before they exist.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from leeway.execution.retrying import API_ERRORS
from leeway.headroom.plan import (
    DEFAULT_JOIN_TIME,
    RUN_EVERY,
    UpcomingNeed,
    conflicting_targets,
    upcoming_needs,
)
from leeway.headroom.ports import PodTemplate
from leeway.manifests.scaled_object import ScaledObject
from leeway.provisioning.ports import ClusterManifests, PodTemplates
from leeway.provisioning.reasons import UPCOMING_PODS_NOT_READ
from leeway.reasons import Reason, clause
from leeway.selection.pods import Pod
from leeway.selection.reading.cluster_objects import pending_pods

KINDS = ("scaledobject.keda.sh",)

LEAD = DEFAULT_JOIN_TIME + RUN_EVERY
"""How long before a window nodes are launched for its pods: as long as nodes take to join, and one
run earlier, since the next one would be too late by a minute."""


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The pods that are due soon, and why those of some targets are not known."""

    pods: tuple[Pod, ...] = ()
    problems: tuple[Reason, ...] = ()


class UpcomingPods:
    """Reads the pods that are due. `templates_in` returns the objects of a cluster."""

    def __init__(
        self, manifests: ClusterManifests, templates_in: Callable[[str], PodTemplates]
    ) -> None:
        self._manifests = manifests
        self._templates_in = templates_in

    def read(self, cluster: str, now: datetime) -> Upcoming:
        """Read the pods that targets will have within LEAD and do not have yet. A target that
        several manifests scale is not scaled, so it is left out. Raises nothing about a target."""
        written = self._manifests.manifests(cluster, KINDS)
        targets = [o.manifest.target() for o in written if isinstance(o.manifest, ScaledObject)]
        conflicts = conflicting_targets(targets)
        pods: list[Pod] = []
        problems: list[Reason] = []
        for need in upcoming_needs(targets, now, LEAD):
            if need.target in conflicts:
                continue
            try:
                template = self._templates_in(cluster).template(need.target)
                pods += pods_of(need, template) if template is not None else ()
            except (*API_ERRORS, ValueError) as error:
                why = clause(error)
                problems.append(UPCOMING_PODS_NOT_READ(target=need.target, error=why))
        return Upcoming(tuple(pods), tuple(problems))


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
