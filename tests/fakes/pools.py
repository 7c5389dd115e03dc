"""Retirements whose successors come from Leeway's pools, and provision_nodes as a fake."""

from dataclasses import dataclass, field
from typing import Any

from leeway.capacity_requests import CAPACITY_REQUEST, CapacityAnswer
from leeway.catalog.unavailable import Offering
from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import UNAVAILABLE_FOR, ClusterPolicy
from leeway.reasons import Reason

from tests.fakes.groups import SUCCESSOR, ZONES
from tests.fakes.retirement import POD, RetirementFakes, retirement_fakes
from tests.retirement.retirements import FACTS

POOL = Owner(OwnerKind.LEEWAY, "spot-general")
OF_POOL = FACTS.model_copy(update={"owner": POOL, "joined": True, "from_fleet": True})
LIMIT = Reason("PoolAtLimit", "Pool spot-general is at its limit of 10 CPUs.")
LAUNCHED = f"Pool spot-general launches {SUCCESSOR} (m5.large, us-east-1a)."


@dataclass
class FakeBuyer:
    """Answers requests as provision_nodes does: it launches one successor for a request, once.

    - `launches`: whether it launches. `existing`: how many pods it places on existing nodes.
    - `refuses`: why some pods get no node.
    """

    fakes: RetirementFakes
    launches: bool = True
    existing: int = 0
    refuses: tuple[Reason, ...] = ()
    runs: list[str] = field(default_factory=list)

    def run(self, cluster: str) -> None:
        """Answer the open requests of a cluster."""
        self.runs.append(cluster)
        fakes, now = self.fakes, self.fakes.clock.time
        for request in list(fakes.capacity.values()):
            if not request.is_open(now):
                continue
            if self.launches and fakes.groups.launched_at is None:
                fakes.actions.add("buy")
                fakes.groups.launched_at = now
            answer = CapacityAnswer(
                answered_at=now,
                launched=(SUCCESSOR,) if self.launches else (),
                existing=self.existing,
                without_node=self.refuses,
            )
            fakes.table.put(CAPACITY_REQUEST, request.answered(answer))


def _with_buyer(fakes: RetirementFakes, fields: dict[str, Any] | None) -> RetirementFakes:
    fakes.queue.on_wake = FakeBuyer(fakes, **fields or {}).run
    fakes.instances.launched_by = POOL
    return fakes


def of_pool(
    kind: NoticeKind = NoticeKind.REBALANCE, buyer: dict[str, Any] | None = None, **changes: Any
) -> RetirementFakes:
    """Return the fakes of a retirement of an instance that Leeway launched. `buyer` are fields of
    the FakeBuyer, `changes` those of `retirement_fakes`."""
    usual: dict[str, Any] = {"pods": [POD], "blocks": False, "state": None}
    fakes = retirement_fakes(kind, **usual | changes)
    fakes.amend(facts=OF_POOL)
    fakes.instances.described = OF_POOL
    return _with_buyer(fakes, buyer)


def of_full_group(
    kind: NoticeKind = NoticeKind.REBALANCE, buyer: dict[str, Any] | None = None, **changes: Any
) -> RetirementFakes:
    """Return the fakes of a retirement in a group for which EC2 has no capacity. The Cluster
    manifest lets groups use Leeway's pools."""
    usual: dict[str, Any] = {
        "pods": [POD],
        "blocks": False,
        "hooks": ("leeway-drain",),
        "full": set(ZONES),
        "policy": ClusterPolicy(groups_may_use_pools=True),
        "notifies_hooks": True,
    }
    return _with_buyer(retirement_fakes(kind, **usual | changes), buyer)


def report_no_capacity(fakes: RetirementFakes) -> RetirementFakes:
    """Have EC2 report that it has no capacity for the group in any zone."""
    until = fakes.clock.time + UNAVAILABLE_FOR
    for zone in ZONES:
        offering = Offering("us-east-1", FACTS.instance_type, zone, FACTS.capacity_type)
        fakes.offerings.mark(offering, "InsufficientInstanceCapacity", until)
    return fakes
