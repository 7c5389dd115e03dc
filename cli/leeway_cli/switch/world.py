"""The World Protocol of a switch: the API server of a kubeconfig, EC2, and Leeway's table."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from leeway.admission.readiness import NODE_ADMITTED
from leeway.admission.record import ADMISSION, Admission, AdmissionResult, Launch
from leeway.aws.ec2 import STARTS_OR_RUNS, described_instances, facts_of
from leeway.execution.attempt import Phase
from leeway.instances.facts import INTENT_TAG
from leeway.kubernetes.connection import MERGE, is_unknown_path
from leeway.kubernetes.custom_resources import LEASE, NAMESPACES, HttpClusterApi
from leeway.manifests.configuration import StoredManifests
from leeway.manifests.in_cluster import Home, home_of, running_karpenter
from leeway.manifests.reading import interpret
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import RETIRING
from leeway.reasons import Reason
from leeway.selection.reading.objects import instance_of
from leeway.switched import SWITCH, Switch, switch_of
from leeway.table import RecordChanged, Table

from leeway_cli.adopt.settings.objects import KubernetesObjects
from leeway_cli.errors import CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.switch.claims import (
    CLAIMS,
    claim_of,
    is_taken,
    launched_status,
    put_claim,
    remove_claim,
    why_not_ready,
    why_unfit,
)
from leeway_cli.switch.plan import DISRUPTED, LAUNCH_TAG, Claim, Deployment, Instance, Seen

DEPLOYMENTS = "/apis/apps/v1/deployments"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLASSES = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
_PAGE = "500"
_TAGGED_AT_ONCE = 500
"""Instances of one call. EC2 takes 1,000 resources."""

_FROM_GIT = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
"""What applies an object from Git, by the label or annotation that it sets."""

_DISRUPTED = frozenset({DISRUPTED, "karpenter.sh/disruption"})

type Document = dict[str, Any]


@dataclass
class LiveWorld:
    """One cluster. `named` is the NAMESPACE/NAME of Karpenter's Deployment if the user gave it;
    `drain_node` drains a node and ends its instance."""

    cluster: str
    managed: bool
    kubernetes: KubernetesObjects
    ec2: Callable[[], Any]
    table: Table
    now: Callable[[], datetime]
    drain_node: Callable[[str], None]
    named: str = ""
    _nodes: dict[str, Document] = field(default_factory=dict)
    _pools: dict[str, Document] = field(default_factory=dict)

    def read(self) -> Seen:
        """Read the cluster, EC2 and the table."""
        with aws_errors(f"instances of cluster {self.cluster}"), kubernetes_errors():
            instances = tuple(self._instances())
            claims = tuple(map(_claim, self._list(CLAIMS)))
            self._pools = {_name(one): one for one in self._list(POOLS)}
            classes = {_name(one): one for one in self._list(CLASSES)}
            nodes = self._list("/api/v1/nodes")
            alive = self._karpenter_runs()
            deployments = tuple(self._deployments())
        self._nodes = {instance_of(one): one for one in nodes if instance_of(one)}
        with aws_errors("the table"):
            keys = [{"cluster": self.cluster, "instance": one.id} for one in instances]
            recorded = self.table.get_many(ADMISSION, keys, consistent=True)
            home = home_of(self.table, self.cluster)
            switch = switch_of(self.table, self.cluster)
            policies = StoredManifests(self.table).of(self.cluster, "cluster.leeway.sh")
        read = [
            interpret(_manifest(one), f"{one['kind']} {_name(one)}") for one in self._pools.values()
        ]
        read += [
            interpret(_manifest(one), f"{one['kind']} {_name(one)}") for one in classes.values()
        ]
        joined = {
            instance
            for instance, node in self._nodes.items()
            if "karpenter.sh/unregistered" not in _taints(node)
        }
        named = {
            owner["name"]
            for node in nodes
            for owner in node["metadata"].get("ownerReferences") or ()
            if owner["kind"] == "NodeClaim"
        }
        return Seen(
            cluster=self.cluster,
            now=self.now(),
            deployments=deployments,
            pools={name: _class_of(one) for name, one in self._pools.items()},
            problems=tuple(str(one) for reading in read for one in reading.problems),
            ignored=tuple(str(one) for reading in read for one in reading.warnings),
            claims=tuple(
                replace(one, joined=one.instance in joined, taken=one.taken or one.name in named)
                for one in claims
            ),
            nodes={instance: _name(one) for instance, one in self._nodes.items()},
            disrupted=tuple(_name(one) for one in nodes if _taints(one) & _DISRUPTED),
            retiring=tuple(
                _name(one) for one in nodes if RETIRING in (one["metadata"].get("labels") or {})
            ),
            instances=instances,
            recorded=frozenset(one.instance for one in recorded if one.launch is not None),
            unfit=dict(self._unfit(instances, classes)),
            not_ready={
                name: lacking for name, one in classes.items() if (lacking := why_not_ready(one))
            },
            switch=switch,
            alive=alive,
            managed=self.managed,
            in_cluster=home.home is Home.CLUSTER,
            dry_run=any((json.loads(one.body).get("spec") or {}).get("dryRun") for one in policies),
        )

    def _karpenter_runs(self) -> Reason | None:
        leases = HttpClusterApi(self.kubernetes.connection).karpenter_leases()
        return running_karpenter(self.cluster, leases, self.now())

    def _unfit(
        self, instances: tuple[Instance, ...], classes: Mapping[str, Document]
    ) -> Iterator[tuple[str, str]]:
        for one in instances:
            if one.is_leeways and (node := self._nodes.get(one.id)) is not None:
                pool = self._pools.get(one.pool)
                node_class = classes.get(_class_of(pool)) if pool is not None else None
                if reason := why_unfit(node, one.facts, pool, node_class):
                    yield one.id, reason

    def _instances(self) -> Iterator[Instance]:
        filters = {f"tag:{LAUNCH_TAG}": [self.cluster], **STARTS_OR_RUNS}
        for one in described_instances(self.ec2, filters):
            facts = facts_of(one)
            # Plain tags may name another cluster than EKS does.
            if facts is not None and facts.cluster == self.cluster:
                tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
                profile = (one.get("IamInstanceProfile") or {}).get("Arn", "")
                name = profile.rpartition("/")[2]
                yield Instance(facts, tags, one["LaunchTime"], name)

    def _deployments(self) -> Iterator[Deployment]:
        if self.named:
            namespace, _, name = self.named.partition("/")
            path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
            found = self.kubernetes.request("GET", path)
            listed = [found] if found is not None else []
        else:
            listed = self._list(DEPLOYMENTS, labelSelector="app.kubernetes.io/name=karpenter")
        for one in listed:
            metadata = one["metadata"]
            marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
            git = next(
                (f"{what} ({marks[key]})" for key, what in _FROM_GIT.items() if key in marks), ""
            )
            running = (one.get("status") or {}).get("replicas", 0)
            yield Deployment(
                metadata["namespace"],
                metadata["name"],
                one["spec"].get("replicas", 1),
                running,
                git,
                hidden_by(one),
            )

    def _list(self, path: str, **params: str) -> list[Document]:
        """List all objects, page by page; none if the API server does not have the kind."""
        found: list[Document] = []
        page = {"limit": _PAGE, **params}
        while True:
            try:
                answer = self.kubernetes.request("GET", path, params=page) or {}
            except ClusterUnavailable as error:
                if is_unknown_path(error):
                    return []
                raise
            kind = str(answer.get("kind", "")).removesuffix("List")
            about = {"apiVersion": answer.get("apiVersion", ""), "kind": kind}
            found += [{**about, **one} for one in answer.get("items") or ()]
            following = (answer.get("metadata") or {}).get("continue")
            if not following:
                return found
            page = {**page, "continue": following}

    def write_switch(self, switch: Switch) -> None:
        """Write the record over the version that was read."""
        with aws_errors("the table"):
            try:
                self.table.put(SWITCH, switch)
            except RecordChanged as error:
                raise CannotBeDoneError(
                    f"Somebody else switches cluster {self.cluster}. Run the command again."
                ) from error

    def scale(self, deployment: Deployment, replicas: int) -> None:
        """Patch the scale of the Deployment."""
        path = (
            f"/apis/apps/v1/namespaces/{deployment.namespace}/deployments/{deployment.name}/scale"
        )
        with kubernetes_errors():
            self.kubernetes.request(
                "PATCH", path, content=MERGE, body={"spec": {"replicas": replicas}}
            )

    def record_launch(self, instance: Instance, now: datetime) -> None:
        """Write a closed admission with the launch. What Leeway has recorded of it stays."""
        launch = Launch(
            intent=instance.tags.get(INTENT_TAG, ""), pool=instance.pool, at=instance.launched_at
        )
        with aws_errors("the table"):
            old = self.table.get(ADMISSION, cluster=self.cluster, instance=instance.id)
            if old is not None:
                new = old.model_copy(update={"launch": launch, "version": old.version + 1})
            else:
                new = Admission(
                    facts=instance.facts,
                    attempt=1,
                    phase=Phase.FINISHED,
                    noticed_at=now,
                    deadline=now,
                    reason=NODE_ADMITTED(),
                    launch=launch,
                    ended_at=now,
                    result=AdmissionResult.ADMITTED,
                )
            try:
                self.table.put(ADMISSION, new)
            except RecordChanged:
                return  # a function has written it: the next plan looks again

    def tag(self, instances: tuple[str, ...], tags: dict[str, str]) -> None:
        """Call CreateTags."""
        written = [{"Key": key, "Value": value} for key, value in tags.items()]
        with self._ec2_errors():
            for batch in _batches(instances):
                self.ec2().create_tags(Resources=batch, Tags=written)

    def untag(self, instances: tuple[str, ...], tags: dict[str, str]) -> None:
        """Call DeleteTags."""
        removed = [
            {"Key": key} | ({"Value": value} if value else {}) for key, value in tags.items()
        ]
        with self._ec2_errors():
            for batch in _batches(instances):
                self.ec2().delete_tags(Resources=batch, Tags=removed)

    def _ec2_errors(self) -> AbstractContextManager[None]:
        return aws_errors(f"instances of cluster {self.cluster}")

    def write_claim(self, instance: Instance, now: datetime) -> None:
        """Create the NodeClaim, then write its status. Right before, the Leases are read again."""
        node, pool = self._nodes[instance.id], self._pools[instance.pool]
        document = claim_of(node, instance.facts, pool, instance.profile)
        with kubernetes_errors():
            if self._karpenter_runs():
                return  # the next plan drains the node
            status = launched_status(node, instance.facts.image, now)
            put_claim(self.kubernetes.request, document, status)

    def remove_claim(self, name: str) -> None:
        """Delete a NodeClaim as it is now, unless Karpenter runs or has registered it."""
        with kubernetes_errors():
            if not self._karpenter_runs():
                remove_claim(self.kubernetes.request, name)

    def drain(self, node: str) -> None:
        """Drain the node and end its instance."""
        self.drain_node(node)


def hidden_by(deployment: Document) -> str:
    """Return the setting by which Karpenter renews no Lease that Leeway reads; empty if it has
    none. Source: Karpenter, `options.go`: variables, and flags that go before them."""
    template = (deployment["spec"].get("template") or {}).get("spec") or {}
    for container in template.get("containers") or ():
        given = {one["name"]: str(one.get("value") or "") for one in container.get("env") or ()}
        for flag in (*(container.get("command") or ()), *(container.get("args") or ())):
            name, equals, value = str(flag).lstrip("-").partition("=")
            given[name.upper().replace("-", "_")] = value if equals else "true"
        lease, namespace = given.get("LEADER_ELECTION_NAME"), given.get("LEADER_ELECTION_NAMESPACE")
        if given.get("DISABLE_LEADER_ELECTION", "").lower() in {"1", "t", "true"}:
            return "leader election disabled (DISABLE_LEADER_ELECTION)"
        if lease and lease != LEASE:
            return f"another Lease (LEADER_ELECTION_NAME={lease})"
        if namespace and namespace not in NAMESPACES:
            return f"its Lease in another namespace (LEADER_ELECTION_NAMESPACE={namespace})"
    return ""


def _batches(instances: tuple[str, ...]) -> Iterator[list[str]]:
    for start in range(0, len(instances), _TAGGED_AT_ONCE):
        yield [*instances[start : start + _TAGGED_AT_ONCE]]


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])


def _manifest(document: Document) -> Document:
    """Leave out what an API server adds."""
    metadata = document["metadata"]
    kept = {key: metadata[key] for key in ("name", "labels", "annotations") if metadata.get(key)}
    return {**{k: v for k, v in document.items() if k != "status"}, "metadata": kept}


def _class_of(pool: Document) -> str:
    return str(pool["spec"]["template"]["spec"]["nodeClassRef"]["name"])


def _labels(document: Document) -> Document:
    found: Document = document["metadata"].get("labels") or {}
    return found


def _taints(node: Document) -> frozenset[str]:
    return frozenset(one["key"] for one in node["spec"].get("taints") or ())


def _claim(document: Document) -> Claim:
    metadata = document["metadata"]
    return Claim(
        name=metadata["name"],
        pool=(metadata.get("labels") or {}).get("karpenter.sh/nodepool", ""),
        instance=instance_of(document, "status"),
        joined=False,
        deleting="deletionTimestamp" in metadata,
        taken=is_taken(document),
    )
