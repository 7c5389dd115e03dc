"""The NodeClaims that a switch back to Karpenter writes."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind
from leeway.ports.kubernetes import ClusterRefused
from leeway.selection.offers.reservations import ReservedCapacity
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.switch.claims import (
    CLAIMS,
    claim_of,
    put_claim,
    remove_claim,
    why_not_ready,
    why_unfit,
)

POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default", "uid": "pool"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.k8s.aws",
                    "kind": "EC2NodeClass",
                    "name": "default",
                },
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
                ],
            }
        }
    },
}


FACTS = InstanceFacts(
    instance="i-0123456789abcdef0",
    cluster="prod",
    private_dns_name="node-1",
    zone="us-east-1a",
    instance_type="m5.large",
    capacity_type="spot",
    image="ami-1",
    subnet="subnet-1",
    security_groups=("sg-1",),
    owner=Owner(OwnerKind.LEEWAY),
)
CLASS: dict[str, Any] = {
    "metadata": {"name": "default"},
    "status": {
        "amis": [{"id": "ami-1", "requirements": []}],
        "subnets": [{"id": "subnet-1"}],
        "securityGroups": [{"id": "sg-1"}],
    },
}


def pool_with(*requirements: dict[str, Any]) -> dict[str, Any]:
    found = deepcopy(POOL)
    found["spec"]["template"]["spec"]["requirements"] += requirements
    return found


def node(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "node-1",
            "labels": {"karpenter.k8s.aws/ec2nodeclass": "default", **labels},
        },
        "spec": {"providerID": "aws:///us-east-1a/i-0123456789abcdef0"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


@dataclass
class Server:
    """The NodeClaims of an API server that refuses what it is told to. `meanwhile` runs once, right
    after the next read."""

    refuses: tuple[str, ...] = ()
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    allows_dry_runs: bool = False
    meanwhile: Callable[[], None] | None = None

    def request(
        self, method: str, path: str, *, content: str = "", body: Any = None, params: Any = None
    ) -> Any:
        if method in self.refuses and not (params and self.allows_dry_runs):
            raise ClusterRefused(f"403 {method} {path}")
        if params:
            return None
        name = path.removeprefix(f"{CLAIMS}/").removesuffix("/status")
        match method:
            case "POST":
                name = body["metadata"]["name"]
                set_by_server = {"uid": "claim", "resourceVersion": "1"}
                self.claims[name] = {**body, "metadata": {**body["metadata"], **set_by_server}}
            case "GET":
                answer = deepcopy(self.claims.get(name))
                if self.meanwhile is not None:
                    self.meanwhile()
                    self.meanwhile = None
                return answer
            case "PATCH" if path.endswith("/status"):
                self.claims[name]["status"] = body["status"]
            case "PATCH":
                found = self.claims[name]["metadata"]
                if body["metadata"].pop("resourceVersion") != found["resourceVersion"]:
                    raise ClusterRefused(f"409 {method} {path}")
                found |= {**body["metadata"], "resourceVersion": f"{found['resourceVersion']}1"}
            case "DELETE":
                found = self.claims[name]["metadata"]
                only = {"uid": found["uid"], "resourceVersion": found["resourceVersion"]}
                if body != {"preconditions": only}:
                    raise ClusterRefused(f"409 {method} {path}")
                if found.get("finalizers"):
                    found["deletionTimestamp"] = "2026-11-23T12:00:00Z"
                else:
                    return self.claims.pop(name)
        return self.claims.get(name)


CLAIM = claim_of(node({}), FACTS, POOL)
STATUS = {"providerID": "aws:///us-east-1a/i-0123456789abcdef0"}


def test_a_nodeclaim_whose_status_is_refused_is_gone_at_once() -> None:
    """One that waits for its finalizer would let Karpenter end the instance without a drain."""
    server = Server(refuses=("PATCH",))
    with pytest.raises(ClusterRefused):
        put_claim(server.request, CLAIM, STATUS)
    assert server.claims == {}
    server.refuses = ()
    put_claim(server.request, CLAIM, STATUS)
    assert server.claims["default-0123456789abcdef0"]["status"] == STATUS


def test_a_nodeclaim_that_cannot_be_deleted_again_is_named() -> None:
    server = Server(refuses=("PATCH", "DELETE"), allows_dry_runs=True)
    with pytest.raises(CannotBeDoneError, match="kubectl delete nodeclaim default-0123"):
        put_claim(server.request, CLAIM, STATUS)


def test_no_nodeclaim_is_written_without_the_right_to_delete_it_again() -> None:
    server = Server(refuses=("DELETE",))
    with pytest.raises(ClusterRefused, match="DELETE"):
        put_claim(server.request, CLAIM, STATUS)
    assert server.claims == {}


def test_only_a_nodeclaim_that_karpenter_has_not_registered_is_deleted_again() -> None:
    """A Node names one that is registered, and Kubernetes would delete the Node with it."""
    server = Server()
    put_claim(server.request, CLAIM, STATUS)
    found = server.claims["default-0123456789abcdef0"]
    found["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    registered = {"type": "Registered", "status": "True"}
    found["status"] = {**STATUS, "conditions": [registered]}
    remove_claim(server.request, "default-0123456789abcdef0")
    assert server.claims
    registered["status"] = "Unknown"
    server.meanwhile = lambda: found["metadata"].update(resourceVersion="9")
    remove_claim(server.request, "default-0123456789abcdef0")
    assert found["metadata"]["finalizers"], "Karpenter is there again"
    assert "deletionTimestamp" not in found["metadata"]
    found["metadata"]["name"] = "default-x7k2p"
    remove_claim(server.request, "default-0123456789abcdef0")
    assert server.claims, "a name that Karpenter gives"
    found["metadata"]["name"] = "default-0123456789abcdef0"
    remove_claim(server.request, "default-0123456789abcdef0")
    assert server.claims == {}
    remove_claim(server.request, "default-0123456789abcdef0")


def test_a_nodeclaim_that_is_being_deleted_gets_no_instance() -> None:
    server = Server()
    found = {"uid": "claim", "deletionTimestamp": "2026-11-23T12:00:00Z"}
    server.claims["default-0123456789abcdef0"] = {"metadata": found}
    with pytest.raises(CannotBeDoneError, match="is being deleted"):
        put_claim(server.request, CLAIM, STATUS)
    assert "status" not in server.claims["default-0123456789abcdef0"]


@pytest.mark.parametrize(
    ("requirement", "labels", "unfit"),
    [
        ({"key": "team", "operator": "Exists"}, {}, True),
        ({"key": "team", "operator": "Exists"}, {"team": "web"}, False),
        ({"key": "team", "operator": "In", "values": ["web", "db"]}, {}, True),
        ({"key": "team", "operator": "In", "values": ["web", "db"]}, {"team": "db"}, False),
        ({"key": "team", "operator": "NotIn", "values": ["web"]}, {}, False),
        ({"key": "team", "operator": "DoesNotExist"}, {}, False),
        ({"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["1"]}, {}, True),
    ],
)
def test_karpenter_keeps_a_node_only_if_its_nodeclaim_meets_each_requirement(
    requirement: dict[str, Any], labels: dict[str, str], unfit: bool
) -> None:
    """Karpenter replaces a node whose NodeClaim lacks a label that its NodePool requires."""
    pool = pool_with(requirement)
    found = why_unfit(node(labels), FACTS, pool, CLASS)
    assert ("do not fit the requirement" in found) is unfit, found
    assert bool(found) is unfit, found
    assert labels.items() <= claim_of(node(labels), FACTS, pool)["metadata"]["labels"].items()


AMD64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
GPU = {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"}
NO_GPU = {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"}


@pytest.mark.parametrize(
    ("amis", "labels", "why"),
    [
        ({"ami-2": [AMD64], "ami-1": [AMD64]}, {}, "has the AMI ami-2 for its machine"),
        ({"ami-1": [AMD64], "ami-2": [AMD64]}, {}, ""),
        ({"ami-2": [], "ami-1": []}, {}, "has the AMI ami-2 for its machine"),
        ({"ami-2": [AMD64, NO_GPU], "ami-1": [AMD64, GPU]}, {GPU["key"]: "1"}, ""),
        ({"ami-1": [AMD64, NO_GPU], "ami-2": [AMD64, GPU]}, {GPU["key"]: "1"}, "the AMI ami-2"),
        ({"ami-2": [AMD64, GPU], "ami-1": [AMD64, NO_GPU]}, {}, ""),
        ({"ami-1": [AMD64, GPU]}, {}, "has no AMI for its machine"),
        ({"ami-2": [AMD64]}, {}, "does not have the AMI ami-1"),
    ],
)
def test_karpenter_keeps_a_node_only_with_the_first_ami_for_its_machine(
    amis: dict[str, list[Any]], labels: dict[str, str], why: str
) -> None:
    found = deepcopy(CLASS)
    found["status"]["amis"] = [{"id": name, "requirements": each} for name, each in amis.items()]
    one = node({"kubernetes.io/arch": "amd64", **labels})
    reason = why_unfit(one, FACTS, POOL, found)
    assert why in reason
    assert bool(reason) is bool(why)


def test_a_node_in_a_reservation_that_its_class_no_longer_has_is_not_kept() -> None:
    pool = deepcopy(POOL)
    pool["spec"]["template"]["spec"]["requirements"][0]["values"] = ["reserved", "on-demand"]
    reserved = {"capacity_type": "reserved", "reservation": ReservedCapacity("cr-1")}
    facts, found = FACTS.model_copy(update=reserved), deepcopy(CLASS)
    assert "capacity reservation cr-1" in why_unfit(node({}), facts, pool, found)
    found["status"]["capacityReservations"] = [{"id": "cr-2"}, {"id": "cr-1"}]
    assert why_unfit(node({}), facts, pool, found) == ""
    found["status"]["capacityReservations"] = []
    on_demand = facts.model_copy(update={"capacity_type": "on-demand", "reservation": None})
    assert why_unfit(node({}), on_demand, pool, found) == "", "the reservation has ended"


def test_a_node_whose_class_has_a_placement_group_is_not_kept() -> None:
    found = {**CLASS, "spec": {"placementGroupSelector": {"name": "near"}}}
    assert "placement group" in why_unfit(node({}), FACTS, POOL, found)


def test_a_nodeclaim_has_what_ec2_says_and_not_what_the_kubelet_wrote() -> None:
    forged = {
        "karpenter.sh/nodepool": "other",
        "karpenter.sh/capacity-type": "reserved",
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "topology.kubernetes.io/zone": "mars",
    }
    labels = claim_of(node(forged), FACTS, POOL)["metadata"]["labels"]
    assert labels == {
        "karpenter.sh/nodepool": "default",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "karpenter.sh/capacity-type": "spot",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/zone": "us-east-1a",
    }


def test_a_nodeclaim_names_the_instance_profile_that_karpenter_must_not_delete() -> None:
    metadata = claim_of(node({}), FACTS, POOL, "prod_1234567890123456789")["metadata"]
    assert metadata["annotations"] == {
        "karpenter.k8s.aws/instance-profile-name": "prod_1234567890123456789"
    }
    assert "annotations" not in CLAIM["metadata"]


def test_a_class_is_not_ready_without_what_nodes_are_compared_with() -> None:
    assert why_not_ready(CLASS) == ""
    found = {**CLASS, "status": {**CLASS["status"], "amis": [], "subnets": None}}
    assert why_not_ready(found) == "status.amis is empty, status.subnets is empty"
    assert "status.securityGroups" in why_not_ready({"metadata": {"name": "default"}})
    unknown = {"type": "CapacityReservationsReady", "status": "Unknown"}
    others = [{"type": "AMIsReady", "status": "True"}, {"type": "Ready", "status": "False"}]
    found = {**CLASS, "status": {**CLASS["status"], "conditions": [*others, unknown]}}
    assert why_not_ready(found) == "CapacityReservationsReady is Unknown"
