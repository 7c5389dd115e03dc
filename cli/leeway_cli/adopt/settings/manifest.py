"""The Cluster manifest in Leeway's table."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Self

from leeway.manifests.configuration import StoredManifest

from leeway_cli.adopt.settings.setting import Kind
from leeway_cli.manifests.changes import CLUSTER, find, plan_body

if TYPE_CHECKING:
    from leeway_cli.adopt.services import Services


@dataclass(frozen=True, slots=True)
class ClusterManifest(Kind):
    """The Cluster manifest in Leeway's table. `body` is its text; a user's own text stays."""

    cluster: str
    body: str
    setting: Literal["manifest"] = "manifest"

    @property
    def key(self) -> str:
        return self.setting

    @property
    def title(self) -> str:
        return f"manifest cluster/{self.cluster}"

    def over(self, now: Self | None) -> Self:
        return self if now is None else now

    def reason(self, cluster: str, now: Self | None) -> str:
        return f"The table of Leeway has no manifest cluster/{cluster}."

    def call(self, cluster: str, now: Self | None) -> str:
        return f"dynamodb:PutItem pk=MANIFESTS#{cluster} sk=cluster.leeway.sh#/{cluster}"

    def removal(self, cluster: str) -> str:
        return f"dynamodb:DeleteItem pk=MANIFESTS#{cluster} sk=cluster.leeway.sh#/{cluster}"

    def write(self, services: "Services", now: Self | None) -> None:
        stored, at = _stored(services), datetime.now(UTC)
        planned = plan_body(stored, CLUSTER, services.cluster, self.body, at)
        if planned.after is not None and planned.after != planned.before:
            replaces = planned.before.version if planned.before else 0
            services.stack.manifests().write(services.cluster, planned.after, replaces)

    def remove(self, services: "Services") -> None:
        stored = _stored(services)
        if stored is not None:
            services.stack.manifests().delete_manifest(services.cluster, stored)


def default_manifest(cluster: str) -> ClusterManifest:
    """Return the Cluster manifest with which a cluster starts: every field has its default."""
    body = {
        "apiVersion": "leeway.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": cluster},
        "spec": {},
    }
    return ClusterManifest(cluster, json.dumps(body, sort_keys=True))


def read_manifest(services: "Services", asked: Iterable[Kind]) -> Iterator[Kind]:
    """Read the manifest if it is asked for."""
    for one in asked:
        if isinstance(one, ClusterManifest) and (stored := _stored(services)) is not None:
            yield ClusterManifest(one.cluster, _normal(stored.body))


def _stored(services: "Services") -> StoredManifest | None:
    stored = services.stack.manifests().of(services.cluster, CLUSTER)
    return find(stored, CLUSTER, "", services.cluster)


def _normal(body: str) -> str:
    try:
        return json.dumps(json.loads(body), sort_keys=True)
    except ValueError:
        return body
