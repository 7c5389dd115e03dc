"""The plan of a notice, as far as it depends on Leeway's pools."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from leeway.instances.facts import InstanceFacts
from leeway.interruption.explain import InstanceFindings, InstancePlan, plan_instance
from leeway.notices import NoticeKind
from leeway.policy.rules import ClusterPolicy

from tests.fakes.pools import OF_POOL
from tests.retirement.retirements import FACTS, notice
from tests.retirement.test_decide import group


def planned(
    kind: NoticeKind,
    facts: InstanceFacts,
    policy: ClusterPolicy,
    delays: Mapping[str, timedelta] | None = None,
    **of_group: Any,
) -> InstancePlan:
    found_group = group(**of_group) if facts is FACTS else None
    found = InstanceFindings(
        facts.instance, facts, found_group, None, "", ec2_read=True, delays=delays or {}
    )
    return plan_instance(notice(kind, "n-1"), policy, "defaults", found)


def mentions_pools(plan: InstancePlan) -> bool:
    return any("Leeway's pools launch nodes" in remark for remark in plan.remarks)


@pytest.mark.parametrize(
    ("kind", "first"), [(NoticeKind.SPOT_INTERRUPTION, False), (NoticeKind.REBALANCE, True)]
)
def test_the_plan_says_that_pools_replace_a_node_of_a_pool(kind: NoticeKind, first: bool) -> None:
    plan = planned(kind, OF_POOL, ClusterPolicy())
    assert (plan.replacement, plan.replacement_first) == ("request-capacity", first)
    assert "provision_nodes launches nodes" in plan.replacement_reason
    assert (plan.owner, plan.action) == ("leeway spot-general", "retire")


def test_the_plan_says_that_pools_may_replace_a_node_of_a_group() -> None:
    allowed = ClusterPolicy(groups_may_use_pools=True)
    interruption = NoticeKind.SPOT_INTERRUPTION
    assert mentions_pools(planned(interruption, FACTS, allowed))
    assert not mentions_pools(planned(interruption, FACTS, ClusterPolicy()))
    refreshing = planned(interruption, FACTS, allowed, refreshing=True)
    assert not mentions_pools(refreshing)
    assert not mentions_pools(planned(interruption, OF_POOL, allowed))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (NoticeKind.REBALANCE, "after the drain, Leeway waits for that"),
        (
            NoticeKind.SPOT_INTERRUPTION,
            "EC2 ends it 2m after the notice, so web lacks at least 3m.",
        ),
    ],
)
def test_the_plan_says_how_long_load_balancers_keep_the_instance(
    kind: NoticeKind, said: str
) -> None:
    delays = {"web": timedelta(seconds=300), "api": timedelta(seconds=30)}
    plan = planned(kind, FACTS, ClusterPolicy(waits_for_targets=True), delays)
    (remark,) = [one for one in plan.remarks if one.startswith("Target groups api, web have")]
    assert "for 5m at most after it is deregistered" in remark
    assert said in remark
    silent = planned(kind, FACTS, ClusterPolicy(), delays)
    assert not any("Target group" in one for one in silent.remarks)
