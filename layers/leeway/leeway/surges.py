"""One more instance of a group for each retirement that asks, however they meet and die.

SetDesiredCapacity sets a number: two that add one at the same time would make it one more, not
two. So a group has a ledger in the table. Whoever raises takes it first, and notes from which
number; who finds one that was left half done does that one first, and only then its own.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict

HELD_FOR = timedelta(seconds=30)
"""How long the ledger is held for whoever raises: longer than the call to Auto Scaling takes."""

REMEMBERED_FOR = timedelta(days=4)
"""How long it is remembered for whom a group was raised: longer than any retirement lasts."""


BURST = timedelta(minutes=10)
"""How long after one retirement another belongs to the same burst: as long as a successor is waited
for, so that any two that wait at the same time count from the same members."""


class Step(StrEnum):
    """What is to be done next."""

    DONE = "done"
    FULL = "full"
    WAIT = "wait"
    TAKE = "take"
    SET = "set"


@dataclass(frozen=True, slots=True)
class NextStep:
    """What is to be done next, and for whom; `ledger` is what to write, `desired` what to set."""

    step: Step
    ledger: "SurgeLedger | None" = None
    desired: int | None = None


class SurgeLedger(BaseModel):
    """Who raises a group's desired capacity, from what, until when; and for whom it was raised.

    `counted` are the members from which on successors are counted, last asked at `counted_at`.
    `version` counts writes, under which it is locked.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    group: str
    version: int = 0
    holder: str = ""
    before: int = 0
    until: AwareDatetime | None = None
    raised: dict[str, AwareDatetime] = {}
    counted: tuple[str, ...] = ()
    counted_at: AwareDatetime | None = None

    def counting_from(self, members: tuple[str, ...], now: datetime) -> "SurgeLedger":
        """Decide from which members on successors are counted, for one more retirement.

        All that wait at the same time have the same choice of successors: if each counted from
        what it found itself, an earlier one might take the only node that a later one may have.
        """
        going_on = self.counted_at is not None and now - self.counted_at < BURST
        counted = self.counted if going_on else members
        return self._changed({"counted": counted, "counted_at": now})

    def next_for(self, instance: str, desired: int, maximum: int, now: datetime) -> NextStep:
        """Decide what to do so that the group is raised once for this instance.

        `desired` and `maximum` are the group's own, read after this ledger.
        """
        if instance in self.raised:
            return NextStep(Step.DONE)
        if not self.holder:
            if desired >= maximum:
                return NextStep(Step.FULL)
            taken = {"holder": instance, "before": desired, "until": now + HELD_FOR}
            return NextStep(Step.TAKE, self._changed(taken))
        if self.holder != instance and self.until is not None and now < self.until:
            return NextStep(Step.WAIT)
        if desired <= self.before and self.before >= maximum:
            return NextStep(Step.SET, self._changed({"holder": ""}))
        done = {name: at for name, at in self.raised.items() if now - at < REMEMBERED_FOR}
        released = self._changed({"holder": "", "raised": {**done, self.holder: now}})
        return NextStep(Step.SET, released, self.before + 1 if desired <= self.before else None)

    def _changed(self, fields: dict[str, object]) -> "SurgeLedger":
        return self.model_copy(update={**fields, "version": self.version + 1})
