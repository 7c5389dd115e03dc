"""Admissions of instances that Leeway launched."""

from typing import Any

from leeway.admission.record import Admission
from leeway.instances.facts import ObservedInstance, Owner, OwnerKind
from leeway.pool_pauses import FailedInstance, PoolRecord

from tests.admission.admission_records import LAUNCH, request
from tests.admission.admission_run import MINUTE, Dependencies
from tests.retirement.retirements import FACTS, NOTICED

OURS = FACTS.model_copy(update={"owner": Owner(OwnerKind.LEEWAY, LAUNCH.pool)})
RUNS = ObservedInstance(OURS, "running", NOTICED, "", LAUNCH.intent)


def launched(**more: Any) -> Admission:
    return request(None, "launch-1", hook=None, launch=LAUNCH, **more).record


def dependencies(record: Admission | None = None, **changes: Any) -> Dependencies:
    return Dependencies(record or launched(), observed=RUNS, **changes)


BEFORE = [
    FailedInstance(instance=f"i-{number:017x}", launched_at=NOTICED - MINUTE) for number in (8, 9)
]


def with_failures() -> Dependencies:
    deps = dependencies()
    stored = PoolRecord(cluster=FACTS.cluster, pool=LAUNCH.pool, failures=tuple(BEFORE))
    deps.pools[stored.pool] = stored
    return deps
