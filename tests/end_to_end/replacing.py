"""A cluster with a pool for each test of replacements, and what the tests observe of them."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.aws.provision_queue import SqsProvisionNodes
from leeway.aws.table import DynamoTable
from leeway.catalog.unavailable import Offering, UnavailableOfferings
from leeway.policy.rules import UNAVAILABLE_FOR
from leeway_sandbox.provisioning import client, create_workloads
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import ENDS_AFTER, ZONES, Group, Manifest, Scenario
from lightkube import Client
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Node, Pod

from tests.end_to_end.conftest import daemonset, deployment
from tests.end_to_end.environment import Entry, Environment, Journal, until
from tests.end_to_end.provisioning import CLUSTER, queue, run, table_of
from tests.launch.pools import node_class, pool

TEAM = "team"
POOL_TAG = "leeway.sh/nodepool"
FOUR, EIGHT = {"cpu": ["4"]}, {"cpu": ["8"]}
POOLS = ("paused", "calm", "rebalanced", "pair", "roomy", "scarce", "killed")
GROUP, GROUP_SIZE = "shared-group", 3
SHARED = "shared"
MANIFESTS_KEPT = 62.0
"""Seconds after which every function has read a changed manifest."""
WITHIN = 20.0
"""Seconds of the disruption budget: one voluntary retirement begins in this time."""


def workload(name: str, replicas: int, cpu: str = "1500m", ends_after: float = 8) -> Manifest:
    """Return a Deployment of pods that only nodes of their team take; two fit on four processors.
    They end slowly enough that the answer to the request comes before."""
    made = deployment(name, replicas, 30)
    template = made["spec"]["template"]
    template["metadata"]["annotations"] = {ENDS_AFTER: f"{ends_after:g}s"}
    template["spec"]["nodeSelector"] = {TEAM: name}
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return made


def team_pool(name: str, only: dict[str, list[str]]) -> dict[str, Any]:
    """Return a pool whose nodes take the pods of one team."""
    return pool(name, labels={TEAM: name}, only=only)


def unbootable() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pool `young` and its node class, whose instances never join."""
    made = team_pool("young", FOUR)
    kind = node_class(metadataOptions={"httpEndpoint": "disabled"})
    made["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "young"
    kind["metadata"]["name"] = "young"
    return made, kind


WORLD = Scenario(
    cluster=CLUSTER,
    groups=(Group(GROUP, GROUP_SIZE, labels=((TEAM, SHARED),)),),
    workloads=(workload(SHARED, GROUP_SIZE), daemonset("cni")),
)


class Replacing(Environment):
    """A sandbox with nodes of pools, and what happens to them."""

    def __init__(self, sandbox: Sandbox, kube: Client) -> None:
        super().__init__(sandbox)
        self.kube = kube

    def wake(self, why: str = "test") -> None:
        """Send a message to provision_nodes."""
        sqs, url = queue(self.sandbox)
        SqsProvisionNodes(lambda: sqs, url).wake(CLUSTER, why)

    def run_again(self) -> None:
        """Have provision_nodes run once more, and wait until it has."""
        assert run(self.sandbox) == []

    def create(self, *workloads: Manifest) -> None:
        """Create workloads, have nodes launched for them, and wait until their pods run."""
        create_workloads(workloads, self.sandbox.write_kubeconfig())
        wanted = {one["metadata"]["name"]: one["spec"]["replicas"] for one in workloads}
        until(lambda: all(self._count(name) == n for name, n in wanted.items()))
        self.wake(f"pods of {', '.join(wanted)} are pending")
        until(lambda: all(len(self.running(name)) == n for name, n in wanted.items()))
        self.until(0, lambda seen: all(map(seen.admissions, launched(seen, *POOLS))))

    def _count(self, team: str) -> int:
        return len(self.pods(team, "Pending")) + len(self.running(team))

    def pods(self, team: str, phase: str) -> dict[str, str]:
        """Return the nodes of the pods of a team in a phase, by the name of the pod."""
        return {
            str(pod.metadata.name): str(pod.spec.nodeName)
            for pod in self.kube.list(Pod, namespace="default", labels={"app": team})
            if pod.metadata and pod.spec and pod.status and pod.status.phase == phase
            if not pod.metadata.deletionTimestamp
        }

    def running(self, team: str) -> dict[str, str]:
        """Return the nodes of the pods of a team that run and stay, by the name of the pod."""
        return self.pods(team, "Running")

    def nodes(self, team: str) -> dict[str, str]:
        """Return the names of the Nodes of a team, by the id of the instance."""
        found = self.kube.list(Node, labels={TEAM: team})
        return {
            str(one.spec.providerID).rpartition("/")[2]: str(one.metadata.name)
            for one in found
            if one.spec and one.metadata
        }

    def delete(self, team: str) -> None:
        """Delete the Deployment of a team."""
        self.kube.delete(Deployment, team, namespace="default")

    def moved(self, team: str, count: int, away_from: Iterable[str]) -> None:
        """Wait until the pods of a team run on other nodes."""
        left = set(away_from)

        def all_moved() -> bool:
            running = self.running(team)
            return len(running) == count and not left & set(running.values())

        until(all_moved)

    def reports_no_capacity(self) -> None:
        """Have EC2 without capacity for the group: it has just refused every offering of it."""
        dynamodb = client("dynamodb", self.sandbox.aws_url)
        offerings = UnavailableOfferings(DynamoTable(lambda: dynamodb, table_of(self.sandbox)))
        for zone in ZONES:
            one = Offering("us-east-1", "m5.large", zone, "spot")
            offerings.mark(one, "InsufficientInstanceCapacity", _later(UNAVAILABLE_FOR))

    def desired(self) -> int:
        """Return the desired capacity of the group."""
        scaling = client("autoscaling", self.sandbox.aws_url)
        (found,) = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])[
            "AutoScalingGroups"
        ]
        return int(found["DesiredCapacity"])


def _later(duration: timedelta) -> datetime:
    return datetime.now(UTC) + duration


def launched(seen: Journal, *pools: str) -> dict[str, Entry]:
    """Return the places of the instances that fleets launched for pools, by instance."""
    fleets = [entry for entry in seen.of("fleet") if entry["tags"].get(POOL_TAG) in pools]
    return {
        one["instance"]: {**one, "at": fleet["at"]} for fleet in fleets for one in fleet["launched"]
    }


def codes_about(seen: Journal, instance: str) -> set[str]:
    """Return the reason codes of the log lines about an instance."""
    lines = [entry["line"] for entry in seen.of("logs")]
    found = [x for x in lines if isinstance(x, dict) and x.get("instance") == instance]
    return {str(line.get("code") or line.get("reason_code") or "") for line in found}


def wait_until(moment: float) -> None:
    """Wait until a time, in epoch seconds."""
    time.sleep(max(0.0, moment - time.time()))
