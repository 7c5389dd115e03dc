"""Convert a Cluster manifest to a policy; fields that are not set keep their defaults."""

from dataclasses import replace
from typing import Any

from leeway.instances.owners import OwnerKind
from leeway.manifests.cluster import Cluster, GiveBack, LaunchPolicy, NoticePolicy
from leeway.policy.rules import DEFAULTS, Action, ChurnCap, ClusterPolicy, Policy, StatusCheck
from leeway.policy.worth import Worth


def cluster_policy(cluster: Cluster) -> ClusterPolicy:
    """Return the default policy with the fields that the manifest sets."""
    spec = cluster.spec
    return ClusterPolicy(
        notices={
            kind: _policy(default, spec.notices.of(kind)) for kind, default in DEFAULTS.items()
        },
        paused=spec.paused,
        dry_run=spec.dry_run,
        churn=replace(ChurnCap(), **_written(spec.churn.model_dump())),
        retires_for=frozenset(OwnerKind(owner) for owner in spec.takes),
        groups_may_use_pools=spec.groups_may_use_pools,
        watches_pods=spec.provisioning.watch,
        most_launches=spec.launches.at_most,
        usd_per_hour=spec.launches.usd_per_hour,
        worth=_worth(spec.give_back),
    )


def _policy(default: Policy, written: NoticePolicy | LaunchPolicy | None) -> Policy:
    if written is None:
        return default
    said = _written(written.model_dump())
    if "action" in said:
        said["action"] = Action(said["action"])
    if "checks" in said:
        said["checks"] = frozenset(map(StatusCheck, said["checks"]))
    if "deadline" in said:
        said["within"] = said.pop("deadline")
    return replace(default, **said)


def _worth(written: GiveBack) -> Worth:
    return Worth(
        horizon=written.horizon,
        per_pod=written.usd_per_pod_moved,
        share=written.least_saving_percent / 100,
        least_age=written.least_age,
    )


def _written(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
