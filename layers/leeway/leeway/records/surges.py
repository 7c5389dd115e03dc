"""One more instance of a group for each retirement that asks, and one less when it is over, however
they meet and die.

SetDesiredCapacity sets a number: two that add one at the same time would make it one more, not
two. So a group has a ledger in the table. Whoever raises or lowers takes it first, and notes from
which number; who finds a raise that was left half done does that one first, and only then its own.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict

from leeway.policies import SUCCESSOR_WITHIN

HELD_FOR = timedelta(seconds=30)
"""How long the ledger is held for whoever raises: longer than the call to Auto Scaling takes."""

REMEMBERED_FOR = timedelta(days=4)
"""How long it is remembered for whom a group was raised, since they last asked."""

WAITS_FOR = SUCCESSOR_WITHIN + timedelta(minutes=5)
"""How long a retirement may be waiting for its successor, with all that its looks take, and asking
for it before that."""


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


class Wait(BaseModel):
    """A retirement's wait for its successor, since then; `successor` is empty until it is over."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    since: AwareDatetime
    successor: str = ""


class SurgeLedger(BaseModel):
    """Who raises a group's desired capacity, or lowers it, from what, until when; for whom it is
    one larger; and who waits for a successor.

    `base` is what the group wanted without those in `raised`, which are kept with the moment when
    they last asked. `counted` are the members from which on the successors of those in `waiting`
    are counted. `version` counts writes, under which it is locked.
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
    waiting: dict[str, Wait] = {}

    def counting_from(
        self, instance: str, members: tuple[str, ...], now: datetime
    ) -> "SurgeLedger":
        """Decide from which members on successors are counted, with one more retirement that waits.

        All that wait at the same time have the same choice of successors: if each counted from
        what it found itself, an earlier one might take the only node that a later one may have.
        What has become somebody's successor is no choice for those who come later.
        """
        recent = {name: one for name, one in self.waiting.items() if now - one.since < WAITS_FOR}
        counted = members
        if any(not one.successor for one in recent.values()):
            known = {*self.counted, *(one.successor for one in self.waiting.values())}
            counted = tuple(member for member in members if member in known)
        return self._changed({"counted": counted, "waiting": {**recent, instance: Wait(since=now)}})

    def newcomers(
        self, instance: str, before: Collection[str], members: Sequence[str]
    ) -> tuple[str, ...]:
        """Return the members that may be an instance's successor: that came since, are not on their
        way out themselves, and succeed nobody.

        `before` is from which members it counts by itself, where its wait is not known here.
        """
        waits = instance in self.waiting and not self.waiting[instance].successor
        counted = self.counted if waits else before
        successors = (one.successor for one in self.waiting.values())
        taken = {instance, *counted, *successors, *self.waiting, *self.raised}
        return tuple(member for member in members if member not in taken)

    def others_waiting(
        self, instance: str, members: Collection[str], now: datetime
    ) -> tuple[str, ...]:
        """Return the other instances for which the group has been asked to start a successor that
        is waited for: it was raised for them, or they have left it.

        Whether they still wait is told by their own records.
        """
        return tuple(
            name
            for name, one in self.waiting.items()
            if name != instance
            and not one.successor
            and now - one.since < WAITS_FOR
            and (name in self.raised or name not in members)
        )

    def successor_of(self, instance: str) -> str:
        """Return who was found to succeed an instance that waited; empty where nobody was."""
        wait = self.waiting.get(instance)
        return wait.successor if wait else ""

    def succeeded(self, instance: str, successor: str, now: datetime) -> "SurgeLedger":
        """Note who succeeds an instance, which waits no longer."""
        over = Wait(since=now, successor=successor)
        return self._changed({"waiting": {**self.waiting, instance: over}})

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
        """Nor does the holder wait for its successor, if it still did: it was interrupted."""
        raised = {name: at for name, at in self.raised.items() if name != self.holder}
        others = {n: one for n, one in self.waiting.items() if n != self.holder or one.successor}
        return self._released({"raised": raised, "waiting": others})

    def _released(self, fields: dict[str, object]) -> "SurgeLedger":
        return self._changed({**fields, "holder": "", "lowering": False})

    def _changed(self, fields: dict[str, object]) -> "SurgeLedger":
        return self.model_copy(update={**fields, "version": self.version + 1})
