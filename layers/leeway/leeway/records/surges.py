"""One more instance of a group for each retirement that asks, and one less when it is over, however
they meet and die.

SetDesiredCapacity sets a number: two that add one at the same time would make it one more, not
two. So a group has a ledger in the table. Whoever raises or lowers takes it first, and notes from
which number; who finds a raise that was left half done does that one first, and only then its own.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict

HELD_FOR = timedelta(seconds=30)
"""How long the ledger is held for whoever raises: longer than the call to Auto Scaling takes."""

REMEMBERED_FOR = timedelta(days=4)
"""How long it is remembered for whom a group was raised, since they last asked."""


BURST = timedelta(minutes=10)
"""How long after one retirement another belongs to the same burst: as long as a successor is waited
for, so that any two that wait at the same time count from the same members."""


class Step(StrEnum):
    """What is to be done next. `lower` is the last step of a lowering; after `take` and `set`, the
    ledger says what comes next."""

    DONE = "done"
    FULL = "full"
    WAIT = "wait"
    TAKE = "take"
    SET = "set"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class NextStep:
    """What is to be done next; `desired` is what the group is to want, `ledger` what to write after
    that. None where there is nothing to set, or to write."""

    step: Step
    ledger: "SurgeLedger | None" = None
    desired: int | None = None


class SurgeLedger(BaseModel):
    """Who raises a group's desired capacity, or lowers it, from what, until when; and for whom it
    is one larger.

    `base` is what the group wanted without those in `raised`, which are kept with the moment when
    they last asked. `counted` are the members from which on successors are counted, last asked at
    `counted_at`. `version` counts writes, under which it is locked.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    group: str
    version: int = 0
    holder: str = ""
    lowering: bool = False
    before: int = 0
    until: AwareDatetime | None = None
    base: int = 0
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
            renewed = now - self.raised[instance] > REMEMBERED_FOR / 2
            again = self._changed({"raised": {**self.raised, instance: now}}) if renewed else None
            return NextStep(Step.DONE, again)
        if self.holder:
            return self._finish_holders(instance, desired, maximum, now)
        if desired >= maximum:
            return NextStep(Step.FULL)
        return self._take(instance, desired, now, lowering=False)

    def next_lowering(self, instance: str, desired: int, maximum: int, now: datetime) -> NextStep:
        """Decide what to do so that a group that was raised for this instance is lowered once.

        Nothing is set where somebody else has lowered it meanwhile.
        """
        if self.holder == instance and self.lowering:
            one_less = desired - 1 if self._is_larger(desired) else None
            return NextStep(Step.LOWER, self._lowered(), one_less)
        if self.holder == instance and desired <= self.before:
            return NextStep(Step.SET, self._changed({"holder": ""}))  # it was not raised
        if self.holder and (self.holder == instance or instance in self.raised):
            return self._finish_holders(instance, desired, maximum, now)
        if instance not in self.raised:
            return NextStep(Step.DONE)
        return self._take(instance, desired, now, lowering=True)

    def _is_larger(self, desired: int) -> bool:
        """Whether the group still wants the one more that its holder is about to take back."""
        return desired >= self.before and desired >= self.base + len(self.raised)

    def _take(self, instance: str, desired: int, now: datetime, lowering: bool) -> NextStep:
        taken = {"holder": instance, "lowering": lowering, "before": desired}
        return NextStep(Step.TAKE, self._changed({**taken, "until": now + HELD_FOR}))

    def _finish_holders(self, instance: str, desired: int, maximum: int, now: datetime) -> NextStep:
        """Do what the holder left half done, but for a lowering: whoever wants it asks again."""
        if self.holder != instance and self.until is not None and now < self.until:
            return NextStep(Step.WAIT)
        if self.lowering:
            lowered = desired < self.before
            return NextStep(Step.SET, self._lowered() if lowered else self._released({}))
        if desired <= self.before and self.before >= maximum:
            return NextStep(Step.SET, self._released({}))
        known = {name: at for name, at in self.raised.items() if now - at < REMEMBERED_FOR}
        raised = {"raised": {**known, self.holder: now}, "base": self.before - len(known)}
        return NextStep(
            Step.SET, self._released(raised), self.before + 1 if desired <= self.before else None
        )

    def _lowered(self) -> "SurgeLedger":
        return self._released(
            {"raised": {name: at for name, at in self.raised.items() if name != self.holder}}
        )

    def _released(self, fields: dict[str, object]) -> "SurgeLedger":
        return self._changed({**fields, "holder": "", "lowering": False})

    def _changed(self, fields: dict[str, object]) -> "SurgeLedger":
        return self.model_copy(update={**fields, "version": self.version + 1})
