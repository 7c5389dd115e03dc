"""Runs in which a new AMI is published: drift within budgets, and few calls of AWS."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from leeway.launch.node_settings import settings_hashes, tag_value
from leeway.policy.rules import ChurnCap, Replacement
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.selection.offers.catalog import Catalog

from tests.disruption.clusters import Cluster
from tests.disruption.returning import Returning
from tests.launch.conftest import catalog
from tests.launch.pools import node_class, pods, pool, settings
from tests.manifests.texts import manifests

__all__ = ["catalog"]

KEPT = {"consolidateAfter": "Never"}


@dataclass
class Counted:
    """A port whose calls are counted; with an error, they fail."""

    port: Any
    calls: Counter[str]
    error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            self.calls[name] += 1
            if self.error is not None:
                raise self.error
            return getattr(self.port, name)(*given)

        return call


class Drifting(Returning):
    """Nodes with a pod each, as their pool launches them, and AWS with counted calls."""

    def __init__(
        self, catalog: Catalog, nodes: int, arch: Sequence[str] = ("amd64",), **disruption: Any
    ) -> None:
        cluster = Cluster(catalog, arch=arch, disruption={**KEPT, **disruption})
        for number in range(nodes):
            cluster.add(f"n{number}", *pods(1, name=f"web-{number}"))
        self.calls: Counter[str] = Counter()
        super().__init__(cluster)
        self.policy = replace(self.policy, churn=ChurnCap(percent=100, at_least=100))
        self.launched(cluster.own)
        self.record_launches()

    def restart(self) -> None:
        plain = self.aws.deps
        ports = {
            name: Counted(getattr(plain.sources, name), self.calls)
            for name in ("networks", "images", "clusters", "profiles")
        }
        self.ports = ports
        self.aws.deps = replace(plain, sources=replace(plain.sources, **ports))
        super().restart()
        self.aws.deps = plain

    def launched(self, instances: Collection[str], **changes: Any) -> None:
        """Have these instances launched as their pool launches now, but for some facts."""
        known = {
            "image": "ami-1",
            "subnet": "subnet-a",
            "security_groups": ("sg-1",),
            "launch_settings": tag_value(settings_hashes(settings(pool(), node_class()))),
        }
        for name in instances:
            one = self.cluster.own[name]
            self.cluster.own[name] = one.model_copy(update={**known, **changes})

    def publish(self) -> None:
        """A new AMI is published."""
        for name in self.aws.images.values:
            self.aws.images.values[name] = "ami-new"


@pytest.fixture
def drifting(catalog: Catalog) -> Drifting:
    made = Drifting(catalog, 10)
    made.aws.images.values = dict.fromkeys(made.aws.images.values, "ami-1")
    return made


def test_nodes_that_are_as_they_would_be_launched_stay_and_cost_few_calls(
    drifting: Drifting,
) -> None:
    assert drifting.runs(10) == []
    once = {"node_cluster": 1, "parameters": 1, "subnets": 1, "security_groups": 1}
    assert drifting.calls == once
    drifting.runs(2)
    assert drifting.calls == dict.fromkeys(once, 2), "again after ten minutes"


def test_a_new_ami_replaces_one_node_at_a_time_and_the_replacement_comes_first(
    drifting: Drifting,
) -> None:
    assert drifting.run().begun == ()
    drifting.publish()
    runs = drifting.runs(30)
    (told,) = [reason for one in runs for reason in one.begun]
    assert "ami-1" in told.message
    assert "ami-new" in told.message
    (instance,) = drifting.started()
    record = drifting.retirements[instance]
    assert (record.attempt, record.replacement) == (1, Replacement.BEFORE)
    assert record.returns is not None
    assert not record.returns.forced
    assert (record.returns.cause, record.reason.code) == ("Drifted", "NodeDrifted")
    assert len(drifting.requests) == 1, "the budget of 10 % holds until the node is gone"


def test_the_churn_cap_of_the_cluster_limits_drift_of_pools_without_a_budget(
    catalog: Catalog,
) -> None:
    drifting = Drifting(catalog, 10, budgets=[{"nodes": "100%"}])
    drifting.policy = replace(drifting.policy, churn=ChurnCap(percent=20, at_least=1))
    drifting.publish()
    assert drifting.run().begun == ()
    assert len(drifting.run().begun) == 2


def test_a_run_that_has_just_launched_from_the_new_ami_leaves_young_nodes_alone(
    drifting: Drifting,
) -> None:
    drifting.publish()
    name, (given, details) = next(iter(drifting.cluster.nodes.items()))
    drifting.cluster.nodes = {name: (given, replace(details, created_at=drifting.time))}
    assert drifting.runs(20) == []


@pytest.mark.parametrize("error", [CloudUnavailable("no answer"), CloudRefused("denied")])
def test_amis_that_cannot_be_read_are_no_drift_and_are_told_once(
    drifting: Drifting, error: Exception
) -> None:
    drifting.publish()
    drifting.ports["images"].error = error
    (said,) = drifting.runs(25)
    assert [one.code for one in said.problems] == ["DriftNotKnown"] * len(said.problems)
    assert drifting.started() == []
    assert drifting.calls["parameters"] == 3, "every ten minutes"
    drifting.ports["images"].error = None
    drifting.runs(12)
    assert len(drifting.started()) == 1


def test_aws_that_does_not_answer_is_asked_once_in_ten_minutes(drifting: Drifting) -> None:
    for one in drifting.ports.values():
        one.error = CloudUnavailable("no answer")
    drifting.runs(9)
    assert drifting.calls == {"subnets": 1, "node_cluster": 1}, "both at the same time"


def test_a_changed_manifest_counts_at_once(drifting: Drifting) -> None:
    drifting.run()
    drifting.cluster.manifests = manifests(pool(disruption=KEPT), node_class(role="others"))
    (said,) = [one for one in drifting.runs(3) if one.begun]
    assert "role" in said.begun[0].message


def test_machines_of_another_architecture_are_compared_with_their_own_ami(
    catalog: Catalog,
) -> None:
    drifting = Drifting(catalog, 2, arch=["amd64", "arm64"])
    drifting.aws.images.values = {
        name: "ami-arm" if "arm64" in name else "ami-1" for name in drifting.aws.images.values
    }
    drifting.launched(["i-n0"], instance_type="m6g.large", image="ami-arm")
    assert drifting.runs(3) == []
    drifting.launched(["i-n0"], instance_type="m6g.large", image="ami-1")
    assert any("ami-arm" in str(one.begun) for one in drifting.runs(3))
