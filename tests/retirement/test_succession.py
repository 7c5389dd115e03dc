"""Who succeeds whom: everybody who waits for a successor waits for one more that is Ready."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.cloud.ports import GroupCapacity
from leeway.cluster.ports import Node
from leeway.notices import NoticeKind
from leeway.records.retirement import InstanceFacts, Phase, ReplacementIntent, Retirement
from leeway.records.surges import WAITS_FOR
from leeway.replacement import Method
from leeway.retirement.succession import Succession

from tests.records.retirements import FACTS, NOTICED, take
from tests.retirement.retiring import LedgersInMemory, surrounding

OLD = tuple(f"i-old{number}" for number in range(6))


@dataclass
class Fleet:
    """A group, its nodes, and those of its instances that retire.

    `asks` are those for whom the group has still to start one, `started_for` says for whom each
    newcomer was started: nobody but the group knows.
    """

    members: list[str] = field(default_factory=lambda: [*OLD])
    ready: set[str] = field(default_factory=lambda: {*OLD})
    records: dict[str, Retirement] = field(default_factory=dict)
    ledgers: LedgersInMemory = field(default_factory=LedgersInMemory)
    asks: list[str] = field(default_factory=list)
    started_for: dict[str, str] = field(default_factory=dict)
    described: list[str] = field(default_factory=list)
    looked_at: list[str] = field(default_factory=list)
    found: dict[str, str] = field(default_factory=dict)
    now_: datetime = NOTICED

    @property
    def succession(self) -> Succession:
        parts: dict[str, Any] = dict.fromkeys(("records", "groups", "instances", "clock"), self)
        parts |= {"ledgers": self.ledgers, "cluster_named": lambda _: self}
        return Succession(replace(surrounding().surroundings, **parts))

    def now(self) -> datetime:
        return self.now_

    def capacity(self, group: str) -> GroupCapacity:
        desired = len(self.members) + len(self.asks)
        return GroupCapacity(desired, 99, tuple(self.members), missing=len(self.asks))

    def describe(self, instance: str) -> InstanceFacts:
        self.described.append(instance)
        return FACTS.model_copy(
            update={"instance": instance, "private_dns_name": f"{instance}.ec2"}
        )

    def node(self, name: str) -> Node | None:
        self.looked_at.append(name)
        instance = name.removesuffix(".ec2")
        retires = instance in self.records
        return Node(name, "u", f"aws:///z/{instance}", retires, instance in self.ready, {})

    def retirement(self, instance: str) -> Retirement | None:
        return self.records.get(instance)

    # What happens
    def wait(self, instance: str, method: Method = Method.RAISE_DESIRED) -> None:
        """An instance is going to wait for its successor; it has not asked for it yet."""
        members = self.succession.wait_from(instance, "ng")
        asked = ReplacementIntent(
            method=method, reason="", asked_at=self.now_, group="ng", members=members
        )
        noticed = take(None, NoticeKind.REBALANCE, "n-1").record
        facts = noticed.facts.model_copy(update={"instance": instance})
        self.records[instance] = noticed.model_copy(
            update={"facts": facts, "phase": Phase.RUNNING, "replaced": asked}
        )

    def ask(self, instance: str) -> None:
        """The group is asked to start the successor of one that waits."""
        asked = self.records[instance].replaced
        assert asked is not None
        self.asks.append(instance)
        if asked.method is Method.DETACH:
            self.members.remove(instance)
            return
        ledger = self.ledgers.surge("ng")
        raised = {**ledger.raised, instance: self.now_}
        self.ledgers.write(
            ledger.model_copy(update={"raised": raised, "version": ledger.version + 1})
        )

    def wait_and_ask(self, *instances: str, method: Method = Method.RAISE_DESIRED) -> None:
        for instance in instances:
            self.wait(instance, method)
            self.ask(instance)

    def interrupt(self, instance: str) -> None:
        """An instance goes at once, and the group starts another one for it."""
        self.members.remove(instance)
        self.asks.append(instance)

    def take_over(self, instance: str) -> None:
        """One that waits is interrupted: it waits no more, and what was asked for it comes."""
        kind = {"kind": NoticeKind.SPOT_INTERRUPTION, "phase": Phase.NOTICED}
        self.records[instance] = self.records[instance].model_copy(update=kind)
        self._leave(instance)

    def _leave(self, instance: str) -> None:
        if instance in self.members:
            self.members.remove(instance)
        ledger = self.ledgers.surge("ng")
        raised = {name: at for name, at in ledger.raised.items() if name != instance}
        self.ledgers.write(
            ledger.model_copy(update={"raised": raised, "version": ledger.version + 1})
        )

    def start(self, which: int = 0, ready: bool = False) -> str:
        """The group starts one of those that it was asked for."""
        newcomer = f"i-new{len(self.started_for)}"
        self.started_for[newcomer] = self.asks.pop(which % len(self.asks))
        self.members.append(newcomer)
        if ready:
            self.ready.add(newcomer)
        return newcomer

    def look(self, instance: str) -> str:
        """Look for the successor of one that waits."""
        found = self.succession.successor_of(self.records[instance])
        if found:
            self.found[instance] = found
        return found

    def begin(self, instance: str) -> None:
        """Its pods are asked to go, and its record says so."""
        begun = {"begun_at": self.now_}
        self.records[instance] = self.records[instance].model_copy(update=begun)

    def has_waited(self, instance: str) -> bool:
        """Whether it waits for its successor, or did so until it found one."""
        record = self.records.get(instance)
        return record is not None and record.kind is NoticeKind.REBALANCE

    def waiting(self) -> list[str]:
        """Those that wait for a successor, and have found none."""
        return [one for one in self.records if self.has_waited(one) and one not in self.found]

    def pending(self) -> list[str]:
        """Those that are started and not Ready."""
        return [one for one in self.members if one not in self.ready]


def test_what_was_started_for_an_interrupted_instance_is_nobodys_to_rely_on() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0")
    fleet.interrupt("i-old1")
    first = fleet.start(ready=True)
    assert fleet.look("i-old0") == "", "it may be the interrupted one's: another is to come"
    second = fleet.start()
    assert fleet.look("i-old0") == "", "that is not Ready"
    fleet.ready.add(second)
    assert fleet.look("i-old0") in {first, second}


def test_what_an_interrupted_instance_asked_for_just_before_counts_too() -> None:
    fleet = Fleet()
    fleet.interrupt("i-old1")
    fleet.wait_and_ask("i-old0", method=Method.DETACH)
    fleet.start(ready=True)
    assert fleet.look("i-old0") == ""
    fleet.start(ready=True)
    assert fleet.look("i-old0")


def test_those_who_wait_go_one_by_one_as_one_more_is_ready() -> None:
    fleet = Fleet()
    fleet.wait_and_ask(*OLD[:3])
    went = []
    for number in range(3):
        newcomer = fleet.start(ready=True)
        looks = {one: fleet.look(one) for one in OLD[:3] if one not in went}
        assert [found for found in looks.values() if found] == [newcomer], number
        went += [one for one, found in looks.items() if found]
    assert sorted(went) == [*OLD[:3]]


def test_a_successor_that_was_found_is_found_again_after_the_function_died() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0", "i-old1")
    fleet.start(ready=True)
    fleet.start(ready=True)
    found = fleet.look("i-old0")
    assert fleet.look("i-old0") == found
    assert fleet.look("i-old1") not in {"", found}


def test_one_that_was_interrupted_while_it_waited_holds_nothing_for_itself() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0", "i-old1")
    fleet.start(ready=True)
    fleet.take_over("i-old1")
    assert fleet.look("i-old0") == "", "what is to come may be its own, and the other has gone"
    fleet.start(ready=True)
    assert fleet.look("i-old0")


def test_one_that_has_not_asked_yet_is_not_what_the_group_starts_one_for() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0")
    fleet.wait("i-old1")
    fleet.interrupt("i-old2")
    fleet.start(ready=True)
    assert fleet.look("i-old0") == ""


def test_who_comes_later_counts_from_the_same_members_and_takes_nobodys_successor() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0", "i-old1")
    first = fleet.start(ready=True)
    assert fleet.look("i-old0") == first
    fleet.wait_and_ask("i-old2")
    second = fleet.start(ready=True)
    third = fleet.start(ready=True)
    assert {fleet.look("i-old1"), fleet.look("i-old2")} == {second, third}


def test_one_that_has_found_its_successor_leaves_what_is_to_come_to_the_others() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0", "i-old1")
    fleet.interrupt("i-old2")
    fleet.start(ready=True)
    fleet.start(ready=True)
    assert fleet.look("i-old0")
    assert fleet.look("i-old1") == "", "though the other has not begun yet"


def test_a_successor_stays_taken_when_the_wait_for_it_is_long_over() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0", "i-old1")
    taken = fleet.start(ready=True)
    assert fleet.look("i-old0") == taken
    fleet.now_ += timedelta(minutes=10)
    fleet.wait_and_ask("i-old2")
    fleet.now_ += timedelta(minutes=6)
    fleet.wait_and_ask("i-old3")
    for _ in range(3):
        fleet.start(ready=True)
    assert fleet.look("i-old2") != taken


def test_a_newcomer_that_goes_again_is_no_successor_and_is_not_waited_for() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0", "i-old1")
    short_lived = fleet.start(ready=True)
    fleet.wait_and_ask(short_lived)
    stays = fleet.start(ready=True)
    assert fleet.look("i-old0") == stays


def test_who_waits_in_a_later_round_relies_on_the_successor_that_it_had() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0")
    successor = fleet.start(ready=True)
    fleet.look("i-old0")
    asked = fleet.records["i-old0"].replaced
    assert asked is not None
    known = {"replaced": asked.model_copy(update={"successor": successor})}
    fleet.records["i-old0"] = fleet.records["i-old0"].model_copy(update=known)
    fleet.interrupt("i-old1")
    assert fleet.look("i-old0") == successor, "what others wait for is none of its business"
    fleet.ready.remove(successor)
    assert fleet.look("i-old0") == "", "unless it is no more"
    other = fleet.start(ready=True)
    fleet.members.remove(successor)
    assert fleet.look("i-old0") == other


def test_ec2_is_asked_for_a_name_once_and_no_node_is_looked_at_in_vain() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0")
    for one in OLD[1:5]:
        fleet.interrupt(one)
    succession = fleet.succession
    record = fleet.records["i-old0"]
    assert succession.successor_of(record) == ""
    assert fleet.looked_at == [], "what has not been started is enough to know"
    for _ in range(5):
        fleet.start()
    for _ in range(3):
        assert succession.successor_of(record) == ""
    assert len(fleet.described) == 1
    assert {*fleet.looked_at} == {"i-new0.ec2"}, "one that is not Ready is one too many"


EVENTS = ["wait", "ask", "interrupt", "take over", "start", "start", "ready", "look", "begin"]


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.sampled_from(EVENTS), st.integers(0, 3), st.integers(0, 20)), max_size=40
    ),
    st.sets(st.sampled_from(OLD[:4])),
)
def test_in_whatever_order_it_happens_nobody_relies_on_what_another_needs(
    events: list[tuple[str, int, int]], detached: set[str]
) -> None:
    fleet = Fleet()
    asked: list[str] = []
    for what, which, seconds in events:
        fleet.now_ += timedelta(seconds=seconds)
        one, waiting = OLD[which], fleet.waiting()
        match what:
            case "wait" if one not in fleet.records and one in fleet.members:
                fleet.wait(one, Method.DETACH if one in detached else Method.RAISE_DESIRED)
            case "ask" if unasked := [name for name in waiting if name not in asked]:
                fleet.ask(unasked[0])
                asked.append(unasked[0])
            case "interrupt" if one not in fleet.records and one in fleet.members:
                fleet.interrupt(one)
            case "take over" if one in waiting and one in asked:
                fleet.take_over(one)
            case "start" if fleet.asks:
                fleet.start(which)
            case "ready" if pending := fleet.pending():
                fleet.ready.add(pending[which % len(pending)])
            case "look":
                looked_for_all(fleet, [name for name in waiting if name in asked])
            case "begin" if one in fleet.found:
                fleet.begin(one)
            case _:
                continue
    while fleet.asks:
        fleet.start()
    fleet.ready |= {*fleet.members}
    rest = [name for name in fleet.waiting() if name in asked]
    looked_for_all(fleet, rest)
    assert fleet.found.keys() >= {*rest}, "when all are Ready there is one for each"
    assert len({*fleet.found.values()}) == len(fleet.found)


def looked_for_all(fleet: Fleet, waiting: list[str]) -> None:
    """Have these look for their successors. Whoever finds one leaves as many that are Ready as were
    found, and as many more as others needed who do not wait."""
    for one in waiting:
        if not fleet.look(one):
            continue
        asked = fleet.records[one].replaced
        assert asked is not None
        came = {name for name in fleet.members if name not in asked.members}
        started_for = [fleet.started_for[name] for name in came]
        needed = [who for who in [*fleet.asks, *started_for] if not fleet.has_waited(who)]
        found = came & {*fleet.found.values()}
        assert len(came & fleet.ready) >= len(needed) + len(found)


def test_a_wait_is_forgotten_when_it_must_be_over() -> None:
    fleet = Fleet()
    fleet.wait_and_ask("i-old0", "i-old1")
    fleet.start(ready=True)
    fleet.now_ += WAITS_FOR
    assert fleet.look("i-old1") == "", "whoever may have died is not what the group starts one for"
