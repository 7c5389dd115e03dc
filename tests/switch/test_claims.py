"""The NodeClaims that a switch back to Karpenter writes."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from leeway.ports.kubernetes import ClusterRefused
from leeway_cli.errors import CannotBeDoneError
from leeway_cli.switch.claims import CLAIMS, claim_of, put_claim

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


def node(**labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "node-1", "labels": labels},
        "spec": {"providerID": "aws:///us-east-1a/i-1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


@dataclass
class Server:
    """The NodeClaims of an API server that refuses what it is told to."""

    refuses: tuple[str, ...] = ()
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)

    def request(self, method: str, path: str, *, content: str = "", body: Any = None) -> Any:
        if method in self.refuses:
            raise ClusterRefused(f"403 {method} {path}")
        name = path.removeprefix(f"{CLAIMS}/").removesuffix("/status")
        match method:
            case "POST":
                name = body["metadata"]["name"]
                self.claims[name] = {**body, "metadata": {**body["metadata"], "uid": "claim"}}
            case "PATCH":
                self.claims[name]["status"] = body["status"]
            case "DELETE":
                found = self.claims[name]["metadata"]
                assert body == {"preconditions": {"uid": found["uid"]}}
                if found.get("finalizers"):
                    found["deletionTimestamp"] = "2026-11-23T12:00:00Z"
                else:
                    return self.claims.pop(name)
        return self.claims.get(name)


CLAIM = claim_of(node(), "i-1", POOL)
STATUS = {"providerID": "aws:///us-east-1a/i-1"}


def test_a_nodeclaim_whose_status_is_refused_is_gone_at_once() -> None:
    """One that waits for its finalizer would let Karpenter end the instance without a drain."""
    server = Server(refuses=("PATCH",))
    with pytest.raises(ClusterRefused):
        put_claim(server.request, CLAIM, STATUS)
    assert server.claims == {}
    server.refuses = ()
    put_claim(server.request, CLAIM, STATUS)
    assert server.claims["default-1"]["status"] == STATUS


def test_a_nodeclaim_that_cannot_be_deleted_again_is_named() -> None:
    server = Server(refuses=("PATCH", "DELETE"))
    with pytest.raises(CannotBeDoneError, match="kubectl delete nodeclaim default-1"):
        put_claim(server.request, CLAIM, STATUS)


def test_a_nodeclaim_that_is_being_deleted_gets_no_instance() -> None:
    server = Server()
    found = {"uid": "claim", "deletionTimestamp": "2026-11-23T12:00:00Z"}
    server.claims["default-1"] = {"metadata": found}
    with pytest.raises(CannotBeDoneError, match="is being deleted"):
        put_claim(server.request, CLAIM, STATUS)
    assert "status" not in server.claims["default-1"]
