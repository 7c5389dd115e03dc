"""The plan of a notice, as far as it depends on Leeway's pools."""

from typing import Any

import pytest
from leeway.instances.facts import InstanceFacts
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy
from leeway.retire_node.plan import InstanceFindings, InstancePlan, plan_instance

from tests.fakes.pools import OF_POOL
from tests.replacement.test_decide import group
from tests.retirement.retirements import FACTS, notice


def planned(
    kind: NoticeKind, facts: InstanceFacts, policy: ClusterPolicy, **of_group: Any
) -> InstancePlan:
    found_group = group(**of_group) if facts is FACTS else None
    found = InstanceFindings(facts.instance, facts, found_group, None, "", ec2_read=True)
    return plan_instance(notice(kind, "n-1"), policy, "defaults", found)


def codes(plan: InstancePlan) -> list[str]:
    return [remark.code for remark in plan.remarks]


@pytest.mark.parametrize(
    ("kind", "first"), [(NoticeKind.SPOT_INTERRUPTION, False), (NoticeKind.REBALANCE, True)]
)
def test_the_plan_says_that_pools_replace_a_node_of_a_pool(kind: NoticeKind, first: bool) -> None:
    plan = planned(kind, OF_POOL, ClusterPolicy())
    assert (plan.replacement, plan.replacement_first) == ("request-capacity", first)
    assert plan.replacement_reason.code == "CapacityRequested"
    assert (plan.owner, plan.action) == ("leeway spot-general", "retire")


def test_the_plan_says_that_pools_may_replace_a_node_of_a_group() -> None:
    allowed = ClusterPolicy(groups_may_use_pools=True)
    interruption = NoticeKind.SPOT_INTERRUPTION
    assert "PoolsMayReplaceGroupNode" in codes(planned(interruption, FACTS, allowed))
    assert "PoolsMayReplaceGroupNode" not in codes(planned(interruption, FACTS, ClusterPolicy()))
    refreshing = planned(interruption, FACTS, allowed, refreshing=True)
    assert "PoolsMayReplaceGroupNode" not in codes(refreshing)
    assert "PoolsMayReplaceGroupNode" not in codes(planned(interruption, OF_POOL, allowed))
