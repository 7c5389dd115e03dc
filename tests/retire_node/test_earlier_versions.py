"""Records that earlier versions wrote are read, and lead to nothing that is done twice."""

import json
from datetime import timedelta
from typing import Any

import pytest
from leeway.instances.observed import ObservedHook, ObservedInstance, ObservedInterruption
from leeway.notices import InterruptionAction, NoticeKind
from leeway.notices.synthetic import Place
from leeway.reconciliation.lost_events import about_hook, about_interruption, about_state
from leeway.retirement.record import Retirement

from tests.retirement.retirements import FACTS, HOOK, NOTICED, take

PLACE = Place("123456789012", "us-east-1")

FIRST: dict[str, Any] = {
    "facts": {
        "instance": FACTS.instance,
        "cluster": "prod",
        "private_dns_name": FACTS.private_dns_name,
        "zone": "us-east-1a",
        "instance_type": "m5.large",
        "capacity_type": "spot",
        "owner": {"kind": "auto-scaling-group", "name": "ng"},
    },
    "attempt": 1,
    "version": 3,
    "phase": "finished",
    "kind": "spot-interruption",
    "noticed_at": "2026-11-20T09:45:00Z",
    "deadline": "2026-11-20T09:46:55Z",
    "on_blocked": "delete",
    "replacement": "with",
    "reason": "the policy for spot-interruption says retire",
    "notices": ["n-1"],
    "hooks": [],
    "replaced": None,
}
"""What the first version wrote, which carried out all that it finished."""

ASKED = {"method": "detach", "reason": "", "asked_at": "2026-11-20T09:45:02Z"}
SECOND = {**FIRST, "action": "retire", "stops": False, "begun_at": None, "event": ""}
"""What versions wrote that knew rehearsals, and noted no answer."""

CARRIED_OUT = {
    "by the first version": FIRST,
    "with a successor": {**SECOND, "replaced": {**ASKED, "group": "ng"}},
    "in its turn": {**SECOND, "kind": "rebalance", "begun_at": "2026-11-20T09:45:30Z"},
}


def stored(fields: dict[str, Any]) -> Retirement:
    return Retirement.model_validate_json(json.dumps(fields))


@pytest.mark.parametrize("fields", CARRIED_OUT.values(), ids=CARRIED_OUT)
def test_what_an_earlier_version_has_carried_out_is_not_done_again(fields: dict[str, Any]) -> None:
    record = stored(fields)
    assert not record.came_to_nothing
    assert not take(record, NoticeKind.SPOT_INTERRUPTION, "n-1").start
    for state in ("shutting-down", "terminated"):
        told = take(record, NoticeKind.STATE_CHANGE, f"n-{state}", after=120, state=state)
        assert (told.write, told.start) == (False, False)
    soon = NOTICED + timedelta(minutes=3)
    seen = ObservedInstance(FACTS, "shutting-down", NOTICED - timedelta(days=1), "ng")
    assert about_state(seen, record, PLACE, soon) is None


@pytest.mark.parametrize("name", ["by the first version", "with a successor"])
def test_an_interruption_that_an_earlier_version_has_served_is_not_found_again(name: str) -> None:
    launched = NOTICED - timedelta(days=1)
    seen = ObservedInterruption(FACTS.instance, InterruptionAction.TERMINATE, NOTICED)
    soon = NOTICED + timedelta(minutes=1)
    assert about_interruption(seen, launched, stored(CARRIED_OUT[name]), PLACE, soon) is None


def test_what_may_have_been_a_rehearsal_is_retired_for_real_while_its_hook_waits() -> None:
    hook = {"group": HOOK.group, "name": HOOK.name}
    record = stored({**SECOND, "kind": "terminate-hook", "hooks": [hook]})
    assert record.came_to_nothing
    seen = ObservedHook(FACTS.instance, HOOK, launching=False)
    assert about_hook(seen, record, None, PLACE, NOTICED + timedelta(minutes=1)) is not None
