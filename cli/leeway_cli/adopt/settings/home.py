"""Where the users of a cluster keep its manifests, the CRDs that their API server needs, and the
Cluster manifest in Leeway's table."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, Self

from leeway.manifests.configuration import POOL, StoredManifest, StoredManifests
from leeway.manifests.in_cluster import HOME, Home, ManifestHome, home_of
from leeway.table import RecordChanged
from leeway.wiring.clients import table

from leeway_cli.adopt.settings.setting import Kind
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.manifests.changes import CLUSTER, find, plan_body

if TYPE_CHECKING:
    from leeway_cli.adopt.services import Services

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class ManifestsHome(Kind):
    """Where the manifests of a cluster are: `cluster` or `table`."""

    cluster: str
    home: Home
    setting: Literal["home"] = "home"

    @property
    def title(self) -> str:
        return f"home of the manifests of {self.cluster}"

    def reason(self, cluster: str, now: Self | None) -> str:
        place = "the API server" if self.home is Home.CLUSTER else "Leeway's table"
        return (
            f"The manifests of cluster {cluster} are to be in {place}. Run `leeway adopt {cluster} "
            f"--manifests {self.home}`."
        )

    def call(self, cluster: str, now: Self | None) -> str:
        return f"dynamodb:PutItem pk=MANIFESTS#{cluster} sk=HOME home={self.home}"

    def removal(self, cluster: str) -> str:
        return f"dynamodb:DeleteItem pk=MANIFESTS#{cluster} sk=HOME, and the copies of NodePools"

    def write(self, services: "Services", now: Self | None) -> None:
        records = table(name=services.stack.table)
        before = home_of(records, self.cluster)
        after = ManifestHome(self.cluster, before.version + 1, self.home)
        try:
            records.put(HOME, after)
        except RecordChanged as error:  # reconcile writes it, too
            raise CannotBeDoneError(
                f"The {self.title} changed at the same time. Run the command again."
            ) from error

    def remove(self, services: "Services") -> None:
        """Remove the home, and the copies of pools: nobody must launch from Karpenter's. The home
        goes last, so that a release that was stopped finds it again."""
        replace(self, home=Home.TABLE).write(services, None)  # reconcile copies no more
        records = table(name=services.stack.table)
        stored = StoredManifests(records)
        for pool in stored.of(self.cluster, POOL):
            if pool.in_cluster:
                with suppress(RecordChanged):  # somebody has applied it to the table
                    stored.forget_manifest(self.cluster, pool)
        records.delete(HOME, cluster=self.cluster)


@dataclass(frozen=True, slots=True)
class Crd(Kind):
    """A CRD of crds/, which is installed only where there is none: one of Karpenter's stays as it
    is. Release leaves it: with the CRD, Kubernetes would delete the objects."""

    name: str
    setting: Literal["crd"] = "crd"

    @property
    def key(self) -> str:
        return f"{self.setting}/{self.name}"

    @property
    def title(self) -> str:
        return f"CustomResourceDefinition {self.name}"

    @property
    def path(self) -> str:
        """The path of its URL."""
        return f"{CRDS}/{self.name}"

    @property
    def stays(self) -> str | None:
        return (
            f"The {self.title} stays: Kubernetes deletes all objects of the kind with it. If "
            f"nobody needs them, run `kubectl delete crd {self.name}`."
        )

    def reason(self, cluster: str, now: Self | None) -> str:
        return f"The API server of cluster {cluster} has no {self.title}."

    def call(self, cluster: str, now: Self | None) -> str:
        return f"PATCH {self.path}?fieldManager=leeway (server-side apply)"

    def write(self, services: "Services", now: Self | None) -> None:
        from leeway_cli.manifests.crds import crd_name, crd_of, defined_kinds

        (kind,) = [one for one in defined_kinds() if crd_name(one) == self.name]
        services.objects.install(self.path, crd_of(kind))


def desired_home(cluster: str, home: Home | None) -> tuple[ManifestsHome | Crd, ...]:
    """Return the settings of a home, none if nobody has chosen one."""
    if home is None:
        return ()
    chosen = ManifestsHome(cluster, home)
    if home is Home.TABLE:
        return (chosen,)
    from leeway_cli.manifests.crds import crd_name, defined_kinds

    return (*(Crd(crd_name(kind)) for kind in defined_kinds()), chosen)


def read_home(services: "Services", asked: Iterable[Kind]) -> Iterator[Kind]:
    """Read the home and the CRDs that are asked for."""
    for one in asked:
        if isinstance(one, ManifestsHome):
            found = home_of(table(name=services.stack.table), one.cluster)
            if found.version:
                yield replace(one, home=found.home)
        elif isinstance(one, Crd) and services.objects.is_served(one.path):
            yield one


@dataclass(frozen=True, slots=True)
class ClusterManifest(Kind):
    """The Cluster manifest in Leeway's table. `body` is its text; a user's own text stays."""

    cluster: str
    body: str
    setting: Literal["manifest"] = "manifest"

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
